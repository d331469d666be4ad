"""Wall-clock time as it is stored and shown: UTC, whole milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Returns the current time in UTC, truncated to milliseconds."""
    return whole_ms(datetime.now(UTC))


def whole_ms(at: datetime) -> datetime:
    """Returns an aware time in UTC, truncated to milliseconds."""
    at = at.astimezone(UTC)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


def iso(at: datetime) -> str:
    """Returns a time as the API and webhooks write it: `2026-11-21T05:00:00.123Z` (RFC 3339)."""
    at = at.astimezone(UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
