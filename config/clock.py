"""Wall-clock time as it is stored and shown: UTC, whole milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime


def machine_time() -> datetime:
    """Returns the time of the machine's own clock, in UTC."""
    return datetime.now(UTC)


_source: Callable[[], datetime] = machine_time


def utc_now() -> datetime:
    """Returns the current time in UTC, truncated to milliseconds: that of the machine or, once it was compared, of the
    database server."""
    return whole_ms(_source())


def set_source(source: Callable[[], datetime]) -> None:
    """Let `utc_now` return the time of `source`, so that nodes with one database have one time. Any thread calls it."""
    global _source
    _source = source


def whole_ms(at: datetime) -> datetime:
    """Returns an aware time in UTC, truncated to milliseconds."""
    at = at.astimezone(UTC)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def iso(at: datetime) -> str:
    """Returns a time as the API and webhooks write it: `2026-11-21T05:00:00.123Z` (RFC 3339)."""
    at = at.astimezone(UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
