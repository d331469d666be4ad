"""INVITE rate limit: new INVITEs a second of one source, independent of others."""

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


def admitted(source: str, times_ms: Iterator[int] | range) -> int:
    """The number of the INVITEs at that time that are admitted."""
    return sum(_native.invite_rate_limit_take(source, at_ms) for at_ms in times_ms)


def test_burst_of_two_seconds_is_allowed_and_then_the_rate_applies(now_ms: int) -> None:
    assert admitted("192.0.2.1", itertools.repeat(now_ms, 500)) == 2 * RATE
    assert admitted("192.0.2.1", range(now_ms, now_ms + 10_000)) == 10 * RATE - 1
    assert admitted("192.0.2.1", itertools.repeat(now_ms + 60_000, 500)) == 2 * RATE, "a pause fills it up, no further"


def test_source_within_its_rate_is_never_limited(now_ms: int) -> None:
    assert admitted("192.0.2.1", range(now_ms, now_ms + 100_000, 1000 // RATE)) == 100 * RATE


def test_flood_of_one_source_does_not_limit_another(now_ms: int) -> None:
    for at_ms in range(now_ms, now_ms + 5000):
        _native.invite_rate_limit_take("192.0.2.1", at_ms)
    assert admitted("192.0.2.2", itertools.repeat(now_ms + 5000, 500)) == 2 * RATE


def test_ipv4_and_mapped_ipv6_share_one_bucket(now_ms: int) -> None:
    assert admitted("192.0.2.1", itertools.repeat(now_ms, 500)) == 2 * RATE
    assert admitted("::ffff:192.0.2.1", itertools.repeat(now_ms, 500)) == 0
    assert admitted("2001:db8::1", itertools.repeat(now_ms, 500)) == 2 * RATE
    assert admitted("2001:DB8:0::1", itertools.repeat(now_ms, 500)) == 0


def test_limit_0_admits_everything(now_ms: int) -> None:
    _native.invite_rate_limit_set(0)
    assert admitted("192.0.2.1", itertools.repeat(now_ms, 500)) == 500


def test_100000_sources_take_bounded_memory_and_limit_no_other(now_ms: int) -> None:
    first = int(IPv4Address("10.0.0.0"))
    sources = [str(IPv4Address(first + number)) for number in range(100_000)]
    _native.invite_rate_limit_take("192.0.2.1", now_ms)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    let_in = sum(
        _native.invite_rate_limit_take(source, now_ms + number // 100) for number, source in enumerate(sources)
    )
    assert let_in == len(sources)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 512
    assert admitted("192.0.2.1", itertools.repeat(now_ms + 60_000, 500)) == 2 * RATE


def test_invalid_address_raises_value_error() -> None:
    for text in ("", "pbx.example", "192.0.2.1:5060", "192.0.2.0/24"):
        with pytest.raises(ValueError, match="no IP address"):
            _native.invite_rate_limit_take(text, 0)
