"""Deletes ended sessions and links that are over."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Final

import sqlalchemy as sa

from api.periodic_task import PeriodicTask
from config.clock import utc_now
from storage.database.database import Database
from storage.users import password_links, sessions
from storage.users.sessions import SessionLifetime

PURGE_EVERY_S: Final = 3600.0


def purge_sessions_periodically(database: Database, lifetime: SessionLifetime) -> AbstractAsyncContextManager[None]:
    """Delete them while the block runs: at once, then every `PURGE_EVERY_S`."""

    def purge(conn: sa.Connection) -> None:
        sessions.delete_ended(conn, utc_now(), lifetime)
        password_links.delete_expired(conn, utc_now())

    task = PeriodicTask("sessions.not_purged", PURGE_EVERY_S, lambda: database.write(purge))
    return task.running("session purge", at_once=True)
