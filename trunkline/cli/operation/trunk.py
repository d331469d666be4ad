"""`trunkline trunk`: the operator's grants of trunks to organizations. Works also while a server runs, which applies a
change at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from config.clock import iso
from config.operating_system_user import operating_system_user
from trunkline.cli.framework.argument_types import Value
from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.terminal.table import print_json, print_table
from trunkline.server.control_socket import notify_server

if TYPE_CHECKING:
    import sqlalchemy as sa

    from config.settings import Settings
    from storage.phone_numbers.trunk_grant_evaluation import TrunkAccessRules, TrunkGrant
    from storage.phone_numbers.trunk_grants import RevokedGrants, TrunkUse

STATES: Final = {"granted": "allowed", "taken_over": "taken over", "open": "open", None: "refused"}
_COLUMNS: Final = {
    "organization": "ORGANIZATION", "trunk": "TRUNK", "numberPattern": "FOR", "state": "STATE", "numbers": "NUMBERS",
    "since": "SINCE",
}  # fmt: skip


@click.group(cls=Group, examples=("trunkline trunk allow acme 192.0.2.10", "trunkline trunk list"))
def trunk() -> None:
    """Manage the trunks that organizations may use."""


def _trunk(text: str) -> str:
    from api.schemas.addresses import SIP_HOST
    from config.special_addresses import non_unicast_kind
    from storage.phone_numbers.sip_sources import normal_source

    try:
        normal = normal_source(text)
    except ValueError:
        normal = ""
    if (what := non_unicast_kind(normal)) is not None:
        raise ValueError(f"takes a unicast address: {text} is {what}")
    if not normal or ("/" not in text and re.fullmatch(SIP_HOST, text) is None):
        raise ValueError("takes an IP address, a network such as 192.0.2.0/24, or a host name")
    return normal


def _pattern(text: str) -> str:
    from storage.phone_numbers.trunk_grant_evaluation import is_number_pattern

    if not is_number_pattern(text):
        raise ValueError("takes digits, * (any digits) and ? (one digit), optionally after a +: +4930*")
    return text


_ORG = click.argument("organization_name", metavar="ORG", help="name of the organization")
_TRUNK = click.argument(
    "host", metavar="HOST-OR-NETWORK", type=Value("trunk", _trunk),
    help="an IP address, a network (192.0.2.0/24) or a host name; without a port",
)  # fmt: skip


@trunk.command(
    "allow",
    examples=("trunkline trunk allow acme 192.0.2.10", "trunkline trunk allow acme 192.0.2.0/24 --number '+4930*'"),
)
@_ORG
@_TRUNK
@click.option(
    "--number", type=Value("pattern", _pattern), default="*",
    help="phone numbers that may use it, such as +4930* or 1?? (default: all)",
)  # fmt: skip
@json_option
async def allow(settings: Settings, organization_name: str, host: str, number: str, as_json: bool) -> int:
    """Allow the numbers of an organization to use a trunk."""
    from storage.phone_numbers import trunk_grants
    from storage.phone_numbers.sip_sources import is_host_name
    from trunkline.organization_admin import open_database, organization_by_name

    def store(conn: sa.Connection) -> TrunkGrant:
        organization = organization_by_name(conn, organization_name)
        return trunk_grants.allow(conn, organization.id, host, number, actor=operating_system_user())

    async with open_database(settings) as database:
        grant = await database.write(store)
    await notify_server(settings.data_dir, "trunks.changed")
    _print([_grant_row(grant, organization_name, ())], as_json=as_json)
    if is_host_name(grant.trunk):
        print(f"note: {grant.trunk} may not resolve to a private address, nor to one of this machine or of another "
              "organization, unless that address is granted as well", file=sys.stderr)  # fmt: skip
    return 0


@trunk.command("deny", examples=("trunkline trunk deny acme 192.0.2.10",))
@_ORG
@_TRUNK
@click.option("--number", type=Value("pattern", _pattern), help="only the grant for exactly this pattern")
@json_option
async def deny(settings: Settings, organization_name: str, host: str, number: str | None, as_json: bool) -> int:
    """Revoke a grant; the numbers stay, their calls are rejected.

    Live calls are not ended.
    """
    from storage.phone_numbers import trunk_grants
    from trunkline.organization_admin import open_database, organization_by_name

    def revoke(conn: sa.Connection) -> tuple[RevokedGrants, list[TrunkUse]]:
        organization = organization_by_name(conn, organization_name)
        revoked = trunk_grants.deny(conn, organization.id, host, number, actor=operating_system_user())
        rules = trunk_grants.current_access_rules(conn, settings.trunks.policy)
        uses = [use for use in trunk_grants.trunk_uses(conn, rules) if use.organization_id == organization.id]
        return revoked, [use for use in uses if use.permission is None]

    async with open_database(settings) as database:
        revoked, forbidden = await database.write(revoke)
    await notify_server(settings.data_dir, "trunks.changed")
    rows = [_grant_row(grant, organization_name, ()) | {"state": "denied"} for grant in revoked.grants]
    denied = {"organization": organization_name, "trunk": host, "numberPattern": None, "state": "denied"}
    rows += [denied | {"numbers": [each.number for each in revoked.numbers], "since": None}] if revoked.numbers else []
    _print([*rows, *(_use_row(use, organization_name) for use in forbidden)], as_json=as_json)
    return 0


@trunk.command("list", examples=("trunkline trunk list", "trunkline trunk list --org acme --json"))
@click.option("--org", metavar="NAME", help="only of this organization")
@json_option
async def show(settings: Settings, org: str | None, as_json: bool) -> int:
    """List the grants, and the trunks that numbers use without one."""
    from storage.accounts import organizations
    from storage.phone_numbers import trunk_grants
    from trunkline.organization_admin import open_database, organization_by_name

    def read(conn: sa.Connection) -> tuple[TrunkAccessRules, list[TrunkUse], dict[str, str]]:
        selected = organizations.all_of(conn) if org is None else [organization_by_name(conn, org)]
        rules = trunk_grants.current_access_rules(conn, settings.trunks.policy)
        return rules, trunk_grants.trunk_uses(conn, rules), {each.id: each.name for each in selected}

    async with open_database(settings) as database:
        rules, uses, names = await database.read(read)
    rows = [
        _grant_row(grant, names[grant.organization_id], [use for use in uses if _is_by_grant(use, grant)])
        for grant in rules.grants
        if grant.organization_id in names
    ]
    rows += [
        _use_row(use, names[use.organization_id])
        for use in uses
        if use.organization_id in names and use.permission != "granted"
    ]
    if not as_json:
        policy = "approved" if rules.enforced else "open"
        auto = f" ({settings.trunks.policy})" if settings.trunks.policy == "auto" else ""
        print(f"policy: {policy}{auto}")
    _print(sorted(rows, key=lambda row: (row["organization"], row["trunk"])), as_json=as_json)
    return 0


def _is_by_grant(use: TrunkUse, grant: TrunkGrant) -> bool:
    return grant.organization_id == use.organization_id and use.permission == "granted" and grant.covers(use.trunk)


def _grant_row(grant: TrunkGrant, organization: str, uses: Iterable[TrunkUse]) -> dict[str, Any]:
    numbers = [number.number for use in uses for number in use.numbers if grant.matches_number(number.number)]
    return {
        "organization": organization,
        "trunk": grant.trunk,
        "numberPattern": grant.number_pattern,
        "state": "allowed",
        "numbers": list(dict.fromkeys(numbers)),
        "since": iso(grant.created_at),
    }


def _use_row(use: TrunkUse, organization: str) -> dict[str, Any]:
    return {
        "organization": organization,
        "trunk": use.trunk,
        "numberPattern": None,
        "state": STATES[use.permission],
        "numbers": [number.number for number in use.numbers],
        "since": None,
    }


def _print(rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(rows)
    else:
        print_table(_COLUMNS, [{name: _cell(value) for name, value in row.items()} for row in rows])


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value) or "-"
    return "-" if value is None else str(value)
