"""Stored calls: status changes, durations, lists."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from config.clock import utc_now
from storage.calls import call_list, calls, pending_finalization, recordings
from storage.calls.call_list import CallFilter
from storage.calls.calls import Call
from storage.database.database import Database

AGENT = "3f0c1a52-7a57-4d7c-8f0e-0123456789ab"
OTHER_AGENT = "3f0c1a52-7a57-4d7c-8f0e-0123456789ac"
TALK: list[calls.TranscriptItem] = [{"role": "user", "content": "Grüezi"}, {"role": "assistant", "content": "Hallo"}]


def _arrive(conn: sa.Connection, organization_id: str, **changes: Any) -> Call:
    facts: dict[str, Any] = {
        "organization_id": organization_id,
        "agent_id": AGENT,
        "phone_number_id": AGENT,
        "provider": "sip",
        "call_sid": "abc@pbx",
        "customer_number": "+41441234567",
    }
    return calls.create_inbound(conn, **{**facts, **changes})


async def test_an_inbound_call_is_stored_as_ringing(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        call = _arrive(conn, organization_id, metadata={"a": [1, None]}, context_variables={"n": 1.5})
        assert calls.get(conn, organization_id, call.id) == call
        assert (call.status, call.direction, call.started_at) == ("ringing", "inbound", None)
        assert (call.metadata, call.context_variables) == ({"a": [1, None]}, {"n": 1.5})

    await database.write(check)


async def test_the_duration_counts_from_the_answer(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        call = _arrive(conn, organization_id)
        answer = call.created_at + timedelta(seconds=7)
        assert calls.mark_answered(conn, call.id, answer)
        ended = calls.finish(
            conn,
            call.id,
            status="completed",
            ended_reason="agent_ended",
            ended_at=answer + timedelta(seconds=42.4),
            transcript=TALK,
            recording=True,
            turn_count=1,
            analysis={"summary": "A greeting", "extractions": {"ok": True}},
            cost=0.25,
        )
        assert calls.get(conn, organization_id, call.id) == ended
        assert ended is not None
        assert (ended.status, ended.duration_seconds, ended.started_at) == ("completed", 42, answer)
        assert (ended.transcript, ended.recorded, ended.turn_count, ended.cost) == (TALK, True, 1, 0.25)

    await database.write(check)


async def test_the_duration_of_an_unanswered_call_is_0(database: Database, organization_id: str) -> None:
    def end(conn: sa.Connection) -> Call | None:
        call = _arrive(conn, organization_id)
        at = call.created_at + timedelta(seconds=9)
        return calls.finish(conn, call.id, status="no_answer", ended_reason="customer_ended", ended_at=at)

    ended = await database.write(end)
    assert ended is not None
    assert (ended.duration_seconds, ended.started_at) == (0, None)


async def test_an_ended_call_never_changes_again(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        call = _arrive(conn, organization_id)
        at = utc_now()
        ended = calls.finish(conn, call.id, status="failed", ended_reason="error", ended_at=at)
        assert calls.finish(conn, call.id, status="completed", ended_reason="agent_ended", ended_at=at) is None
        assert not calls.mark_answered(conn, call.id, at)
        assert not calls.store_progress(conn, call.id, transcript=TALK, turn_count=1)
        assert calls.get(conn, organization_id, call.id) == ended

    await database.write(check)


async def test_a_call_is_answered_once(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        call = _arrive(conn, organization_id)
        assert calls.mark_answered(conn, call.id, call.created_at)
        assert not calls.mark_answered(conn, call.id, utc_now() + timedelta(hours=1))
        stored = calls.get(conn, organization_id, call.id)
        assert stored is not None
        assert stored.started_at == call.created_at

    await database.write(check)


async def test_calls_of_a_dead_process_end_with_the_stored_progress(database: Database, organization_id: str) -> None:
    def leave(conn: sa.Connection) -> tuple[Call, Call]:
        ringing, talking, over = (_arrive(conn, organization_id) for _ in range(3))
        calls.mark_answered(conn, talking.id, talking.created_at)
        calls.store_progress(conn, talking.id, transcript=TALK, turn_count=1)
        calls.finish(conn, over.id, status="failed", ended_reason="busy", ended_at=utc_now())
        return ringing, talking

    ringing, talking = await database.write(leave)
    recorded_at = talking.created_at + timedelta(seconds=100)

    def last_recorded(call: Call) -> datetime | None:
        return recorded_at if call.id == talking.id else None

    def close(conn: sa.Connection) -> dict[str, Call]:
        end = pending_finalization.end_interrupted_calls
        assert pending_finalization.organizations_of_open_calls(conn) == [organization_id]
        closed = {call.id: call for call in end(conn, organization_id, last_recorded)}
        assert end(conn, organization_id, last_recorded) == []
        return closed

    closed = await database.write(close)
    assert set(closed) == {ringing.id, talking.id}
    assert {call.ended_reason for call in closed.values()} == {"server_restart"}
    first, second = closed[ringing.id], closed[talking.id]
    assert (first.status, first.recorded, first.ended_at) == ("failed", False, first.created_at)
    assert (second.status, second.recorded, second.duration_seconds) == ("completed", True, 100)
    assert (second.transcript, second.turn_count, second.ended_at) == (TALK, 1, recorded_at)


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (CallFilter(), ["c", "b", "a"]),
        (CallFilter(agent_id=AGENT), ["b", "a"]),
        (CallFilter(agent_id=OTHER_AGENT), ["c"]),
        (CallFilter(status="ringing"), ["c", "b"]),
        (CallFilter(status="completed"), ["a"]),
        (CallFilter(status="completed", agent_id=OTHER_AGENT), []),
        (CallFilter(direction="inbound"), ["c", "b", "a"]),
        (CallFilter(direction="outbound"), []),
    ],
)
async def test_a_list_of_calls_is_filtered(
    database: Database, organization_id: str, only: CallFilter, expected: list[str]
) -> None:
    def check(conn: sa.Connection) -> None:
        agents = (("a", AGENT), ("b", AGENT), ("c", OTHER_AGENT))
        ids = {_arrive(conn, organization_id, agent_id=agent).id: name for name, agent in agents}
        first = next(iter(ids))
        calls.mark_answered(conn, first, utc_now())
        calls.finish(conn, first, status="completed", ended_reason="agent_ended", ended_at=utc_now())
        page = call_list.page(conn, organization_id, limit=100, offset=0, call_filter=only)
        assert sorted(ids[item.id] for item in page.items) == sorted(expected)
        assert page.total == len(expected)

    await database.write(check)


async def test_both_ends_of_the_time_filter_are_included(database: Database, organization_id: str) -> None:
    def count(conn: sa.Connection) -> list[int]:
        at, ms = _arrive(conn, organization_id).created_at, timedelta(milliseconds=1)
        bounds = ((at, at), (at + ms, None), (None, at - ms), (at - ms, at + ms))
        filters = [CallFilter(since=since, until=until) for since, until in bounds]
        return [call_list.page(conn, organization_id, limit=1, offset=0, call_filter=only).total for only in filters]

    assert await database.write(count) == [1, 0, 0, 1]


def test_the_path_of_a_recording_has_year_and_month_in_utc(tmp_path: Path) -> None:
    at = datetime.fromisoformat("2026-12-31T23:30:00-02:00")
    assert recordings.path_of(tmp_path, "abc", at) == tmp_path / "recordings/2027/01/abc.wav"


async def test_a_bare_wav_header_is_no_recording(database: Database, organization_id: str, tmp_path: Path) -> None:
    call = await database.write(lambda conn: _arrive(conn, organization_id))
    path = recordings.path_of(tmp_path, call.id, call.created_at)

    def last_written() -> datetime | None:
        return recordings.last_written(tmp_path, call)

    assert await asyncio.to_thread(last_written) is None
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(44))
    assert await asyncio.to_thread(last_written) is None
    path.write_bytes(bytes(48))
    written = await asyncio.to_thread(last_written)
    assert written is not None
    assert abs(written - utc_now()) < timedelta(minutes=1)
