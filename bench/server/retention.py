"""What the removal of old calls costs: how long it takes, and how long writes of a server wait meanwhile.

Each call has a talk of 1.5 kB, a timeline of 5 kB, ten SIP messages of 800 bytes and a webhook of 2 kB that was
delivered. Half of them are older than what is said is kept, a quarter older than calls are kept. The database's own
class writes a hundred times a second beside it, each write the insert of a call as it comes in.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from calls.post_call.retention import Retention
from storage import tables
from storage.accounts import organizations
from storage.calls import calls, sip_traces
from storage.calls.sip_traces import SipTrace
from storage.database.database import Database
from storage.webhooks import deliveries

NOW: Final = datetime(2026, 11, 22, tzinfo=UTC)
DAYS: Final = timedelta(days=100)
WRITES_PER_S: Final = 100
IDLE_S: Final = 10.0
TALK: Final[list[calls.TranscriptItem]] = [{"role": "user", "content": "we would like a berth in May"}] * 25
TIMELINE: Final = [{f"moment_{moment}_ms": 123456 for moment in range(18)}] * 10
SIP: Final[dict[str, Any]] = {"at": "2026-10-01T00:00:00.000Z", "offset_ms": 1, "summary": "INVITE", "text": "x" * 800}
TOGETHER: Final = 2000


def _first(conn: sa.Connection, owner: str) -> None:
    """A call with everything, delivered."""
    call = _arrives(conn, owner)
    sip_traces.store(conn, {call.id: SipTrace([SIP] * 10)})  # type: ignore[list-item]
    calls.finish(
        conn, call.id, status="completed", ended_reason="agent_ended", ended_at=NOW, transcript=TALK, timeline=TIMELINE,
        recording=True,
    )  # fmt: skip
    deliveries.add(
        conn, organization_id=owner, call_id=call.id, url="https://a.test", body=b"x" * 2000, secret_encrypted=None
    )
    conn.execute(sa.update(tables.webhook_deliveries).values(status="succeeded"))
    conn.execute(sa.update(tables.webhook_attempts).values(status="succeeded", next_attempt_at=None))


def _arrives(conn: sa.Connection, owner: str) -> calls.Call:
    return calls.create_inbound(
        conn, organization_id=owner, agent_id=owner, phone_number_id=owner, provider="sip", call_sid="bench",
        customer_number="1",
    )  # fmt: skip


def _multiply(path: Path, many: int) -> None:
    """So many calls like the first, the oldest of them from `DAYS` ago."""
    newest, step_ms = int(NOW.timestamp() * 1000), int(DAYS / timedelta(milliseconds=many))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        rows = {name: dict(connection.execute(f"SELECT * FROM {name}").fetchone()) for name in OF_A_CALL}
        numbers = iter(range(1, many))
        while some := list(islice(numbers, TOGETHER)):
            connection.execute("BEGIN")
            for name, row in rows.items():
                copies = [_copy(row, number, newest - number * step_ms) for number in some]
                places = ", ".join(f":{column}" for column in row)
                connection.executemany(f"INSERT INTO {name}({', '.join(row)}) VALUES ({places})", copies)
            connection.execute("COMMIT")


OF_A_CALL: Final = ("calls", "call_sip", "webhook_deliveries", "webhook_attempts")
IDS: Final = ("id", "call_id", "delivery_id")


def _copy(row: dict[str, Any], number: int, at: int) -> dict[str, Any]:
    ids = {name: f"{row[name][:-12]}{number:012}" for name in IDS if name in row}
    return {**row, **ids, **{name: at for name in ("created_at", "ended_at") if name in row}}


async def _writes(database: Database, owner: str, until: asyncio.Event) -> list[float]:
    """How long each write took, in s; they begin at even times, whatever became of those before."""
    took: list[float] = []

    async def write() -> None:
        began = time.perf_counter()
        await database.write(partial(_arrives, owner=owner))
        took.append(time.perf_counter() - began)

    async with asyncio.TaskGroup() as group:
        while not until.is_set():
            group.create_task(write())
            await asyncio.sleep(1 / WRITES_PER_S)
    return took


async def run(many: int = 100_000) -> list[dict[str, Any]]:
    """A row without any removal, then with it: what is deleted is left where it was, and is overwritten."""
    rows = []
    for way in ("none", "OFF", "ON"):
        with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as folder:
            rows.append(await _measured(Path(folder), many, way))
    return rows


async def _measured(folder: Path, many: int, way: str) -> dict[str, Any]:
    database = Database(f"sqlite+aiosqlite:///{folder}/trunkline.db")
    await database.open()
    try:
        owner = (await database.write(lambda conn: organizations.create(conn, "bench"))).id
        await database.write(partial(_first, owner=owner))
        await asyncio.to_thread(_multiply, database.path, many)
        kept = {"keep_transcripts_days": DAYS.days // 2, "keep_calls_days": DAYS.days * 3 // 4}
        await database.write(lambda conn: conn.execute(sa.update(tables.organizations).values(kept)).close())
        gc.collect()
        gc.freeze()  # as the server does: else a collection that goes through all the code looks like a slow piece
        over = asyncio.Event()
        writing = asyncio.create_task(_writes(database, owner, over))
        removed, began = None, time.perf_counter()
        if way == "none":
            await asyncio.sleep(IDLE_S)
        else:
            await _set_way(database, way)
            removed = await Retention(database, folder).run_once(NOW)
        spent = time.perf_counter() - began
        over.set()
        p50, p99, worst = np.percentile(np.array(await writing) * 1000, (50, 99, 100))
    finally:
        await database.close()
    return {
        "way": way,
        "calls": many,
        "emptied": removed.transcripts if removed else 0,
        "removed": removed.calls if removed else 0,
        "seconds": round(spent, 1),
        "longest_piece_ms": round(removed.longest_s * 1000, 1) if removed else 0,
        "write_ms": f"{p50:.1f} / {p99:.1f} / {worst:.1f}",
    }


async def _set_way(database: Database, way: str) -> None:
    """No transaction may be open then: the writer's thread is asked between two."""
    thread = database._threads[0]
    await thread._on_thread(lambda: thread._connection._conn.execute(f"PRAGMA secure_delete={way}").fetchall())
