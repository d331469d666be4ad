"""Read-only access to a PostgreSQL database that may be of another version."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import psycopg
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from config.errors import StartupError
from storage.database import database_url, migrations
from storage.database.postgresql.connection import connect
from storage.database.postgresql.connection_thread import READ
from storage.database.postgresql.migrate import compatible_from, revision_of

T = TypeVar("T")


def read_only(url: sa.URL, work: Callable[[sa.Connection], T]) -> T:
    """Returns the result of `work`, run in a read-only transaction with a consistent snapshot. Runs no migration:
    raises `StartupError` for a database of another revision that is not compatible, and for an unreadable one. Raises
    what `work` raises. Blocks."""
    try:
        with closing(connect(url)) as conn:
            conn.info["begin"] = READ
            with conn.begin():
                migrations.require_head(revision_of(conn), database_url.shown(url), compatible_from(conn))
                return work(conn)
    except (psycopg.Error, DBAPIError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        text = str(cause).strip().partition("\n")[0]
        raise StartupError(f"the database {database_url.shown(url)} cannot be read: {text}") from error
