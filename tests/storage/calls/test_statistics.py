"""Statistics of ended calls: sums that triggers keep, against sums over the calls themselves."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise, product
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from storage import tables
from storage.accounts import organizations
from storage.calls import call_list, calls, deletion, statistics
from storage.calls.call_list import CallFilter
from storage.calls.calls import Call
from storage.calls.statistics import QUARTER, Interval, Period
from storage.database.database import Database

AGENTS: Final = ("3f0c1a52-7a57-4d7c-8f0e-00000000000a", "3f0c1a52-7a57-4d7c-8f0e-00000000000b", None)
NUMBERS: Final = ("3f0c1a52-7a57-4d7c-8f0e-000000000001", "3f0c1a52-7a57-4d7c-8f0e-000000000002")
ZONES: Final = ("UTC", "Europe/Berlin", "Asia/Kathmandu", "America/New_York", "Australia/Lord_Howe")
INTERVALS: Final[tuple[Interval, ...]] = ("hour", "day")
BERLIN: Final = ZoneInfo("Europe/Berlin")
CLOCKS_FORWARD: Final = datetime(2026, 3, 29, 1, tzinfo=UTC)
SINCE: Final = CLOCKS_FORWARD - timedelta(days=2)
UNTIL: Final = CLOCKS_FORWARD + timedelta(days=2)


def _turn(gap_ms: int | None, interrupted: bool) -> dict[str, Any]:
    return {"turn": 1, "response_gap_ms": gap_ms, "interrupted": interrupted}


def _store(conn: sa.Connection, organization_id: str, chance: random.Random, **given: Any) -> None:
    """Store a call with a random end, or one that has not ended."""
    call = calls.new_inbound(
        organization_id=organization_id, agent_id="", phone_number_id=chance.choice(NUMBERS), provider="sip",
        call_sid="x", customer_number="1",
    )  # fmt: skip
    at = SINCE + timedelta(seconds=chance.randrange(int((UNTIL - SINCE).total_seconds())))
    fields = {"agent_id": chance.choice(AGENTS), "direction": chance.choice(("inbound", "outbound")), **given}
    call = replace(call, created_at=at, **fields)
    calls.insert(conn, call)
    if chance.random() < 0.1:
        return
    turns = [
        _turn(chance.choice((None, chance.randrange(-50, 8000))), chance.random() < 0.2)
        for _ in range(chance.randrange(4))
    ]
    calls.finish(
        conn, call.id, status=chance.choice(("completed", "failed", "no_answer")),
        ended_reason=chance.choice(("customer_ended", "busy", "error")), answered_at=at,
        ended_at=at + timedelta(seconds=chance.randrange(100)), timeline=[*turns, {"answer": "human"}],
        turn_count=len(turns), cost=chance.choice((None, 0.017)),
    )  # fmt: skip


def _expected(listed: Sequence[Any], periods: Sequence[Period]) -> list[tuple[Counter[str], Counter[str]]]:
    """Each period's sums, by going through the calls."""
    found = []
    for period in periods:
        amounts: Counter[str] = Counter()
        directions: Counter[str] = Counter()
        for call in listed:
            if call.ended_at is None or not period.start <= call.created_at < period.end:
                continue
            directions[call.direction] += 1
            amounts.update({"calls": 1, f"status.{call.status}": 1, f"ended.{call.ended_reason}": 1})
            amounts.update({"durationSeconds": call.duration_seconds, "turns": call.turn_count})
            amounts.update({"costMillionths": round((call.cost or 0) * 1_000_000)})
            amounts.update({"interruptions": call.interruptions, "interruptedCalls": int(call.interruptions > 0)})
            for gap in call.response_gaps:
                width = 25 if gap < 1000 else 100 if gap < 5000 else 1000
                amounts[f"gap.{gap // width * width}"] += 1
        found.append((+amounts, directions))
    return found


@pytest.fixture
async def stored(database: Database, organization_id: str) -> Database:
    """A database with random calls of two organizations."""

    def fill(conn: sa.Connection) -> None:
        chance = random.Random(7)
        other = organizations.create(conn, "other").id
        for _ in range(300):
            _store(conn, organization_id, chance)
        for _ in range(20):
            _store(conn, other, chance)
            _store(conn, organization_id, chance, test=True)

    await database.write(fill)
    return database


async def test_every_period_has_the_sums_of_its_calls(stored: Database, organization_id: str) -> None:
    since, until = SINCE + 3 * QUARTER, UNTIL - 5 * QUARTER

    def check(
        conn: sa.Connection, zone: str, interval: Interval, phone_number_id: str | None, agent_id: str | None
    ) -> None:
        periods = statistics.read(
            conn, organization_id, since=since, until=until, interval=interval, zone=ZoneInfo(zone),
            agent_id=agent_id, phone_number_id=phone_number_id,
        )  # fmt: skip
        t = tables.calls
        query = sa.select(t).where(t.c.organization_id == organization_id, ~t.c.test)
        for name, value in (("agent_id", agent_id), ("phone_number_id", phone_number_id)):
            query = query if value is None else query.where(t.c[name] == value)
        expected = _expected(conn.execute(query).all(), periods)
        asked = (zone, interval, phone_number_id, agent_id)
        assert [(+each.figures.amounts, each.figures.directions) for each in periods] == expected, asked
        assert sum(amounts["calls"] for amounts, _ in expected) > 20, asked
        assert (periods[0].start, periods[-1].end) == (since, until), asked
        assert all(before.end == after.start for before, after in pairwise(periods)), asked

    def check_all(conn: sa.Connection) -> None:
        for asked in product(ZONES, INTERVALS, (None, NUMBERS[0]), (None, AGENTS[0])):
            check(conn, *asked)

    await stored.read(check_all)


async def test_a_day_of_a_zone_has_the_hours_between_its_midnights(database: Database, organization_id: str) -> None:
    def read(conn: sa.Connection) -> list[Period]:
        return statistics.read(
            conn, organization_id, since=SINCE, until=UNTIL, interval="day", zone=BERLIN
        )  # fmt: skip

    periods = await database.read(read)
    lengths = [(each.end - each.start) / timedelta(hours=1) for each in periods]
    assert lengths == [22, 24, 23, 24, 3]
    assert [each.start.astimezone(BERLIN).hour for each in periods[1:]] == [0, 0, 0, 0]


async def test_deleted_calls_count_no_more(stored: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        before = _total(conn, organization_id)
        page = call_list.page(conn, organization_id, limit=40, offset=0, call_filter=CallFilter(ended=True, test=False))
        for each in page.items:
            deletion.delete_call(conn, organization_id, each.id)
        after = _total(conn, organization_id)
        assert after["calls"] == before["calls"] - 40
        while deletion.delete_calls_of(conn, organization_id, 100):
            continue
        assert _total(conn, organization_id) == Counter()
        mine = sa.select(tables.statistics_scopes.c.id).where(
            tables.statistics_scopes.c.organization_id == organization_id
        )
        assert conn.execute(sa.select(sa.func.count()).where(tables.statistics.c.scope_id.in_(mine))).scalar_one() == 0

    await stored.write(check)


async def test_figures_outlive_the_timeline(stored: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        before = _total(conn, organization_id)
        assert deletion.delete_transcripts(conn, organization_id, UNTIL + timedelta(days=9), 1000) > 200
        assert _total(conn, organization_id) == before
        while deletion.delete_calls_of(conn, organization_id, 100):
            continue
        assert _total(conn, organization_id) == Counter()

    await stored.write(check)


def _total(conn: sa.Connection, organization_id: str) -> Counter[str]:
    periods = statistics.read(
        conn, organization_id, since=SINCE, until=UNTIL, interval="day", zone=ZoneInfo("UTC")
    )  # fmt: skip
    return +statistics.total(periods).amounts


async def test_the_list_has_the_calls_behind_a_figure(stored: Database, organization_id: str) -> None:
    figures = {
        "calls": CallFilter(),
        "status.failed": CallFilter(status="failed"),
        "ended.busy": CallFilter(ended_reason="busy"),
        "interruptedCalls": CallFilter(interrupted=True),
    }

    def check(conn: sa.Connection) -> None:
        for figure, only in figures.items():
            only = replace(only, ended=True, test=False, since=SINCE, until=UNTIL - timedelta(milliseconds=1))
            page = call_list.page(conn, organization_id, limit=1, offset=0, call_filter=only)
            assert page.total == _total(conn, organization_id)[figure] > 20, figure

    await stored.read(check)


async def test_the_list_has_the_calls_with_a_long_response_gap(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        ended: list[Call | None] = []
        for gaps in ([300, 1500], [200], []):
            call = calls.new_inbound(
                organization_id=organization_id, agent_id="a", phone_number_id="n", provider="sip", call_sid="x",
                customer_number="1",
            )  # fmt: skip
            calls.insert(conn, call)
            timeline = [_turn(gap, False) for gap in gaps]
            ended.append(
                calls.finish(
                    conn, call.id, status="completed", ended_reason="busy", ended_at=SINCE, timeline=timeline
                )
            )  # fmt: skip
        for least, found in ((1500, 1), (1501, 0), (200, 2), (0, 2)):
            only = CallFilter(min_response_gap_ms=least)
            assert call_list.page(conn, organization_id, limit=9, offset=0, call_filter=only).total == found

    await database.write(check)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95])
def test_a_percentile_is_off_by_less_than_the_width_of_its_bin(share: float) -> None:
    chance = random.Random(3)
    gaps = sorted(round(chance.lognormvariate(6.6, 0.6)) for _ in range(5000))
    bins = Counter(gap // w * w for gap in gaps for w in [25 if gap < 1000 else 100 if gap < 5000 else 1000])
    exact = gaps[round(share * len(gaps))]
    found = statistics.percentile(dict(sorted(bins.items())), share)
    assert found is not None
    assert abs(found - exact) < (25 if exact < 1000 else 100)


def test_a_percentile_of_nothing_is_none() -> None:
    assert statistics.percentile({}, 0.5) is None
