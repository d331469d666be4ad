"""The true end of a call that another node has closed, on both engines."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from storage.accounts import balances
from storage.calls import calls, late_end, statistics
from storage.calls.calls import Call
from storage.calls.statistics import Figures, round_down
from storage.database.database import Database
from tests.storage.calls.transfer_makers import parent_call

TALK: list[Any] = [{"role": "user", "content": "Hello"}]


def figures_of_agent(conn: sa.Connection, call: Call) -> Figures:
    since = round_down(call.created_at)
    times: dict[str, Any] = {"since": since, "until": since + statistics.QUARTER, "zone": ZoneInfo("UTC")}
    found = statistics.read(conn, call.organization_id, **times, interval="hour", agent_id=call.agent_id)
    return statistics.total(found)


def turn(gap_ms: int, interrupted: bool = False) -> dict[str, Any]:
    return {"turn": 1, "response_gap_ms": gap_ms, "interrupted": interrupted}


def close(conn: sa.Connection, call: Call, seconds: int, reason: Any, timeline: list[dict[str, Any]]) -> Call | None:
    """End a call as a finalizer does, at a cent for each second."""
    ended = calls.finish(
        conn,
        call.id,
        status="completed",
        ended_reason=reason,
        ended_at=call.created_at + timedelta(seconds=seconds),
        transcript=TALK,
        timeline=timeline,
        turn_count=len(timeline),
    )
    if ended is not None:
        cost = Decimal(seconds) / 100
        balances.store_bill(conn, call.id, {}, cost)
        statistics.add_cost(conn, ended, cost)
    return ended


async def test_sums_have_the_true_end_alone(database: Database, organization_id: str) -> None:
    def end_twice(conn: sa.Connection) -> tuple[Figures, Figures, list[Call | None], Call | None]:
        plain, late = parent_call(conn, organization_id), parent_call(conn, organization_id)
        close(conn, plain, 9, "customer_ended", [turn(310), turn(70_000, True), turn(4_999)])
        expected = figures_of_agent(conn, plain)
        close(conn, late, 3, "server_restart", [turn(300, True)])
        closed = [late_end.reopen(conn, late.id)]
        assert calls.cost_so_far(conn, late.id) == 0.03
        close(conn, late, 9, "customer_ended", [turn(310), turn(70_000, True), turn(4_999)])
        closed += [late_end.reopen(conn, each.id) for each in (late, plain)]
        return expected, figures_of_agent(conn, late), closed, calls.get_by_id(conn, late.id)

    expected, found, closed, call = await database.write(end_twice)
    assert found.amounts == expected.amounts
    assert found.cost == Decimal("0.09")
    assert [each is not None for each in closed] == [True, False, False]
    assert call is not None
    assert (call.ended_reason, call.duration_seconds, call.transcript) == ("customer_ended", 9, TALK)


async def test_an_end_whose_transcript_was_deleted_is_not_taken_back(database: Database, organization_id: str) -> None:
    def end(conn: sa.Connection) -> Call | None:
        call = parent_call(conn, organization_id)
        close(conn, call, 3, "server_restart", [])
        conn.execute(sa.text("UPDATE calls SET talk_removed_at = 1"))
        return late_end.reopen(conn, call.id)

    assert await database.write(end) is None
