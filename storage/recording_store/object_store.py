"""What recordings need of a store. Its keys are the paths of recordings relative to the data directory, such as
`recordings/2026/11/<call id>.wav`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

from config.errors import Unavailable

RETRY_AFTER_S = 10
"""Retry-After, in seconds, of a response that needs the store."""


class StoreUnavailable(Unavailable):
    """The store does not answer, or refuses this server. `cause` is for the log and the operator; the message is for
    clients. Neither has a key or a secret."""

    def __init__(self, cause: str) -> None:
        super().__init__("The store of recordings cannot be reached", RETRY_AFTER_S)
        self.cause = cause


class ObjectRefused(StoreUnavailable):
    """The store works, and does not take this object."""


class ObjectStore(Protocol):
    """A store of files. All methods raise `StoreUnavailable`, within seconds except `put`; none blocks the event
    loop."""

    @property
    def name(self) -> str:
        """What the operator calls it: a URL or a path, without secrets."""

    async def put(self, key: str, path: Path) -> None:
        """Store a local file, completely or not at all; an object of that key is replaced. Raises `OSError` when the
        local file cannot be read."""

    async def size(self, key: str) -> int | None:
        """The size of an object in bytes; None when there is none."""

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes] | None:
        """Open the bytes `start` to `end` (exclusive) of an object; None when there is none. The iterator raises
        `StoreUnavailable`, too."""

    async def remove(self, key: str) -> None:
        """Remove an object; returns when it is gone, or when there was none."""
