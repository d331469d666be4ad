"""A database that tests take away: it cannot be reached, or connections are lost while a transaction is committed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import sqlalchemy as sa

from storage.database.errors import StorageUnavailable
from storage.database.read_pool import ReadPriority
from tests import database_template
from tests.calls.call_service_harness import WatchedDatabase

T = TypeVar("T")


class OutageDatabase(WatchedDatabase):
    """`reads` and `writes` False: those fail. `lost_commits`: so many writes are committed, and then seem to fail."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.reads = True
        self.writes = True
        self.lost_commits = 0
        self.refuses = False
        """Writes fail for a reason that is no outage."""
        self.attempts: list[str] = []
        """Reads and writes that failed."""
        self.on_attempt: Callable[[], object] = lambda: None
        """Called with each of them."""

    def set_away(self, away: bool) -> None:
        """Begin or end an outage."""
        self.reads = self.writes = not away
        if not away:
            self.away_since_s = None

    def _fail(self, what: str) -> NoReturn:
        self.attempts.append(what)
        self.on_attempt()
        if self.away_since_s is None:
            self.away_since_s = time.monotonic()
        raise StorageUnavailable("the database cannot be reached", unreachable=True)

    async def read(
        self, work: Callable[[sa.Connection], T], *, owner: str | None = None, priority: ReadPriority = "shared"
    ) -> T:
        if not self.reads:
            self._fail("read")
        return await super().read(work, owner=owner, priority=priority)

    async def write(self, work: Callable[[sa.Connection], T], **options: Any) -> T:
        if not self.writes:
            self._fail("write")
        if self.refuses:
            raise StorageUnavailable("another transaction holds a lock of the database")
        result = await super().write(work, **options)
        if self.lost_commits:
            self.lost_commits -= 1
            raise StorageUnavailable("the connection was lost", unreachable=True, outcome_unknown=True)
        return result


async def outage_database(folder: Path) -> OutageDatabase:
    """Returns a database in a folder, which is not open."""
    return OutageDatabase(await database_template.copy_to(folder))
