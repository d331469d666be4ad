"""Recordings of nodes that do not run: what another node removes of them, once, and what it leaves to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa

from calls.post_call import recording_remover
from calls.post_call.recording_remover import RecordingRemover
from config.clock import utc_now
from storage import tables
from storage.database.database import Database
from storage.nodes import nodes
from storage.nodes.nodes import Node
from storage.recording_store.recording_files import RecordingFiles
from tests.peers import postgresql

CALLS = 5
"""Of each node."""


class Store:
    """A store that notes what is removed from it."""

    name = "store"

    def __init__(self) -> None:
        self.removed: list[str] = []

    async def remove(self, key: str) -> None:
        """As `ObjectStore.remove`."""
        self.removed.append(Path(key).stem)


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    """A database of nodes, opened by `own`, in which `down` is down, `up` is up, and `gone` is not known any more.
    Each has recordings to remove."""
    server = await asyncio.to_thread(postgresql.server)
    url = await asyncio.to_thread(server.take_database)
    opened = Database(url, "own")
    await opened.open()

    def write(conn: sa.Connection) -> None:
        now = utc_now()
        for name in ("own", "up", "down"):
            state: Any = "down" if name == "down" else "up"
            nodes.store_heartbeat(conn, Node(name, name, None, "1", state, 0, 10, now, now))
        rows = [
            {"call_id": f"{name}{number}", "created_at": now - timedelta(days=1), "node": name}
            for name in ("up", "down", "gone")
            for number in range(CALLS)
        ]
        conn.execute(sa.insert(tables.recording_removals), rows)

    await opened.write(write)
    yield opened
    await opened.close()
    await asyncio.to_thread(server.give_back, url)


async def waiting(database: Database) -> set[str]:
    """The nodes with recordings to remove."""
    query = sa.select(tables.recording_removals.c.node).distinct()
    return await database.read(lambda conn: set(conn.execute(query).scalars()))


async def test_the_store_loses_the_recordings_of_nodes_that_do_not_run_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_remover, "FILES_PER_TRANSACTION", 2)
    store = Store()
    remover = RecordingRemover(database, RecordingFiles(tmp_path, cast(Any, store)))
    for _ in range(2):
        await remover.remove_for_other_nodes()
    assert sorted(store.removed) == [f"{name}{number}" for name in ("down", "gone") for number in range(CALLS)]
    assert await waiting(database) == {"up", "down"}, "what nobody is to remove any more is dropped"
    assert remover.is_complete


async def test_without_a_store_only_nodes_that_are_known_are_waited_for(database: Database, tmp_path: Path) -> None:
    await RecordingRemover(database, RecordingFiles(tmp_path)).remove_for_other_nodes()
    assert await waiting(database) == {"up", "down"}
