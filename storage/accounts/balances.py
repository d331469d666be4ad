"""Balances of paid plans, and every change of them. A balance and the row of its change are written in one transaction;
both are exact to the millionth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import sqlalchemy as sa

from config.clock import utc_now
from config.errors import Conflict
from storage import tables
from storage.tables.columns import rounded_money
from storage.tables.row_mapping import RowMapping

MAX_BALANCE: Final = Decimal(10**12)
"""The maximum of a balance, also below zero, for operators' changes. The database is exact up to nine times as much."""


@dataclass(frozen=True, kw_only=True)
class BalanceChange:
    """A change of a balance by `amount`, to `balance_after`. `made_by`: "server", or the user of the command line.
    `call_id`: the billed call, which may have been deleted since."""

    id: int
    organization_id: str
    created_at: datetime
    amount: Decimal
    balance_after: Decimal
    made_by: str
    call_id: str | None
    note: str | None


_CHANGE: Final = RowMapping(BalanceChange, tables.balance_changes)
_t = tables.balance_changes
_o = tables.organizations


def change(
    conn: sa.Connection,
    organization_id: str,
    amount: Decimal,
    *,
    made_by: str,
    call_id: str | None = None,
    corrects_call: bool = False,
    note: str | None = None,
) -> BalanceChange:
    """Add an amount, negative to subtract, and store the change. A balance may fall below zero. Raises `Conflict`
    beyond `MAX_BALANCE`, but not for a call, because calls must be able to end. A call has one change with its
    `call_id`; `corrects_call`: a further one, for a call whose end was replaced."""
    added = sa.update(_o).where(_o.c.id == organization_id).values(balance=_o.c.balance + rounded_money(amount))
    balance = conn.execute(added.returning(_o.c.balance)).scalar_one()
    if call_id is None and not corrects_call and abs(balance) > MAX_BALANCE:
        raise Conflict(f"A balance is at most {MAX_BALANCE:,f}")
    values = {
        "organization_id": organization_id,
        "created_at": utc_now(),
        "amount": rounded_money(amount),
        "balance_after": balance,
        "made_by": made_by,
        "call_id": call_id,
        "note": note,
    }
    return _CHANGE.build(conn.execute(sa.insert(_t).returning(*_CHANGE.columns), values).one())


def last_changes(conn: sa.Connection, organization_id: str, limit: int) -> list[BalanceChange]:
    """Returns the newest changes in the order of time."""
    query = sa.select(*_CHANGE.columns).where(_t.c.organization_id == organization_id)
    rows = conn.execute(query.order_by(_t.c.id.desc()).limit(limit)).all()
    return [_CHANGE.build(row) for row in reversed(rows)]


def store_bill(conn: sa.Connection, call_id: str, usage: Mapping[str, Any], cost: Decimal | None) -> None:
    """Store a call's usage and its cost; None: it is not billed."""
    bill = {"usage": dict(usage), "cost": None if cost is None else float(cost)}
    conn.execute(sa.update(tables.calls).where(tables.calls.c.id == call_id).values(bill))
