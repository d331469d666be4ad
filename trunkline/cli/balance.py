"""`trunkline org topup`, `debit` and `balance`: the balances of organizations, also while a server runs."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from config.clock import iso
from config.errors import Conflict
from config.settings import Settings

if TYPE_CHECKING:
    import sqlalchemy as sa

    from storage.accounts.balances import BalanceChange
    from storage.accounts.organizations import Organization

DEFAULT_LAST: Final = 20
_AMOUNT: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


def amount(text: str) -> Decimal:
    """Argument type: an amount without sign and exponent, with at most six decimal places."""
    if _AMOUNT.fullmatch(text.strip()) is None:
        raise argparse.ArgumentTypeError("takes an amount such as 20 or 12.50, with at most 6 decimal places")
    return Decimal(text.strip())


def positive_amount(text: str) -> Decimal:
    """Argument type: an `amount` above 0."""
    if not (value := amount(text)):
        raise argparse.ArgumentTypeError("takes an amount above 0")
    return value


def add_arguments(
    topup: argparse.ArgumentParser, debit: argparse.ArgumentParser, balance: argparse.ArgumentParser
) -> None:
    """Add the arguments of the three commands."""
    for parser in (topup, debit, balance):
        parser.add_argument("name", help="name of the organization")
    for parser in (topup, debit):
        parser.add_argument(
            "amount", type=positive_amount, help="amount in the currency of the rate card, such as 12.50"
        )
        parser.add_argument("--note", metavar="TEXT", help="reason, stored with the change", required=parser is debit)
    last = f"number of changes to show (default: {DEFAULT_LAST})"
    balance.add_argument("--last", type=int, default=DEFAULT_LAST, metavar="N", help=last)
    balance.add_argument("--json", action="store_true", help="print one JSON object per line")


async def topup(options: argparse.Namespace, settings: Settings) -> int:
    """Add to a balance, and print the new balance."""
    print(format_amount(await _change(settings, options.name, options.amount, options.note)))
    return 0


async def debit(options: argparse.Namespace, settings: Settings) -> int:
    """Subtract from a balance, and print the new balance."""
    print(format_amount(await _change(settings, options.name, -options.amount, options.note)))
    return 0


async def show(options: argparse.Namespace, settings: Settings) -> int:
    """Print the last changes of a balance, oldest first, and the balance."""
    from storage.accounts import balances
    from trunkline.organization_admin import open_database, organization_by_name

    def read(conn: sa.Connection) -> tuple[Organization, list[BalanceChange]]:
        organization = organization_by_name(conn, options.name)
        return organization, balances.last_changes(conn, organization.id, max(options.last, 0))

    async with open_database(settings) as database:
        organization, changes = await database.read(read)
    for change in changes:
        print(_json(change) if options.json else _line(change))
    if not options.json:
        print(f"balance {format_amount(organization.balance)}  {organization.plan}  {organization.name}")
    return 0


async def _change(settings: Settings, name: str, change_by: Decimal, note: str | None) -> Decimal:
    """Change a balance; returns the new one. Raises `NotFound`, and `Conflict` on the free plan."""
    from storage.accounts import balances
    from trunkline.organization_admin import open_database, organization_by_name

    def change(conn: sa.Connection) -> Decimal:
        organization = organization_by_name(conn, name)
        if organization.plan != "paid":
            raise Conflict(
                f"{name!r} is on the free plan, whose calls cost nothing: `trunkline org set {name} --plan paid` first"
            )
        return balances.change(
            conn, organization.id, change_by, made_by=operating_system_user(), note=note
        ).balance_after

    async with open_database(settings) as database:
        return await database.write(change)


def operating_system_user() -> str:
    """The name of the user who runs the command."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.getuid()}"


def format_amount(value: Decimal) -> str:
    """An amount with at least two decimal places, and no trailing zeros after them."""
    integer, _, decimals = f"{value:.6f}".partition(".")
    return f"{integer}.{decimals[:2]}{decimals[2:].rstrip('0')}"


def _line(change: BalanceChange) -> str:
    sign = "+" if change.amount > 0 else ""
    words = [
        iso(change.created_at),
        f"{sign + format_amount(change.amount):>14}",
        f"{format_amount(change.balance_after):>14}",
        change.made_by,
        change.call_id or "-",
        change.note or "",
    ]
    return "  ".join(words).rstrip()


def _json(change: BalanceChange) -> str:
    fields = {
        "at": iso(change.created_at),
        "amount": format_amount(change.amount),
        "balanceAfter": format_amount(change.balance_after),
        "madeBy": change.made_by,
        "callId": change.call_id,
        "note": change.note,
    }
    return json.dumps(fields, ensure_ascii=False)
