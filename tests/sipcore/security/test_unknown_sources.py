"""Unknown sources of several servers in one list."""

from __future__ import annotations

from datetime import timedelta

from config.clock import utc_now
from sipcore.security.unknown_sources import MAX_UNKNOWN_SOURCES, UnknownSource, merged_sources

NOW = utc_now()


def source(address: str, messages: int, minute: int) -> UnknownSource:
    """One whose last messages came at that minute."""
    return UnknownSource(address, messages, NOW + timedelta(minutes=minute))


def test_an_address_is_listed_once_with_all_its_messages_and_the_last_time() -> None:
    here = [source("192.0.2.10", 5, 3), source("192.0.2.11", 1, 1)]
    there = [source("192.0.2.11", 4, 9), source("192.0.2.12", 2, 5), source("192.0.2.10", 1, 2)]
    merged = [source("192.0.2.11", 5, 9), source("192.0.2.12", 2, 5), source("192.0.2.10", 6, 3)]
    assert merged_sources([here, there]) == merged_sources([there, here]) == merged
    assert merged_sources([here]) == here
    assert merged_sources([[], []]) == []


def test_those_whose_messages_came_last_are_kept() -> None:
    early = [source(f"192.0.2.{minute}", 1, minute) for minute in range(MAX_UNKNOWN_SOURCES)]
    late = [source(f"198.51.100.{minute}", 1, 1000 - minute) for minute in range(MAX_UNKNOWN_SOURCES - 1)]
    assert merged_sources([early, late]) == [*late, early[-1]]
