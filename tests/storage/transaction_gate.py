"""What tests of transactions share: names as their rows, and a place where a transaction waits."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

import sqlalchemy as sa

from storage.accounts import organizations
from storage.database.database import Database

PATIENCE_S: Final = 20.0
"""How long to wait for what must come."""


class Gate:
    """A place in a transaction where it waits until it may go on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reached = asyncio.Event()
        self._open = threading.Event()

    def wait(self) -> None:
        """On the transaction's thread."""
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
    """The same, in a transaction of its own."""
    return await database.read(names_in)


async def add(database: Database, name: str) -> None:
    """An organization, in a transaction of its own."""
    await database.write(lambda conn: organizations.create(conn, name))
