"""Read-only access to the installation's database, without a migration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa

from storage.database import database_url
from storage.database.database_url import POSTGRESQL
from storage.database.postgresql import require_driver
from storage.database.sqlite import read_only as sqlite_read_only

T = TypeVar("T")


def read_only(url: str, work: Callable[[sa.Connection], T]) -> T:
    """Returns the result of `work`, run in a read-only transaction with a consistent snapshot. Raises `StartupError`
    for a database that is absent, unreadable, or of another revision, and what `work` raises. Blocks."""
    parsed = database_url.parse(url)
    if parsed.drivername == POSTGRESQL:
        require_driver()
        from storage.database.postgresql import read_only as postgresql_read_only

        return postgresql_read_only.read_only(parsed, work)
    return sqlite_read_only.read_only(Path(str(parsed.database)), work)
