"""Helpers of transaction tests: organizations as rows, and a gate at which a transaction waits."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

import sqlalchemy as sa

from storage.accounts import organizations
from storage.database.database import Database
from tests import database_template

PATIENCE_S: Final = 20.0
"""Timeout of waits, seconds."""


class Gate:
    """A point at which a transaction waits until it is opened."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reached = asyncio.Event()
        self._open = threading.Event()

    def wait(self, conn: sa.Connection | None = None) -> None:
        """Wait on the transaction's thread; given its connection, also longer than PostgreSQL allows."""
        if conn is not None:
            database_template.without_time_limit(conn)
        self._loop.call_soon_threadsafe(self._reached.set)
        assert self._open.wait(PATIENCE_S)

    async def reached(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._reached.wait()

    def open(self) -> None:
        self._open.set()


def names_in(conn: sa.Connection) -> list[str]:
    """The names of the organizations, oldest first."""
    return [each.name for each in organizations.all_of(conn)]


async def names(database: Database) -> list[str]:
    """The names of the organizations, in a separate transaction."""
    return await database.read(names_in)


async def add(database: Database, name: str) -> None:
    """Create an organization in a separate transaction."""
    await database.write(lambda conn: organizations.create(conn, name))
