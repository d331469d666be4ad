"""The stored timeline of a call survives a crash."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from config.clock import utc_now
from storage.calls import calls, pending_finalization
from storage.database.database import Database

FIRST: dict[str, Any] = {"turn": 0, "ended_by": None, "agent_start_ms": 20, "interrupted": False}
SECOND: dict[str, Any] = {"turn": 1, "ended_by": "model", "agent_start_ms": 900, "interrupted": True}


async def _live(database: Database, organization_id: str) -> calls.Call:
    def create(conn: sa.Connection) -> calls.Call:
        call = calls.create_inbound(
            conn,
            organization_id=organization_id,
            agent_id=organization_id,
            phone_number_id=organization_id,
            provider="sip",
            call_sid="x",
            customer_number="100",
        )
        calls.mark_answered(conn, call.id, utc_now())
        calls.store_progress(conn, call.id, transcript=[], turn_count=0, timeline=[FIRST])
        return call

    return await database.write(create)


async def _timeline(database: Database, call: calls.Call) -> list[dict[str, Any]]:
    stored = await database.read(lambda conn: calls.get_by_id(conn, call.id))
    assert stored is not None
    return stored.timeline


async def test_the_timeline_of_a_live_call_is_stored(database: Database, organization_id: str) -> None:
    call = await _live(database, organization_id)
    assert call.timeline == []
    assert await _timeline(database, call) == [FIRST]


async def test_the_end_of_a_call_stores_the_complete_timeline(database: Database, organization_id: str) -> None:
    call = await _live(database, organization_id)
    ended = await database.write(
        lambda conn: calls.finish(
            conn,
            call.id,
            status="completed",
            ended_reason="agent_ended",
            ended_at=utc_now(),
            timeline=[FIRST, SECOND],
        )
    )
    assert ended is not None
    assert ended.timeline == await _timeline(database, call) == [FIRST, SECOND]


async def test_a_call_of_a_dead_process_keeps_its_stored_timeline(database: Database, organization_id: str) -> None:
    call = await _live(database, organization_id)
    end = pending_finalization.end_interrupted_calls
    (closed,) = await database.write(lambda conn: end(conn, organization_id, lambda _: None))
    assert closed.ended_reason == "server_restart"
    assert closed.timeline == await _timeline(database, call) == [FIRST]
