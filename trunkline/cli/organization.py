"""`trunkline org create`, `set` and `list`: organizations, their limits and permissions."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any

from config.settings import Settings
from trunkline.cli import balance, quota, retention, trunk
from trunkline.cli.argument_types import name, new_name, positive_int

if TYPE_CHECKING:
    from storage.accounts.organizations import Organization


def add_arguments(create: argparse.ArgumentParser, change: argparse.ArgumentParser) -> None:
    """Add the arguments of `org create` and `org set`."""
    create.add_argument("name", type=new_name, help="name of the organization")
    create.add_argument("--plan", choices=("free", "paid"), default="free", help="billing plan (default: free)")
    create.add_argument(
        "--balance", type=balance.amount, default="0", help="initial balance of a paid plan (default: 0)"
    )
    create.add_argument("--max-calls", type=positive_int, help="limit of concurrent calls (default: the settings')")
    change.add_argument("name", type=name, help="name of the organization")
    destinations = change.add_mutually_exclusive_group()
    destinations.add_argument(
        "--prefixes", type=_prefixes, help='prefixes of allowed destinations: +49,+43; "" allows none'
    )
    destinations.add_argument("--any-prefix", action="store_true", help="allow calls to any destination")
    rate = change.add_mutually_exclusive_group()
    rate.add_argument("--calls-per-minute", type=positive_int, metavar="N", help="limit of outbound calls per minute")
    rate.add_argument("--no-cap", action="store_true", help="remove the limit of outbound calls per minute")
    change.add_argument("--max-calls", type=positive_int, metavar="N", help="limit of concurrent calls")
    change.add_argument("--plan", choices=("free", "paid"), help="billing plan; calls of the free plan cost nothing")
    retention.add_arguments(change)


def _prefixes(text: str) -> list[str]:
    from api.schemas.patterns import PREFIX

    prefixes = [each.strip() for each in text.split(",")] if text.strip() else []
    if not all(re.fullmatch(PREFIX, each) for each in prefixes):
        raise argparse.ArgumentTypeError("takes prefixes of E.164 numbers or of extensions, such as +49,+43,1")
    return prefixes


async def create(options: argparse.Namespace, settings: Settings) -> int:
    """Create an organization, print its id, and note on stderr which trunks it may use."""
    from trunkline import organization_admin

    organization = await organization_admin.create_organization(
        settings, options.name, plan=options.plan, balance=options.balance, max_calls=options.max_calls,
        made_by=balance.operating_system_user(),
    )  # fmt: skip
    print(organization.id)
    await trunk.notify_server(settings)
    if (note := await organization_admin.trunk_policy_note(settings, organization.name)) is not None:
        print(f"note: {note}", file=sys.stderr)
    return 0


async def change(options: argparse.Namespace, settings: Settings) -> int:
    """Change an organization's limits and permissions, and print it."""
    from trunkline import organization_admin

    fields: dict[str, Any] = {
        "outbound_prefixes": options.prefixes,
        "outbound_per_minute": options.calls_per_minute,
        "max_calls": options.max_calls,
        "plan": options.plan,
    }
    changes = {name: value for name, value in fields.items() if value is not None}
    if options.any_prefix:
        changes["outbound_prefixes"] = None
    if options.no_cap:
        changes["outbound_per_minute"] = None
    changes |= retention.changes(options)
    if options.quotas:
        await quota.change(settings, options.name, options.quotas)
    print(_line(await organization_admin.change_organization(settings, options.name, changes)))
    return 0


async def list_all(options: argparse.Namespace, settings: Settings) -> int:
    """Print all organizations."""
    from trunkline import organization_admin

    for organization in await organization_admin.list_organizations(settings):
        print(_line(organization))
    return 0


def _line(organization: Organization) -> str:
    max_calls, rate = organization.max_calls or "-", organization.outbound_per_minute or "-"
    prefixes = organization.outbound_prefixes
    destinations = "anywhere" if prefixes is None else f"to {','.join(prefixes) or 'nowhere'}"
    plan = f"paid  {balance.format_amount(organization.balance)}" if organization.plan == "paid" else "free"
    return (
        f"{organization.id}  {plan}  {retention.describe(organization)}  max calls {max_calls:>4}  a minute {rate:>4}  "
        f"{destinations}  {organization.name}"
    )
