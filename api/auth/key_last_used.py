"""Times of last use of API keys, collected in memory and written in batches, so that a read request causes no write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final

import structlog

from api.periodic_task import background_task
from config.clock import utc_now
from storage.accounts import api_keys
from storage.database.database import Database
from storage.database.errors import StorageUnavailable

WRITE_EVERY_S: Final = 30.0
log = structlog.get_logger()


class LastUsedRecorder:
    """Times of last use that are not written yet, by key id."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._last: dict[str, datetime] = {}

    def record(self, key_id: str) -> None:
        """Record that the key was used now."""
        self._last[key_id] = utc_now()

    async def write(self) -> None:
        """Write the recorded times. A failure is logged, and the times wait for the next write."""
        recorded, self._last = self._last, {}
        if not recorded:
            return
        try:
            await self._database.write(lambda conn: api_keys.set_last_used(conn, recorded), lock="last use of keys")
        except StorageUnavailable as error:
            self._last = {**recorded, **self._last}
            log.warning("api_keys.last_use_not_written", cause=error.cause)
        except Exception:
            self._last = {**recorded, **self._last}
            log.exception("api_keys.last_use_not_written")

    @asynccontextmanager
    async def write_periodically(self) -> AsyncIterator[None]:
        """Write every 30 s while the block runs, and once more at its end."""
        try:
            async with background_task(self._write_forever(), "api key use"):
                yield
        finally:
            await self.write()

    async def _write_forever(self) -> None:
        while True:
            await asyncio.sleep(WRITE_EVERY_S)
            await self.write()
