"""Holds the agent's speech until it is known who or what listens."""

from __future__ import annotations

import asyncio


class SpeechGate:
    """While it is closed, no sentence of the agent begins; one that plays goes on. It begins open."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    @property
    def is_open(self) -> bool:
        """True if sentences may begin."""
        return self._open.is_set()

    def open(self) -> None:
        """Let the agent speak."""
        self._open.set()

    def close(self) -> None:
        """Let no further sentence begin."""
        self._open.clear()

    async def wait_open(self) -> None:
        """Wait until it is open."""
        await self._open.wait()
