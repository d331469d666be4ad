"""Retry backoff of webhooks: the time of the next attempt after a failed one."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Final

from config.clock import whole_ms

JITTER: Final = 0.1
"""Share of a wait by which it is longer at most, at random, so that deliveries that failed together are not all sent
again at once."""
MAX_JITTER_S: Final = 60.0
ONE_MS: Final = timedelta(milliseconds=1)


def next_attempt_at(started_at: datetime, took_ms: int, now: datetime, delay_s: float, random_value: float) -> datetime:
    """Returns the time of the next attempt after one that started at `started_at`, took `took_ms` and has failed now:
    `delay_s` after its end or later, never earlier. `random_value` is 0..1. A clock that was set back meanwhile does
    not shorten the wait."""
    ended_at = max(now, started_at + timedelta(milliseconds=took_ms))
    jitter_s = random_value * min(JITTER * delay_s, MAX_JITTER_S)
    # Times are truncated to milliseconds when they are read and when they are stored.
    return whole_ms(ended_at + timedelta(milliseconds=math.ceil(1000 * (delay_s + jitter_s)))) + ONE_MS
