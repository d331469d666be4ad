"""Retention: the duration of the removal of old calls, and the latency of the server's writes during it.

Each call has a transcript of 1.5 kB, a timeline of 5 kB, ten SIP messages of 800 bytes and a delivered webhook of 2 kB.
Half of the calls are older than the retention of transcripts, a quarter older than that of calls. `Database` writes 100
times per second at the same time; each write inserts an inbound call.
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

from bench.server.write_load import write_until
from calls.post_call.retention_worker import RetentionWorker
from storage import tables
from storage.accounts import organizations
from storage.calls import calls, sip_traces
from storage.calls.sip_traces import SipTrace
from storage.database.database import Database
from storage.database.sqlite.engine import SqliteEngine
from storage.webhooks import deliveries

NOW: Final = datetime(2026, 11, 22, tzinfo=UTC)
DAYS: Final = timedelta(days=100)
IDLE_S: Final = 10.0
TRANSCRIPT: Final[list[calls.TranscriptItem]] = [{"role": "user", "content": "we would like a berth in May"}] * 25
TIMELINE: Final = [{f"moment_{moment}_ms": 123456 for moment in range(18)}] * 10
SIP_MESSAGE: Final[dict[str, Any]] = {
    "at": "2026-10-01T00:00:00.000Z",
    "offset_ms": 1,
    "summary": "INVITE",
    "text": "x" * 800,
}
ROWS_PER_TRANSACTION: Final = 2000
CALL_TABLES: Final = ("calls", "call_sip", "webhook_deliveries", "webhook_attempts")
ID_COLUMNS: Final = ("id", "call_id", "delivery_id")


def _insert_ended_call(conn: sa.Connection, organization_id: str) -> None:
    """Inserts an ended call with transcript, timeline, SIP trace and a delivered webhook."""
    call = _insert_call(conn, organization_id)
    sip_traces.store(conn, {call.id: SipTrace([SIP_MESSAGE] * 10)})  # type: ignore[list-item]
    calls.finish(
        conn, call.id, status="completed", ended_reason="agent_ended", ended_at=NOW, transcript=TRANSCRIPT,
        timeline=TIMELINE, recording=True,
    )  # fmt: skip
    deliveries.add(
        conn, organization_id=organization_id, call_id=call.id, url="https://a.test", body=b"x" * 2000,
        secret_encrypted=None,
    )  # fmt: skip
    conn.execute(sa.update(tables.webhook_deliveries).values(status="succeeded"))
    conn.execute(sa.update(tables.webhook_attempts).values(status="succeeded", next_attempt_at=None))


def _insert_call(conn: sa.Connection, organization_id: str) -> calls.Call:
    return calls.create_inbound(
        conn, organization_id=organization_id, agent_id=organization_id, phone_number_id=organization_id,
        provider="sip", call_sid="bench", customer_number="1",
    )  # fmt: skip


def _multiply_call(path: Path, call_count: int) -> None:
    """Copies the only call until there are `call_count`, spread evenly over the last `DAYS`."""
    newest, step_ms = int(NOW.timestamp() * 1000), int(DAYS / timedelta(milliseconds=call_count))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.row_factory = sqlite3.Row
        rows = {name: dict(connection.execute(f"SELECT * FROM {name}").fetchone()) for name in CALL_TABLES}
        numbers = iter(range(1, call_count))
        while batch := list(islice(numbers, ROWS_PER_TRANSACTION)):
            connection.execute("BEGIN")
            for name, row in rows.items():
                copies = [_copy(row, number, newest - number * step_ms) for number in batch]
                placeholders = ", ".join(f":{column}" for column in row)
                connection.executemany(f"INSERT INTO {name}({', '.join(row)}) VALUES ({placeholders})", copies)
            connection.execute("COMMIT")


def _copy(row: dict[str, Any], number: int, at_ms: int) -> dict[str, Any]:
    ids: dict[str, str] = {name: f"{row[name][:-12]}{number:012}" for name in ID_COLUMNS if name in row}
    return {**row, **ids, **{name: at_ms for name in ("created_at", "ended_at") if name in row}}


async def run(call_count: int = 100_000, idle_s: float = IDLE_S) -> list[dict[str, Any]]:
    """Returns three rows: no removal for `idle_s`, removal without and with overwriting of the deleted content."""
    rows = []
    for secure_delete in ("none", "OFF", "ON"):
        with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as folder:
            rows.append(await _measure(Path(folder), call_count, secure_delete, idle_s))
    return rows


async def _measure(folder: Path, call_count: int, secure_delete: str, idle_s: float) -> dict[str, Any]:
    database = Database(f"sqlite+aiosqlite:///{folder}/trunkline.db")
    await database.open()
    try:
        organization_id = (await database.write(lambda conn: organizations.create(conn, "bench"))).id
        await database.write(partial(_insert_ended_call, organization_id=organization_id))
        await asyncio.to_thread(_multiply_call, database.path, call_count)
        retention = {"keep_transcripts_days": DAYS.days // 2, "keep_calls_days": DAYS.days * 3 // 4}
        await database.write(lambda conn: conn.execute(sa.update(tables.organizations).values(retention)).close())
        gc.collect()
        gc.freeze()  # as the server does: else a garbage collection of all objects looks like a slow batch
        stop = asyncio.Event()
        write = partial(_insert_call, organization_id=organization_id)
        writing = asyncio.create_task(write_until(stop, database, write))
        removed, began = None, time.perf_counter()
        if secure_delete == "none":
            await asyncio.sleep(idle_s)
        else:
            await _set_secure_delete(database, secure_delete)
            removed = await RetentionWorker(database, folder).run_once(NOW)
        elapsed_s = time.perf_counter() - began
        stop.set()
        p50, p99, longest = np.percentile(np.array(await writing) * 1000, (50, 99, 100))
    finally:
        await database.close()
    return {
        "secure_delete": secure_delete,
        "calls": call_count,
        "transcripts_removed": removed.transcripts if removed else 0,
        "calls_removed": removed.calls if removed else 0,
        "seconds": round(elapsed_s, 1),
        "longest_batch_ms": round(removed.longest_s * 1000, 1) if removed else 0,
        "write_ms": f"{p50:.1f} / {p99:.1f} / {longest:.1f}",
    }


async def _set_secure_delete(database: Database, value: str) -> None:
    """Sets the pragma on the writer's thread, because no transaction may be open."""
    assert isinstance(database._engine, SqliteEngine)
    thread = database._engine._threads[0]
    await thread._on_thread(lambda: thread._connection._conn.execute(f"PRAGMA secure_delete={value}").fetchall())
