"""The change counter sees commits of every connection and process."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys

import pytest

from storage.database.database import Database
from tests.storage.transaction_gate import add, names

OTHER_PROCESS = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute(sys.argv[2]); c.commit()"


async def test_the_number_changes_with_every_commit(database: Database) -> None:
    seen = [database.change_number()]
    for name in ("a", "b", "c"):
        await add(database, name)
        seen.append(database.change_number())
    assert None not in seen
    assert len(set(seen)) == 4


async def test_reads_do_not_change_the_number(database: Database) -> None:
    before = database.change_number()
    await names(database)
    assert database.change_number() == before


async def test_commits_of_another_process_change_the_number(database: Database) -> None:
    before = database.change_number()
    statement = "INSERT INTO facts (name, value) VALUES ('a', 'b')"
    command = [sys.executable, "-c", OTHER_PROCESS, str(database.path), statement]
    await asyncio.to_thread(subprocess.run, command, check=True)
    assert database.change_number() != before


async def test_reading_the_number_does_not_block_a_checkpoint(database: Database) -> None:
    await add(database, "a")
    database.change_number()

    await add(database, "b")

    def checkpoint() -> int:
        conn = sqlite3.connect(database.path, isolation_level=None)
        try:
            return int(conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        finally:
            conn.close()

    assert await asyncio.to_thread(checkpoint) == 0, "busy: a reader has an old snapshot"


@pytest.mark.parametrize("open_first", [True, False])
async def test_the_number_of_a_closed_database_is_none(database: Database, open_first: bool) -> None:
    other = Database(str(database.url))
    if open_first:
        await other.open()
        await other.close()
    assert other.change_number() is None
