"""`trunkline org topup`, `debit` and `balance`: the balances of organizations, also while a server runs."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import click

from config.clock import iso
from config.errors import Conflict
from config.operating_system_user import operating_system_user
from trunkline.cli.framework.argument_types import Value
from trunkline.cli.framework.commands import Command, json_option
from trunkline.cli.terminal.table import print_json, print_table

if TYPE_CHECKING:
    import sqlalchemy as sa

    from config.settings import Settings
    from storage.accounts.balances import BalanceChange
    from storage.accounts.organizations import Organization

DEFAULT_LAST: Final = 20
_COLUMNS: Final = {
    "at": "TIME", "amount": f"{'AMOUNT':>14}", "balance": f"{'BALANCE':>14}", "by": "BY", "call": "CALL",
    "note": "NOTE",
}  # fmt: skip
_AMOUNT: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


def amount(text: str) -> Decimal:
    """Argument type: an amount without sign and exponent, with at most six decimal places."""
    if _AMOUNT.fullmatch(text.strip()) is None:
        raise ValueError("takes an amount such as 20 or 12.50, with at most 6 decimal places")
    return Decimal(text.strip())


def positive_amount(text: str) -> Decimal:
    """Argument type: an `amount` above 0."""
    if not (value := amount(text)):
        raise ValueError("takes an amount above 0")
    return value


AMOUNT: Final = Value("amount", amount)
_NAME = click.argument("name", help="name of the organization")
_AMOUNT_ARGUMENT = click.argument(
    "change_by", metavar="AMOUNT", type=Value("amount", positive_amount),
    help="amount in the currency of the rate card, such as 12.50",
)  # fmt: skip


@click.command("topup", cls=Command, examples=('trunkline org topup acme 50 --note "invoice 7"',))
@_NAME
@_AMOUNT_ARGUMENT
@click.option("--note", metavar="TEXT", help="reason, stored with the change")
async def topup(settings: Settings, name: str, change_by: Decimal, note: str | None) -> int:
    """Add to the balance of a paid plan, and print the new balance."""
    print(format_amount(await _change(settings, name, change_by, note)))
    return 0


@click.command("debit", cls=Command, examples=('trunkline org debit acme 12.50 --note "typed twice"',))
@_NAME
@_AMOUNT_ARGUMENT
@click.option("--note", metavar="TEXT", required=True, help="reason, stored with the change")
async def debit(settings: Settings, name: str, change_by: Decimal, note: str) -> int:
    """Subtract from the balance of a paid plan, and print the new balance."""
    print(format_amount(await _change(settings, name, -change_by, note)))
    return 0


@click.command("balance", cls=Command, examples=("trunkline org balance acme", "trunkline org balance acme --last 100"))
@_NAME
@click.option(
    "--last", type=int, default=DEFAULT_LAST, metavar="N", help=f"number of changes to show (default: {DEFAULT_LAST})"
)
@json_option
async def show(settings: Settings, name: str, last: int, as_json: bool) -> int:
    """Show the balance of an organization and its last changes, oldest first."""
    from storage.accounts import balances
    from trunkline.organization_admin import open_database, organization_by_name

    def read(conn: sa.Connection) -> tuple[Organization, list[BalanceChange]]:
        organization = organization_by_name(conn, name)
        return organization, balances.last_changes(conn, organization.id, max(last, 0))

    async with open_database(settings) as database:
        organization, changes = await database.read(read)
    if as_json:
        print_json(map(_fields, changes))
        return 0
    print_table(_COLUMNS, list(map(_row, changes)))
    print(f"balance {format_amount(organization.balance)}  {organization.plan}  {organization.name}")
    return 0


async def _change(settings: Settings, name: str, change_by: Decimal, note: str | None) -> Decimal:
    """Change a balance; returns the new one. Raises `NotFound`, and `Conflict` on the free plan."""
    from storage.accounts import balances
    from trunkline.organization_admin import open_database, organization_by_name, record_change

    def change(conn: sa.Connection) -> Decimal:
        organization = organization_by_name(conn, name)
        if organization.plan != "paid":
            raise Conflict(
                f"{name!r} is on the free plan, whose calls cost nothing: `trunkline org set {name} --plan paid` first"
            )
        record_change(conn, organization.id, f"organization.{'topup' if change_by > 0 else 'debit'}", ["balance"])
        return balances.change(
            conn, organization.id, change_by, made_by=operating_system_user(), note=note
        ).balance_after

    async with open_database(settings) as database:
        return await database.write(change)


def format_amount(value: Decimal) -> str:
    """An amount with at least two decimal places, and no trailing zeros after them."""
    integer, _, decimals = f"{value:.6f}".partition(".")
    return f"{integer}.{decimals[:2]}{decimals[2:].rstrip('0')}"


def _row(change: BalanceChange) -> dict[str, str]:
    sign = "+" if change.amount > 0 else ""
    return {
        "at": iso(change.created_at),
        "amount": f"{sign + format_amount(change.amount):>14}",
        "balance": f"{format_amount(change.balance_after):>14}",
        "by": change.made_by,
        "call": change.call_id or "-",
        "note": change.note or "-",
    }


def _fields(change: BalanceChange) -> dict[str, str | None]:
    return {
        "at": iso(change.created_at),
        "amount": format_amount(change.amount),
        "balanceAfter": format_amount(change.balance_after),
        "madeBy": change.made_by,
        "callId": change.call_id,
        "note": change.note,
    }
