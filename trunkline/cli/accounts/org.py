"""`trunkline org`: organizations, their limits and permissions, quotas and balances."""

from __future__ import annotations

import re
import sys
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from config.operating_system_user import operating_system_user
from trunkline.cli.accounts import balance, quota, retention
from trunkline.cli.framework.argument_types import NAME, NEW_NAME, POSITIVE_INT, Value
from trunkline.cli.framework.commands import Group, json_option
from trunkline.cli.terminal.confirmation import confirm_deletion, yes_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    from config.settings import Settings
    from storage.accounts.organizations import Organization

_COLUMNS = {
    "id": "ID", "name": "NAME", "plan": "PLAN", "balance": "BALANCE", "calls": "MAX CALLS", "rate": "A MINUTE",
    "destinations": "DESTINATIONS", "keeps": "KEEPS", "redacts": "REDACTS",
}  # fmt: skip


@click.group(cls=Group, examples=("trunkline org create acme", "trunkline org set acme --max-calls 20"))
def org() -> None:
    """Manage organizations, their limits, quotas and balances."""


def _prefixes(text: str) -> list[str]:
    from api.schemas.patterns import PREFIX

    prefixes = [each.strip() for each in text.split(",")] if text.strip() else []
    if not all(re.fullmatch(PREFIX, each) for each in prefixes):
        raise ValueError("takes prefixes of E.164 numbers or of extensions, such as +49,+43,1")
    return prefixes


@org.command("create", examples=("trunkline org create acme", "trunkline org create acme --plan paid --balance 50"))
@click.argument("name", type=NEW_NAME, help="name of the organization")
@click.option("--plan", type=click.Choice(["free", "paid"]), default="free", help="billing plan (default: free)")
@click.option(
    "--balance", "opening", type=balance.AMOUNT, default="0", help="initial balance of a paid plan (default: 0)"
)
@click.option("--max-calls", type=POSITIVE_INT, help="limit of concurrent calls (default: the settings')")
async def create(settings: Settings, name: str, plan: Any, opening: Decimal, max_calls: int | None) -> int:
    """Create an organization and print its id.

    A note on stderr says which trunks it may use.
    """
    from trunkline import organization_admin
    from trunkline.server.control_socket import notify_server

    organization = await organization_admin.create_organization(
        settings, name, plan=plan, balance=opening, max_calls=max_calls, made_by=operating_system_user()
    )
    print(organization.id)
    await notify_server(settings.data_dir, "trunks.changed")
    if (note := await organization_admin.trunk_policy_note(settings, organization.name)) is not None:
        print(f"note: {note}", file=sys.stderr)
    return 0


@org.command(
    "set",
    examples=(
        "trunkline org set acme --prefixes +49,+43 --calls-per-minute 30",
        "trunkline org set acme --quota documents=500 --quota document_bytes=2GiB",
        "trunkline org set acme --keep-recordings-days 30 --redact on",
    ),
    exclusive=(("prefixes", "any_prefix"), ("calls_per_minute", "no_cap")),
)
@click.argument("name", type=NAME, help="name of the organization")
@click.option(
    "--prefixes", type=Value("list", _prefixes), help='prefixes of allowed destinations: +49,+43; "" allows none'
)
@click.option("--any-prefix", is_flag=True, help="allow calls to any destination")
@click.option("--calls-per-minute", type=POSITIVE_INT, help="limit of outbound calls per minute")
@click.option("--no-cap", is_flag=True, help="remove the limit of outbound calls per minute")
@click.option("--max-calls", type=POSITIVE_INT, help="limit of concurrent calls")
@click.option("--plan", type=click.Choice(["free", "paid"]), help="billing plan; calls of the free plan cost nothing")
@retention.options
@quota.option
async def change(settings: Settings, name: str, **options: Any) -> int:
    """Change an organization's limits and permissions, from the next call on."""
    from trunkline import organization_admin

    fields: dict[str, Any] = {
        "outbound_prefixes": options["prefixes"],
        "outbound_per_minute": options["calls_per_minute"],
        "max_calls": options["max_calls"],
        "plan": options["plan"],
    }
    changes = {field: value for field, value in fields.items() if value is not None}
    if options["any_prefix"]:
        changes["outbound_prefixes"] = None
    if options["no_cap"]:
        changes["outbound_per_minute"] = None
    changes |= retention.changes(options)
    if options["quotas"]:
        await quota.change(settings, name, options["quotas"])
    print(_line(await organization_admin.change_organization(settings, name, changes)))
    return 0


@org.command("rename", examples=("trunkline org rename acme acme-europe",))
@click.argument("name", type=NAME, help="name of the organization")
@click.argument("new_name", type=NEW_NAME, metavar="NEW_NAME", help="its new name")
async def rename(settings: Settings, name: str, new_name: str) -> int:
    """Give an organization another name; its id, keys, numbers and calls stay."""
    from trunkline import organization_admin

    renamed = await organization_admin.rename_organization(settings, name, new_name)
    print(f"renamed {name} to {renamed.name}")
    return 0


@org.command("delete", examples=("trunkline org delete acme", "trunkline org delete acme --yes"))
@click.argument("name", type=NAME, help="name of the organization")
@yes_option
async def delete(settings: Settings, name: str, yes: bool) -> int:
    """Delete an organization with everything that it owns; asks first.

    Its calls with their recordings, its audit log and its balance cannot be restored. Rejected while a call of it has
    not ended.
    """
    from trunkline import organization_admin
    from trunkline.server.control_socket import notify_server

    owned = await organization_admin.owned_counts(settings, name)
    counts = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in owned.items() if count)
    everything = f"{counts}, " if counts else ""
    confirm_deletion(f"the organization {name}", [f"with it go {everything}its audit log and its balance"], yes=yes)
    try:
        await organization_admin.delete_organization(settings, name)
    finally:  # an error may come after a part of the calls
        for change in ("trunks.changed", "documents.changed", "calls.deleted"):
            await notify_server(settings.data_dir, change)
    print(f"deleted {name}")
    return 0


org.add_command(quota.show)
org.add_command(balance.topup)
org.add_command(balance.debit)
org.add_command(balance.show)


@org.command("list", examples=("trunkline org list", "trunkline org list --json"))
@json_option
async def list_all(settings: Settings, as_json: bool) -> int:
    """List organizations with their limits."""
    from trunkline import organization_admin

    listed = await organization_admin.list_organizations(settings)
    if as_json:
        print_json(map(_fields, listed))
    else:
        print_table(_COLUMNS, list(map(_row, listed)))
    return 0


def _line(organization: Organization) -> str:
    """What `org set` prints."""
    row = _row(organization)
    plan = f"paid  {row['balance']}" if organization.plan == "paid" else "free"
    destinations = row["destinations"] if organization.outbound_prefixes is None else f"to {row['destinations']}"
    return (
        f"{row['id']}  {plan}  keeps {row['keeps']}  redacts {row['redacts']}  max calls {row['calls']:>4}  "
        f"a minute {row['rate']:>4}  {destinations}  {row['name']}"
    )


def _row(organization: Organization) -> dict[str, str]:
    prefixes = organization.outbound_prefixes
    return {
        "id": organization.id,
        "name": organization.name,
        "plan": organization.plan,
        "balance": balance.format_amount(organization.balance) if organization.plan == "paid" else "-",
        "calls": str(organization.max_calls or "-"),
        "rate": str(organization.outbound_per_minute or "-"),
        "destinations": "anywhere" if prefixes is None else ",".join(prefixes) or "nowhere",
        "keeps": retention.describe_days(organization),
        "redacts": retention.describe_redaction(organization),
    }


def _fields(organization: Organization) -> dict[str, Any]:
    from config.clock import iso

    return {
        "id": organization.id,
        "name": organization.name,
        "plan": organization.plan,
        "balance": balance.format_amount(organization.balance) if organization.plan == "paid" else None,
        "maxCalls": organization.max_calls,
        "outboundPerMinute": organization.outbound_per_minute,
        "outboundPrefixes": organization.outbound_prefixes,
        "keepRecordingsDays": organization.keep_recordings_days,
        "keepTranscriptsDays": organization.keep_transcripts_days,
        "keepCallsDays": organization.keep_calls_days,
        "redact": organization.redact,
        "redactDialled": organization.redact_dialled,
        "quotas": organization.quotas or {},
        "createdAt": iso(organization.created_at),
    }
