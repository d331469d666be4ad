"""Transfers of calls without SIP: they begin, and no target is called."""

from __future__ import annotations

from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from config.errors import Conflict, FieldProblem, Invalid, TrunklineError
from storage.calls import calls, transfers
from storage.calls.transfers import Transfer, TransferOrder
from storage.database.database import Database

TARGET = "Sales"
NUMBER = "+4930123456"


class FakeTransfers:
    """`api.services.Services.transfer` for agents with one target, `TARGET`. `orders` are those that it got; `error` is
    raised instead of beginning a transfer."""

    def __init__(self) -> None:
        self.database: Database | None = None
        self.orders: list[tuple[str, TransferOrder]] = []
        self.error: TrunklineError | None = None

    async def transfer(self, call_id: str, order: TransferOrder) -> Transfer:
        """Store the transfer as initiated."""
        self.orders.append((call_id, order))
        if self.error is not None:
            raise self.error
        assert self.database is not None
        return await self.database.write(lambda conn: _begin(conn, call_id, order))


def _begin(conn: sa.Connection, call_id: str, order: TransferOrder) -> Transfer:
    call = calls.get_by_id(conn, call_id)
    if call is None or call.status != "in_progress":
        raise Conflict("The call is not in progress")
    if any(each.ended_at is None for each in transfers.of_call(conn, call_id)):
        raise Conflict("A transfer of the call is under way")
    if order.target.casefold() != TARGET.casefold():
        raise Invalid([FieldProblem("target", "Is no transfer target of the agent")])
    begun = Transfer(
        id=str(uuid4()),
        organization_id=call.organization_id,
        parent_call_id=call_id,
        mode=order.mode or "cold",
        status="initiated",
        target_name=TARGET,
        number=NUMBER,
        reason=order.reason,
        summary=order.summary,
        requested_by=order.requested_by,
        created_at=utc_now(),
    )
    transfers.insert(conn, begun)
    return begun
