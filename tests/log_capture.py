"""Captures log events as they are written, so that a test can wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from structlog.testing import capture_logs


@contextmanager
def capture_events(prefix: str) -> Iterator[asyncio.Queue[dict[str, Any]]]:
    """A queue of the log events whose names begin with `prefix`; for events that are logged on the event loop."""
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def capture(_: object, level: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if event["event"].startswith(prefix):
            events.put_nowait({**event, "level": level})
        raise structlog.DropEvent

    with capture_logs(processors=[capture]):
        yield events
