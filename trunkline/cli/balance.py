"""What organizations have left, on the command line: `trunkline org topup`, `debit` and `balance`. All of them work
beside a running server, on the same database."""

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

SHOWN: Final = 20
"""So many changes, by default."""
_AMOUNT: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?")


def amount(text: str) -> Decimal:
    """An amount that a balance takes exactly: no sign, no exponent, at most six places."""
    if _AMOUNT.fullmatch(text.strip()) is None:
        raise argparse.ArgumentTypeError("takes an amount as 20 or 12.50, with at most 6 decimal places")
    return Decimal(text.strip())


def amount_above_zero(text: str) -> Decimal:
    """An `amount` that changes something."""
    if not (given := amount(text)):
        raise argparse.ArgumentTypeError("takes an amount above 0")
    return given


def add_arguments(
    topup: argparse.ArgumentParser, debit: argparse.ArgumentParser, balance: argparse.ArgumentParser
) -> None:
    """Of the three commands."""
    for each in (topup, debit, balance):
        each.add_argument("name", help="name of the organization")
    for each in (topup, debit):
        each.add_argument(
            "amount", type=amount_above_zero, help="in the currency of the rate card, such as 20 or 12.50"
        )
        each.add_argument("--note", metavar="TEXT", help="reason, stored with the change", required=each is debit)
    balance.add_argument(
        "--last", type=int, default=SHOWN, metavar="N", help=f"number of changes to show (default: {SHOWN})"
    )
    balance.add_argument("--json", action="store_true", help="print one JSON object per line")


async def topup(options: argparse.Namespace, settings: Settings) -> int:
    """Add to a balance, and print what it is now."""
    print(format_amount(await _changed(settings, options.name, options.amount, options.note)))
    return 0


async def debit(options: argparse.Namespace, settings: Settings) -> int:
    """Take from a balance, and print what it is now."""
    print(format_amount(await _changed(settings, options.name, -options.amount, options.note)))
    return 0


async def show(options: argparse.Namespace, settings: Settings) -> int:
    """Print the last changes of a balance, oldest first, and what it is now."""
    from storage.accounts import balances
    from trunkline.admin import open_database, organization_named

    def look(conn: sa.Connection) -> tuple[Organization, list[BalanceChange]]:
        organization = organization_named(conn, options.name)
        return organization, balances.last_changes(conn, organization.id, max(options.last, 0))

    async with open_database(settings) as database:
        organization, changes = await database.read(look)
    for change in changes:
        print(_json(change) if options.json else _line(change))
    if not options.json:
        print(f"balance {format_amount(organization.balance)}  {organization.plan}  {organization.name}")
    return 0


async def _changed(settings: Settings, name: str, change_by: Decimal, note: str | None) -> Decimal:
    """What is left after a change. Raises `NotFound`, and `Conflict` on the free plan."""
    from storage.accounts import balances
    from trunkline.admin import open_database, organization_named

    def change(conn: sa.Connection) -> Decimal:
        organization = organization_named(conn, name)
        if organization.plan != "paid":
            raise Conflict(
                f"{name!r} is on the free plan, whose calls cost nothing: `trunkline org set {name} --plan paid` first"
            )
        return balances.change(conn, organization.id, change_by, made_by=user(), note=note).balance_after

    async with open_database(settings) as database:
        return await database.write(change)


def user() -> str:
    """Who types."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"user {os.getuid()}"


def format_amount(value: Decimal) -> str:
    """An amount with all its places that say something, and two at least."""
    whole, _, places = f"{value:.6f}".partition(".")
    return f"{whole}.{places[:2]}{places[2:].rstrip('0')}"


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
    shown = {
        "at": iso(change.created_at),
        "amount": format_amount(change.amount),
        "balanceAfter": format_amount(change.balance_after),
        "madeBy": change.made_by,
        "callId": change.call_id,
        "note": change.note,
    }
    return json.dumps(shown, ensure_ascii=False)
