"""Deletes ended sessions and links that are over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import sqlalchemy as sa
import structlog

from config.clock import utc_now
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.users import password_links, sessions
from storage.users.sessions import SessionLifetime

PURGE_EVERY_S: Final = 3600.0
log = structlog.get_logger()


@asynccontextmanager
async def purge_sessions_periodically(database: Database, lifetime: SessionLifetime) -> AsyncIterator[None]:
    """Delete them while the block runs: at once, then every `PURGE_EVERY_S`."""
    task = asyncio.create_task(_purge_forever(database, lifetime), name="session purge")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def _purge_forever(database: Database, lifetime: SessionLifetime) -> None:
    def purge(conn: sa.Connection) -> None:
        sessions.delete_ended(conn, utc_now(), lifetime)
        password_links.delete_expired(conn, utc_now())

    while True:
        try:
            await database.write(purge)
        except StorageUnavailable as error:
            log.warning("sessions.not_purged", cause=error.cause)
        except Exception:  # the next try may succeed
            log.exception("sessions.not_purged")
        await asyncio.sleep(PURGE_EVERY_S)
