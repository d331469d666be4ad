"""The private members of aiosqlite that `storage.database.database` uses: a version that changes them fails here."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Thread, current_thread
from typing import Any

import aiosqlite

WHAT_TO_DO = "aiosqlite {version} has changed {member}: adapt storage/database/database.py, then requirements.in"


def changed(member: str) -> str:
    return WHAT_TO_DO.format(version=aiosqlite.__version__, member=member)


async def test_a_connection_runs_functions_on_its_own_thread(tmp_path: Path) -> None:
    connection = aiosqlite.connect(tmp_path / "test.db", isolation_level=None)
    for member in ("_execute", "_tx", "_thread"):
        assert hasattr(connection, member), changed(member)
    assert isinstance(connection._thread, Thread), changed("_thread")
    async with connection:
        assert isinstance(connection._conn, sqlite3.Connection), changed("_conn")
        on_thread: Callable[..., Awaitable[Any]] = connection._execute
        assert await on_thread(current_thread) is connection._thread, changed("_execute")
    await asyncio.to_thread(connection._thread.join)


async def test_the_queue_takes_a_future_with_its_function_and_sets_the_result_or_the_error(tmp_path: Path) -> None:
    async with aiosqlite.connect(tmp_path / "test.db", isolation_level=None) as connection:
        result, error = (asyncio.get_running_loop().create_future() for _ in range(2))
        connection._tx.put_nowait((result, current_thread))
        connection._tx.put_nowait((error, lambda: connection._conn.execute("no SQL")))
        async with asyncio.timeout(5):
            assert await result is connection._thread, changed("_tx")
            assert isinstance(await asyncio.gather(error, return_exceptions=True), list)
        assert isinstance(error.exception(), sqlite3.OperationalError), changed("_tx")
