"""What a backup costs: its time and size, and how long writes of a server wait while it is made.

The database's own class writes 100 times a second, as a server does that ends a hundred calls; `trunkline backup` runs
beside it as a process of its own. Its data: calls with a talk of 4 kB each, and a recording of a megabyte for a part of
them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from config import secrets
from config.clock import utc_now
from config.settings import Settings
from media.recording import wav_header
from storage.accounts import organizations
from storage.calls import calls, recordings
from storage.database import secret_key
from storage.database.database import Database

WRITES_PER_S: Final = 100
IDLE_S: Final = 10.0
RATE: Final = 8000
RECORDING_FRAMES: Final = 262_144
"""A megabyte: 33 s of a telephone call."""
TALK: Final[list[calls.TranscriptItem]] = [{"role": "user", "content": "we would like a berth " * 9}] * 20


def _call(conn: sa.Connection, owner: str, *, recorded: bool = False) -> calls.Call:
    """A call from its arrival to its end."""
    call = calls.create_inbound(
        conn, organization_id=owner, agent_id=owner, phone_number_id=owner, provider="sip", call_sid="bench",
        customer_number="1",
    )  # fmt: skip
    calls.finish(
        conn, call.id, status="completed", ended_reason="agent_ended", ended_at=utc_now(), transcript=TALK,
        recording=recorded,
    )  # fmt: skip
    return call


async def _furnish(settings: Settings, database: Database, many: int, recorded: int) -> str:
    """Fill the data directory; the organization's id."""
    key = secrets.load_or_create(settings.secret_key_path)
    await database.write(lambda conn: secret_key.verify(conn, key))
    owner = (await database.write(lambda conn: organizations.create(conn, "bench"))).id
    await database.write(lambda conn: [_call(conn, owner) for _ in range(many - recorded)])
    heard = await database.write(lambda conn: [_call(conn, owner, recorded=True) for _ in range(recorded)])
    await asyncio.to_thread(_record, settings.data_dir, heard)
    return owner


def _record(data_dir: Path, heard: list[calls.Call]) -> None:
    """Recordings of a soft noise, each its own."""
    dice = np.random.default_rng(7)
    for call in heard:
        path = recordings.path_of(data_dir, call.id, call.created_at)
        path.parent.mkdir(parents=True, exist_ok=True)
        sound = dice.normal(0, 300, 2 * RECORDING_FRAMES).astype("<i2")
        path.write_bytes(wav_header(RATE, RECORDING_FRAMES) + sound.tobytes())
    os.sync()


async def _writes(database: Database, owner: str, until: asyncio.Event) -> list[float]:
    """How long each write took, in s; they begin at even times, whatever became of those before."""
    took: list[float] = []

    async def write() -> None:
        began = time.perf_counter()
        await database.write(lambda conn: _call(conn, owner))
        took.append(time.perf_counter() - began)

    async with asyncio.TaskGroup() as group:
        while not until.is_set():
            group.create_task(write())
            await asyncio.sleep(1 / WRITES_PER_S)
    return took


async def _command(*arguments: str | Path, data_dir: Path) -> float:
    """Run a command of ours; its time in s."""
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "trunkline.cli.main", *arguments, stderr=asyncio.subprocess.DEVNULL,
        env={**os.environ, "TRUNKLINE_DATA_DIR": str(data_dir)},
    )  # fmt: skip
    if await process.wait():
        raise RuntimeError(f"{arguments} failed")
    return time.perf_counter() - began


async def run(many: int = 100_000, recorded: int = 1000) -> list[dict[str, Any]]:
    """A row without a backup, one with, one with a compressed one."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as folder:
        settings = Settings(data_dir=Path(folder) / "data")
        await asyncio.to_thread(settings.data_dir.mkdir)
        database = Database(settings.database_url)
        await database.open()
        try:
            owner = await _furnish(settings, database, many, recorded)
            for what, name in (("none", None), ("plain", "backup.tar"), ("compressed", "backup.tar.gz")):
                over = asyncio.Event()
                writing = asyncio.create_task(_writes(database, owner, over))
                target = None if name is None else Path(folder) / name
                spent = None
                if target is None:
                    await asyncio.sleep(IDLE_S)
                else:
                    spent = await _command("backup", target, data_dir=settings.data_dir)
                over.set()
                row = _row(what, await writing, spent, target, database.path)
                if target is not None:
                    there = Path(folder) / f"restored-{what}"
                    row["restored_s"] = round(await _command("restore", target, data_dir=there), 1)
                rows.append(row)
        finally:
            await database.close()
    return rows


def _row(what: str, took: list[float], spent: float | None, target: Path | None, database: Path) -> dict[str, Any]:
    p50, p99, most = (round(float(value) * 1000, 1) for value in np.percentile(took, (50, 99, 100)))
    size = None if target is None else round(target.stat().st_size / 1e6)
    return {
        "backup": what,
        "database_mb": round(database.stat().st_size / 1e6),
        "size_mb": size,
        "s": None if spent is None else round(spent, 1),
        "writes": len(took),
        "write_ms": [p50, p99, most],
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(*map(int, sys.argv[1:]))), indent=1))
