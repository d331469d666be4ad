"""GET /statistics: its periods, its parameters."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa

from config.clock import iso
from storage.calls import calls
from tests.api.conftest import Api

EMPTY = {
    "calls": 0, "inbound": 0, "outbound": 0, "completed": 0, "failed": 0, "noAnswer": 0, "durationSeconds": 0,
    "cost": 0.0, "turns": 0, "interruptions": 0, "callsWithInterruptions": 0,
    "responseGap": {"turns": 0, "p50Ms": None, "p95Ms": None}, "endedReasons": [],
}  # fmt: skip


async def _ended(api: Api, gaps_ms: list[int], **changes: Any) -> calls.Call:
    def store(conn: sa.Connection) -> calls.Call | None:
        facts: dict[str, Any] = {"agent_id": "a", "phone_number_id": "n", "provider": "sip", "customer_number": "1"}
        new = calls.new_inbound(organization_id=api.organization_id, call_sid="x", **facts)
        call = replace(new, **changes)
        calls.insert(conn, call)
        timeline = [
            {"turn": at, "response_gap_ms": gap, "interrupted": gap > 1000} for at, gap in enumerate(gaps_ms, 1)
        ]
        return calls.finish(
            conn, call.id, status="completed", ended_reason="agent_ended", answered_at=call.created_at,
            ended_at=call.created_at + timedelta(seconds=30), timeline=timeline, turn_count=len(gaps_ms), cost=0.25,
        )  # fmt: skip

    ended = await api.services.database.write(store)
    assert ended is not None
    return ended


async def test_statistics_have_the_sums_of_the_periods_calls(api: Api) -> None:
    call = await _ended(api, [400, 1500])
    await _ended(api, [410, 420, 430])
    await _ended(api, [9000], test=True)
    status, answer = await api("GET", "/statistics?interval=hour&timeZone=Asia/Kolkata")
    data = answer["data"]
    assert (status, data["interval"], data["timeZone"]) == (200, "hour", "Asia/Kolkata")
    assert data["totals"] == EMPTY | {
        "calls": 2, "inbound": 2, "completed": 2, "durationSeconds": 60, "cost": 0.5, "turns": 5, "interruptions": 1,
        "callsWithInterruptions": 1, "responseGap": {"turns": 5, "p50Ms": 421, "p95Ms": 1575},
        "endedReasons": [{"endedReason": "agent_ended", "calls": 2}],
    }  # fmt: skip
    full = [each for each in data["periods"] if each["calls"]]
    assert len(data["periods"]) == 25 and len(full) == 1
    assert full[0]["start"] <= iso(call.created_at) < full[0]["end"]
    assert full[0]["start"][14:16] == "30", "hours of this zone begin at half past an hour of UTC"
    _, listed = await api("GET", f"/calls?from={full[0]['start']}&to={full[0]['end']}&ended=true&test=false")
    assert listed["pagination"]["total"] == 2


async def test_without_calls_every_period_is_empty(api: Api) -> None:
    until = datetime(2026, 11, 1, tzinfo=UTC)
    status, answer = await api("GET", f"/statistics?until={iso(until)}")
    data = answer["data"]
    assert (status, data["from"], data["until"]) == (200, iso(until - timedelta(days=30)), iso(until))
    assert data["totals"] == EMPTY
    assert len(data["periods"]) == 30
    last = {"start": iso(until - timedelta(days=1)), "end": iso(until)}
    assert data["periods"][-1] == EMPTY | last


async def test_times_are_rounded_outwards_to_quarters_of_an_hour(api: Api) -> None:
    _, answer = await api("GET", "/statistics?from=2026-11-21T05:16:01Z&until=2026-11-21T06:30:00.001Z&interval=hour")
    assert [each["start"][11:16] for each in answer["data"]["periods"]] == ["05:15", "06:00"]
    assert answer["data"]["until"] == "2026-11-21T06:45:00.000Z"


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("from=2026-11-21&until=2026-11-21", "until"),
        ("from=2026-11-22&until=2026-11-21", "until"),
        ("from=1969-11-21&until=2026-11-21", "from"),
        ("until=9999-12-31T23:59:59Z", "until"),
        ("from=2026-01-01&until=2026-11-21&interval=hour", "interval"),
        ("from=2020-01-01&until=2026-11-21", "interval"),
        ("interval=week", "interval"),
        ("timeZone=Europe/Atlantis", "timeZone"),
        ("timeZone=Europe", "timeZone"),
        ("timeZone=../../etc/passwd", "timeZone"),
        ("timeZone=/etc/localtime", "timeZone"),
        ("agentId=x", "agentId"),
        ("phoneNumberId=x", "phoneNumberId"),
        ("from=yesterday", "from"),
    ],
)
async def test_a_wrong_parameter_is_named(api: Api, query: str, name: str) -> None:
    status, answer = await api("GET", f"/statistics?{quote(query, safe='=&')}")
    assert status == 400
    assert [each["field"] for each in answer["details"]] == [name]
