"""A database that tests take away: it cannot be reached, or connections are lost while a transaction is committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

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
        self.attempts: list[str] = []
        """Reads and writes that failed."""

    def set_away(self, away: bool) -> None:
        """Begin or end an outage."""
        self.reads = self.writes = not away

    async def read(
        self, work: Callable[[sa.Connection], T], *, owner: str | None = None, priority: ReadPriority = "shared"
    ) -> T:
        if not self.reads:
            self.attempts.append("read")
            raise StorageUnavailable("the database cannot be reached", unreachable=True)
        return await super().read(work, owner=owner, priority=priority)

    async def write(self, work: Callable[[sa.Connection], T], **options: Any) -> T:
        if not self.writes:
            self.attempts.append("write")
            raise StorageUnavailable("the database cannot be reached", unreachable=True)
        result = await super().write(work, **options)
        if self.lost_commits:
            self.lost_commits -= 1
            raise StorageUnavailable("the connection was lost", unreachable=True, outcome_unknown=True)
        return result


async def outage_database(folder: Path) -> OutageDatabase:
    """Returns a database in a folder, which is not open."""
    return OutageDatabase(await database_template.copy_to(folder))
