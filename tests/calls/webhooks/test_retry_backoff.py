"""Retry backoff: a failed delivery is never sent again before its time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from calls.webhooks.retry_backoff import next_attempt_at

STARTED = datetime(2026, 3, 1, 12, tzinfo=UTC)
delays = st.floats(0.001, 100_000)
lucks = st.floats(0, 1)


@given(delays, lucks, st.integers(0, 60_000))
def test_the_wait_is_the_delay_and_at_most_a_tenth_or_a_minute_more(delay_s: float, luck: float, took_ms: int) -> None:
    ended = STARTED + timedelta(milliseconds=took_ms)
    wait_s = (next_attempt_at(STARTED, took_ms, ended, delay_s, luck) - ended).total_seconds()
    assert delay_s <= wait_s <= delay_s + min(delay_s / 10, 60) + 0.003


def test_the_jitter_uses_its_full_range() -> None:
    least, most = (next_attempt_at(STARTED, 0, STARTED, 300, luck) - STARTED for luck in (0, 1))
    assert (least.total_seconds(), most.total_seconds()) == (300.001, 330.001)
    assert (next_attempt_at(STARTED, 0, STARTED, 3600, 1) - STARTED).total_seconds() == 3660.001


@given(delays, lucks, st.integers(-100_000, 100_000))
def test_a_clock_that_is_set_during_an_attempt_shortens_no_wait(delay_s: float, luck: float, step_s: int) -> None:
    took_ms = 10_000
    says = STARTED + timedelta(milliseconds=took_ms, seconds=step_s)
    again = next_attempt_at(STARTED, took_ms, says, delay_s, luck)
    assert again - timedelta(seconds=delay_s) >= max(says, STARTED + timedelta(milliseconds=took_ms))
