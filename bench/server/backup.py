"""Backup: its time and size, and the latency of the server's writes during it.

`Database` writes 100 times per second, like a server on which a hundred calls end per second; `trunkline backup` runs
at the same time as a separate process. The data are calls with a transcript of 4 kB each, some of them with a recording
of 1 MB.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from bench.server.write_load import write_until
from config import secrets
from config.clock import utc_now
from config.settings import Settings
from media.recording import wav_header
from storage.accounts import organizations
from storage.calls import calls, recordings
from storage.database import secret_key
from storage.database.database import Database

IDLE_S: Final = 10.0
RATE: Final = 8000
RECORDING_FRAMES: Final = 262_144
"""1 MB: 33 s of a telephone call."""
TRANSCRIPT: Final[list[calls.TranscriptItem]] = [{"role": "user", "content": "we would like a berth " * 9}] * 20


def _insert_ended_call(conn: sa.Connection, organization_id: str, *, recorded: bool = False) -> calls.Call:
    """Inserts an inbound call and ends it."""
    call = calls.create_inbound(
        conn, organization_id=organization_id, agent_id=organization_id, phone_number_id=organization_id,
        provider="sip", call_sid="bench", customer_number="1",
    )  # fmt: skip
    calls.finish(
        conn, call.id, status="completed", ended_reason="agent_ended", ended_at=utc_now(), transcript=TRANSCRIPT,
        recording=recorded,
    )  # fmt: skip
    return call


async def _fill(settings: Settings, database: Database, call_count: int, recorded_count: int) -> str:
    """Fills the data directory with calls and recordings. Returns the organization's id."""
    key = secrets.load_or_create(settings.secret_key_path)
    await database.write(lambda conn: secret_key.verify(conn, key))
    organization_id = (await database.write(lambda conn: organizations.create(conn, "bench"))).id
    await database.write(
        lambda conn: [_insert_ended_call(conn, organization_id) for _ in range(call_count - recorded_count)]
    )
    recorded = await database.write(
        lambda conn: [_insert_ended_call(conn, organization_id, recorded=True) for _ in range(recorded_count)]
    )
    await asyncio.to_thread(_write_recordings, settings.data_dir, recorded)
    return organization_id


def _write_recordings(data_dir: Path, recorded: list[calls.Call]) -> None:
    """Writes a recording of quiet noise for each call, each different."""
    rng = np.random.default_rng(7)
    for call in recorded:
        path = recordings.path_of(data_dir, call.id, call.created_at)
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = rng.normal(0, 300, 2 * RECORDING_FRAMES).astype("<i2")
        path.write_bytes(wav_header(RATE, RECORDING_FRAMES) + noise.tobytes())
    os.sync()


async def _run_command(*arguments: str | Path, data_dir: Path) -> float:
    """Runs a `trunkline` command. Returns its duration, s."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "trunkline", *arguments, stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "TRUNKLINE_DATA_DIR": str(data_dir)},
    )  # fmt: skip
    if await process.wait():
        raise RuntimeError(f"{arguments} failed")
    return time.perf_counter() - began


async def run(call_count: int = 100_000, recorded_count: int = 1000, idle_s: float = IDLE_S) -> list[dict[str, Any]]:
    """Returns three rows: no backup for `idle_s`, a plain backup, a compressed backup."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as folder:
        settings = Settings(data_dir=Path(folder) / "data")
        await asyncio.to_thread(settings.data_dir.mkdir)
        database = Database(settings.database_url)
        await database.open()
        try:
            organization_id = await _fill(settings, database, call_count, recorded_count)
            for kind, name in (("none", None), ("plain", "backup.tar"), ("compressed", "backup.tar.gz")):
                stop = asyncio.Event()
                write = partial(_insert_ended_call, organization_id=organization_id)
                writing = asyncio.create_task(write_until(stop, database, write))
                archive = None if name is None else Path(folder) / name
                backup_s = None
                if archive is None:
                    await asyncio.sleep(idle_s)
                else:
                    backup_s = await _run_command("backup", archive, data_dir=settings.data_dir)
                stop.set()
                row = _row(kind, await writing, backup_s, archive, database.path)
                if archive is not None:
                    restored_dir = Path(folder) / f"restored-{kind}"
                    row["restored_s"] = round(await _run_command("restore", archive, data_dir=restored_dir), 1)
                rows.append(row)
        finally:
            await database.close()
    return rows


def _row(
    kind: str, latencies_s: list[float], backup_s: float | None, archive: Path | None, database: Path
) -> dict[str, Any]:
    p50, p99, longest = (round(float(value) * 1000, 1) for value in np.percentile(latencies_s, (50, 99, 100)))
    return {
        "backup": kind,
        "database_mb": round(database.stat().st_size / 1e6),
        "size_mb": None if archive is None else round(archive.stat().st_size / 1e6),
        "s": None if backup_s is None else round(backup_s, 1),
        "writes": len(latencies_s),
        "write_ms": [p50, p99, longest],
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(*map(int, sys.argv[1:]))), indent=1))
