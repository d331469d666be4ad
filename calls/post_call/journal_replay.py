"""Replay of the call journal while the server runs."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from calls.post_call.finalizer import CallFinalizer
from storage.database.errors import StorageUnavailable

REPLAY_EVERY_S: Final = 60.0
"""Interval of looks at the call journal."""

log = structlog.get_logger()


class JournalReplay:
    """Stores what the journal has and no call in memory: ends that the database refused for another reason than an
    outage, or could not take in one."""

    def __init__(self, finalizer: CallFinalizer) -> None:
        self._finalizer = finalizer

    async def run(self) -> None:
        """Replay it every 60 s until cancelled."""
        while True:
            await asyncio.sleep(REPLAY_EVERY_S)
            await self.replay()

    async def replay(self) -> None:
        """Replay it once. While the database is unavailable that is logged."""
        try:
            await self._finalizer.replay_journal()
        except StorageUnavailable as error:
            log.warning("call_journal.not_replayed", cause=error.cause)
