"""Constant write load on a database, as that of a server with calls, and the latency of each write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

import sqlalchemy as sa

from storage.database.database import Database

WRITES_PER_S: Final = 100


async def write_until(stop: asyncio.Event, database: Database, write: Callable[[sa.Connection], object]) -> list[float]:
    """Starts a write `WRITES_PER_S` times per second, without waiting for earlier ones, until `stop` is set. Returns
    the latency of each write, s."""
    latencies_s: list[float] = []

    async def timed_write() -> None:
        began = time.perf_counter()
        await database.write(write)
        latencies_s.append(time.perf_counter() - began)

    async with asyncio.TaskGroup() as group:
        while not stop.is_set():
            group.create_task(timed_write())
            await asyncio.sleep(1 / WRITES_PER_S)
    return latencies_s
