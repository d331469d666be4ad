"""Statistics of calls: the duration of `GET /v1/statistics` and of the lists behind its figures in a database of many
calls, the same sums straight from the calls, and the cost of the triggers: `python -m bench.server.statistics [CALLS]`.

The calls are spread evenly over 90 days, 5 agents, 10 numbers and both directions; each has three turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sqlite3
import statistics as measured
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final
from uuid import uuid4
from zoneinfo import ZoneInfo

import sqlalchemy as sa

from storage.accounts import organizations
from storage.calls import call_list, calls, deletion, statistics
from storage.calls.call_list import CallFilter
from storage.database.database import Database
from storage.tables.columns import EPOCH

DAYS: Final = 90
NOW: Final = datetime(2026, 11, 22, tzinfo=UTC)
BERLIN: Final = ZoneInfo("Europe/Berlin")
ROWS_PER_TRANSACTION: Final = 5000
REPEATS: Final = 7
COLUMNS: Final = (
    "id, organization_id, agent_id, phone_number_id, provider, direction, status, customer_number, duration_seconds, "
    "cost, recorded, turn_count, transcript, timeline, ended_reason, context_variables, metadata, started_at, "
    "ended_at, created_at, updated_at, interruptions, response_gaps, longest_gap_ms"
)
REASONS: Final = ("customer_ended", "agent_ended", "no_answer", "busy", "error")
STRAIGHT: Final = (
    "SELECT created_at / 86400000, direction, status, ended_reason, count(*), sum(duration_seconds), sum(cost), "
    "sum(turn_count), sum(interruptions) FROM calls WHERE organization_id = ? AND created_at >= ? AND ended_at IS NOT "
    "NULL AND NOT test GROUP BY 1, 2, 3, 4",
    "SELECT created_at / 86400000, gap.value / 25, count(*) FROM calls, json_each(calls.response_gaps) AS gap WHERE "
    "organization_id = ? AND created_at >= ? AND NOT test GROUP BY 1, 2",
)
TRIGGERS: Final = ("statistics_inserted", "statistics_ended", "statistics_removed")
Row = dict[str, Any]


def _turn(number: int, gap_ms: int, interrupted: bool) -> dict[str, Any]:
    moments = {f"moment_{each}_ms": 20_000 * number + each for each in range(9)}
    return {"turn": number, **moments, "response_gap_ms": gap_ms, "interrupted": interrupted, "tools": []}


def _rows(organization_id: str, call_count: int) -> Iterator[tuple[Any, ...]]:
    chance = random.Random(1)
    agents, numbers = ([str(uuid4()) for _ in range(count)] for count in (5, 10))
    words = json.dumps([{"role": "user", "content": "We would like a berth in May, for a week."}] * 6)
    end_ms = (NOW - EPOCH) // timedelta(milliseconds=1)
    for number in range(call_count):
        at = end_ms - DAYS * 86_400_000 + number * DAYS * 86_400_000 // call_count
        gaps = [round(chance.lognormvariate(6.6, 0.5)) for _ in range(3)]
        broken = [chance.random() < 0.1 for _ in gaps]
        turns = json.dumps([_turn(*each) for each in zip((1, 2, 3), gaps, broken, strict=True)])
        status = chance.choices(("completed", "no_answer", "failed"), (8, 1, 1))[0]
        yield (
            f"00000000-0000-4000-8000-{number:012}", organization_id, chance.choice(agents), chance.choice(numbers),
            "sip", chance.choice(("inbound", "outbound")), status, "+4930123456", chance.randrange(300), 0.0125, 0, 3,
            words, turns, chance.choice(REASONS), "{}", "{}", at, at + 60_000, at, at + 60_000, sum(broken),
            json.dumps(gaps), max(gaps),
        )  # fmt: skip


def _fill(path: Path, organization_id: str, call_count: int) -> None:
    marks = ", ".join("?" * len(COLUMNS.split(",")))
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("PRAGMA synchronous=OFF")
        rows = _rows(organization_id, call_count)
        while batch := list(islice(rows, ROWS_PER_TRANSACTION)):
            conn.execute("BEGIN")
            conn.executemany(f"INSERT INTO calls({COLUMNS}) VALUES ({marks})", batch)
            conn.execute("COMMIT")


def _timed(what: str, work: Callable[[], Any], repeats: int = REPEATS) -> Row:
    took = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        took.append(1000 * (time.perf_counter() - begun))
    return {"what": what, "first_ms": round(took[0], 1), "p50_ms": round(measured.median(took), 1)}


def _reads(conn: sa.Connection, owner: str) -> Iterator[Row]:
    agent = conn.execute(sa.text("SELECT agent_id FROM calls LIMIT 1")).scalar_one()
    for what, days, interval, agent_id in (
        ("1 day by hours", 1, "hour", None),
        ("30 days by days", 30, "day", None),
        ("30 days by days, one agent", 30, "day", agent),
        ("40 days by hours", 40, "hour", None),
        ("90 days by days", 90, "day", None),
    ):
        begin = NOW - timedelta(days=days)

        def read(begin: datetime = begin, interval: Any = interval, agent_id: str | None = agent_id) -> None:
            found = statistics.read(
                conn, owner, since=begin, until=NOW, interval=interval, zone=BERLIN, agent_id=agent_id
            )  # fmt: skip
            total = statistics.total(found)
            statistics.percentile(total.gaps, 0.95)

        yield _timed(what, read)


def _lists(conn: sa.Connection, owner: str) -> Iterator[Row]:
    for what, days, only in (
        ("list of 1 day", 1, {}),
        ("list of 30 days", 30, {}),
        ("list of 30 days, failed", 30, {"status": "failed"}),
        ("list of 30 days, interrupted", 30, {"interrupted": True}),
        ("list of 90 days, ended, no test calls", 90, {}),
    ):
        chosen = CallFilter(since=NOW - timedelta(days=days), until=NOW, ended=True, test=False, **only)

        def read(chosen: CallFilter = chosen) -> None:
            call_list.page(conn, owner, limit=50, offset=0, call_filter=chosen)

        yield _timed(what, read)


def _straight(path: Path, owner: str) -> Iterator[Row]:
    with closing(sqlite3.connect(path)) as conn:
        for days in (1, 30, 90):
            since = (NOW - timedelta(days=days) - EPOCH) // timedelta(milliseconds=1)

            def read(since: int = since) -> None:
                for statement in STRAIGHT:
                    conn.execute(statement, (owner, since)).fetchall()

            yield _timed(f"straight from the calls, {days} days", read, repeats=3)


def _writes(conn: sa.Connection, owner: str, what: str, count: int = 300) -> Row:
    """The time of the end and of the deletion of calls, ms each."""
    timeline = [_turn(number, 400 + 100 * number, False) for number in range(8)]
    ids = []
    for _ in range(count):
        call = calls.create_inbound(
            conn, organization_id=owner, agent_id=owner, phone_number_id=owner, provider="sip", call_sid="x",
            customer_number="1",
        )  # fmt: skip
        ids.append(call.id)
    begun = time.perf_counter()
    for each in ids:
        calls.finish(
            conn, each, status="completed", ended_reason="busy", ended_at=NOW, timeline=timeline, turn_count=8
        )  # fmt: skip
    ended = time.perf_counter()
    for each in ids:
        deletion.delete_call(conn, owner, each)
    gone = time.perf_counter()
    return {
        "what": what,
        "end_ms": round(1000 * (ended - begun) / count, 3),
        "delete_ms": round(1000 * (gone - ended) / count, 3),
    }


async def run(call_count: int = 1_000_000) -> list[Row]:
    """Returns a row for each measurement."""
    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as folder:
        path = Path(folder, "trunkline.db")
        database = Database(f"sqlite+aiosqlite:///{path}")
        await database.open()
        try:
            owner = (await database.write(lambda conn: organizations.create(conn, "bench"))).id
            await asyncio.to_thread(_fill, path, owner, call_count)
            sums = await database.read(lambda conn: conn.execute(sa.text("SELECT count(*) FROM statistics")).scalar())
            size = (await asyncio.to_thread(path.stat)).st_size
            rows: list[Row] = [{"what": f"{call_count} calls", "bytes": size, "sums": sums}]
            rows += await database.read(lambda conn: [*_reads(conn, owner), *_lists(conn, owner)])
            rows += await asyncio.to_thread(lambda: list(_straight(path, owner)))
            rows.append(await database.write(lambda conn: _writes(conn, owner, "with triggers")))
            await database.write(lambda conn: [conn.exec_driver_sql(f"DROP TRIGGER {each}") for each in TRIGGERS])
            rows.append(await database.write(lambda conn: _writes(conn, owner, "without")))
            return rows
        finally:
            await database.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calls", nargs="?", type=int, default=1_000_000)
    for row in asyncio.run(run(parser.parse_args().calls)):
        print(json.dumps(row))
