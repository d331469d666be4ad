"""The log as it is written: a test waits for what is told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from structlog.testing import capture_logs


@contextmanager
def hearing(beginning: str) -> Iterator[asyncio.Queue[dict[str, Any]]]:
    """The log's events whose names begin so, as they come; on the event loop."""
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def take(_: object, level: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if event["event"].startswith(beginning):
            heard.put_nowait({**event, "level": level})
        raise structlog.DropEvent

    with capture_logs(processors=[take]):
        yield heard
