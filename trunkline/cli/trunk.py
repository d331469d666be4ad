"""`trunkline trunk`: which trunks the operator gives to which organization. Works beside a running server, on the same
database; a server that runs is told and keeps to it at once."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from config.clock import iso
from config.errors import StartupError
from config.settings import Settings
from trunkline.cli.balance import user
from trunkline.cli.table import table

if TYPE_CHECKING:
    import sqlalchemy as sa

    from storage.phone_numbers.trunk_grants import RevokedGrants, TrunkUse
    from storage.phone_numbers.trunk_rules import TrunkGrant, TrunkRules

STATES: Final = {"granted": "allowed", "taken_over": "taken over", "open": "open", None: "refused"}
_COLUMNS: Final = {
    "organization": "ORGANIZATION", "trunk": "TRUNK", "numberPattern": "FOR", "state": "STATE", "numbers": "NUMBERS",
    "since": "SINCE",
}  # fmt: skip


def add_arguments(
    allow_it: argparse.ArgumentParser, list_them: argparse.ArgumentParser, deny_it: argparse.ArgumentParser
) -> None:
    """What the commands take."""
    for each in (allow_it, deny_it):
        each.add_argument("org", metavar="ORG", help="name of the organization")
        place = "an IP address, a network (192.0.2.0/24) or a host name; without a port"
        each.add_argument("trunk", type=_trunk, metavar="HOST-OR-NETWORK", help=place)
    allow_it.add_argument(
        "--number",
        type=_pattern,
        default="*",
        metavar="PATTERN",
        help="only for these numbers: +4930*, 1?? (default: *)",
    )
    deny_it.add_argument(
        "--number", type=_pattern, metavar="PATTERN", help="only the permission for exactly this pattern"
    )
    list_them.add_argument("--org", help="only of this organization")
    for each in (allow_it, list_them, deny_it):
        each.add_argument("--json", action="store_true", help="print one JSON object per line")


def _trunk(text: str) -> str:
    from api.schemas.addresses import SIP_HOST
    from config.special_addresses import why_no_unicast
    from storage.phone_numbers.sip_sources import normal_source

    try:
        normal = normal_source(text)
    except ValueError:
        normal = ""
    if (what := why_no_unicast(normal)) is not None:
        raise argparse.ArgumentTypeError(f"takes a unicast address: {text} is {what}")
    if not normal or ("/" not in text and re.fullmatch(SIP_HOST, text) is None):
        raise argparse.ArgumentTypeError("takes an IP address, a network as 192.0.2.0/24 or a host name")
    return normal


def _pattern(text: str) -> str:
    from storage.phone_numbers.trunk_rules import is_pattern

    if not is_pattern(text):
        raise argparse.ArgumentTypeError("takes digits with * (any) and ? (one), perhaps behind a +: +4930*")
    return text


async def allow(options: argparse.Namespace, settings: Settings) -> int:
    """Give a trunk."""
    from storage.phone_numbers import trunk_grants
    from storage.phone_numbers.sip_sources import is_host_name
    from trunkline.admin import open_database, organization_named

    def give(conn: sa.Connection) -> TrunkGrant:
        owner = organization_named(conn, options.org)
        return trunk_grants.allow(conn, owner.id, options.trunk, options.number, actor=user())

    async with open_database(settings) as database:
        made = await database.write(give)
    await notify_server(settings)
    _print([_given(made, options.org, ())], as_json=options.json)
    if is_host_name(made.trunk):
        print(f"note: {made.trunk} may lead to no private address and to none of this machine or of another "
              "organization, unless that is given as well", file=sys.stderr)  # fmt: skip
    return 0


async def deny(options: argparse.Namespace, settings: Settings) -> int:
    """Take one back. Live calls go on."""
    from storage.phone_numbers import trunk_grants
    from trunkline.admin import open_database, organization_named

    def take(conn: sa.Connection) -> tuple[RevokedGrants, list[TrunkUse]]:
        owner = organization_named(conn, options.org)
        denied = trunk_grants.deny(conn, owner.id, options.trunk, options.number, actor=user())
        rules = trunk_grants.rules(conn, settings.trunks.policy)
        left = [each for each in trunk_grants.uses(conn, rules) if each.organization_id == owner.id]
        return denied, [each for each in left if each.standing is None]

    async with open_database(settings) as database:
        denied, refused = await database.write(take)
    await notify_server(settings)
    rows = [_given(each, options.org, ()) | {"state": "denied"} for each in denied.grants]
    lost = {"organization": options.org, "trunk": options.trunk, "numberPattern": None, "state": "denied"}
    rows += [lost | {"numbers": [each.number for each in denied.numbers], "since": None}] if denied.numbers else []
    _print([*rows, *(_used(each, options.org) for each in refused)], as_json=options.json)
    return 0


async def show(options: argparse.Namespace, settings: Settings) -> int:
    """Print what was given, and what numbers use without that."""
    from storage.accounts import organizations
    from storage.phone_numbers import trunk_grants
    from trunkline.admin import open_database, organization_named

    def look(conn: sa.Connection) -> tuple[TrunkRules, list[TrunkUse], dict[str, str]]:
        shown = organizations.all_of(conn) if options.org is None else [organization_named(conn, options.org)]
        rules = trunk_grants.rules(conn, settings.trunks.policy)
        return rules, trunk_grants.uses(conn, rules), {each.id: each.name for each in shown}

    async with open_database(settings) as database:
        rules, uses, names = await database.read(look)
    rows = [
        _given(grant, names[grant.organization_id], [each for each in uses if _is_by(grant, each)])
        for grant in rules.grants
        if grant.organization_id in names
    ]
    rows += [
        _used(each, names[each.organization_id])
        for each in uses
        if each.organization_id in names and each.standing != "granted"
    ]
    if not options.json:
        now = "approved" if rules.enforced else "open"
        auto = f" ({settings.trunks.policy})" if settings.trunks.policy == "auto" else ""
        print(f"policy: {now}{auto}")
    _print(sorted(rows, key=lambda row: (row["organization"], row["trunk"])), as_json=options.json)
    return 0


async def notify_server(settings: Settings) -> None:
    """A server that runs here keeps to what is stored now; without one there is nothing to tell."""
    from trunkline.server.control_socket import query

    try:
        async for _ in query(settings.data_dir, {"command": "trunks.changed"}):
            pass
    except StartupError:
        return


def _is_by(grant: TrunkGrant, use: TrunkUse) -> bool:
    return grant.organization_id == use.organization_id and use.standing == "granted" and grant.covers(use.trunk)


def _given(grant: TrunkGrant, organization: str, uses: Iterable[TrunkUse]) -> dict[str, Any]:
    numbers = [number.number for use in uses for number in use.numbers if grant.is_for(number.number)]
    return {
        "organization": organization,
        "trunk": grant.trunk,
        "numberPattern": grant.number_pattern,
        "state": "allowed",
        "numbers": list(dict.fromkeys(numbers)),
        "since": iso(grant.created_at),
    }


def _used(use: TrunkUse, organization: str) -> dict[str, Any]:
    return {
        "organization": organization,
        "trunk": use.trunk,
        "numberPattern": None,
        "state": STATES[use.standing],
        "numbers": [number.number for number in use.numbers],
        "since": None,
    }


def _print(rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False))
        return
    texts = [{name: _text(value) for name, value in row.items()} for row in rows]
    for line in table(_COLUMNS, texts):
        print(line)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value) or "-"
    return "-" if value is None else str(value)
