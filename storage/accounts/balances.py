"""What paid plans have left, and every change of it. A balance and the row that tells of its change are written in one
transaction; both are exact to the millionth."""

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
from storage.tables.columns import money
from storage.tables.row_mapping import RowMapping

MAX_BALANCE: Final = Decimal(10**12)
"""Nobody brings a balance further from zero. The database holds nine times as much exactly."""


@dataclass(frozen=True, kw_only=True)
class BalanceChange:
    """A balance was changed by `amount`, which left `balance_after`. `made_by`: "server", or the user of the command
    line. `call_id`: the call that it paid, which may be deleted since."""

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
    note: str | None = None,
) -> BalanceChange:
    """Add an amount, negative to take it away, and keep why. A balance may fall below zero. Raises `Conflict` where it
    would be out of all bounds, but not for a call: that has to end."""
    added = sa.update(_o).where(_o.c.id == organization_id).values(balance=_o.c.balance + money(amount))
    left = conn.execute(added.returning(_o.c.balance)).scalar_one()
    if call_id is None and abs(left) > MAX_BALANCE:
        raise Conflict(f"A balance is at most {MAX_BALANCE:,f}")
    facts = {
        "organization_id": organization_id,
        "created_at": utc_now(),
        "amount": money(amount),
        "balance_after": left,
        "made_by": made_by,
        "call_id": call_id,
        "note": note,
    }
    return _CHANGE.build(conn.execute(sa.insert(_t).returning(*_CHANGE.columns), facts).one())


def last_changes(conn: sa.Connection, organization_id: str, limit: int) -> list[BalanceChange]:
    """The newest, oldest of them first."""
    query = sa.select(*_CHANGE.columns).where(_t.c.organization_id == organization_id)
    rows = conn.execute(query.order_by(_t.c.id.desc()).limit(limit)).all()
    return [_CHANGE.build(row) for row in reversed(rows)]


def store_bill(conn: sa.Connection, call_id: str, usage: Mapping[str, Any], cost: Decimal | None) -> None:
    """Store what a call used and what that costs; None: it is not billed."""
    bill = {"usage": dict(usage), "cost": None if cost is None else float(cost)}
    conn.execute(sa.update(tables.calls).where(tables.calls.c.id == call_id).values(bill))
