"""How many calls a source may begin in a second, whatever others do."""

from __future__ import annotations

import itertools
import resource
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from sipcore import _native

RATE = 50
_clock = itertools.count(1, 1_000_000)
"""Each test begins long after the one before."""


@pytest.fixture
def now_ms() -> Iterator[int]:
    _native.invite_rate_limit_set(RATE)
    yield next(_clock)
    _native.invite_rate_limit_set(0)


def taken(source: str, times_ms: Iterator[int] | range) -> int:
    """How many of the calls that begin then are let in."""
    return sum(_native.invite_rate_limit_take(source, at_ms) for at_ms in times_ms)


def test_two_seconds_worth_may_come_at_once_and_then_the_rate_goes_on(now_ms: int) -> None:
    assert taken("192.0.2.1", itertools.repeat(now_ms, 500)) == 2 * RATE
    assert taken("192.0.2.1", range(now_ms, now_ms + 10_000)) == 10 * RATE - 1
    assert taken("192.0.2.1", itertools.repeat(now_ms + 60_000, 500)) == 2 * RATE, "a pause fills it up, no further"


def test_a_source_within_its_rate_is_never_refused(now_ms: int) -> None:
    assert taken("192.0.2.1", range(now_ms, now_ms + 100_000, 1000 // RATE)) == 100 * RATE


def test_a_flood_of_one_takes_nothing_from_another(now_ms: int) -> None:
    for at_ms in range(now_ms, now_ms + 5000):
        _native.invite_rate_limit_take("192.0.2.1", at_ms)
    assert taken("192.0.2.2", itertools.repeat(now_ms + 5000, 500)) == 2 * RATE


def test_an_address_is_the_same_however_it_is_written(now_ms: int) -> None:
    assert taken("192.0.2.1", itertools.repeat(now_ms, 500)) == 2 * RATE
    assert taken("::ffff:192.0.2.1", itertools.repeat(now_ms, 500)) == 0
    assert taken("2001:db8::1", itertools.repeat(now_ms, 500)) == 2 * RATE
    assert taken("2001:DB8:0::1", itertools.repeat(now_ms, 500)) == 0


def test_no_limit_lets_everything_in(now_ms: int) -> None:
    _native.invite_rate_limit_set(0)
    assert taken("192.0.2.1", itertools.repeat(now_ms, 500)) == 500


def test_100000_sources_take_no_memory_and_keep_nobody_out(now_ms: int) -> None:
    first = int(IPv4Address("10.0.0.0"))
    sources = [str(IPv4Address(first + number)) for number in range(100_000)]
    _native.invite_rate_limit_take("192.0.2.1", now_ms)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    let_in = sum(
        _native.invite_rate_limit_take(source, now_ms + number // 100) for number, source in enumerate(sources)
    )
    assert let_in == len(sources)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 512
    assert taken("192.0.2.1", itertools.repeat(now_ms + 60_000, 500)) == 2 * RATE


def test_what_is_no_address_is_refused() -> None:
    for text in ("", "pbx.example", "192.0.2.1:5060", "192.0.2.0/24"):
        with pytest.raises(ValueError, match="no IP address"):
            _native.invite_rate_limit_take(text, 0)
