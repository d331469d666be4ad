"""Phone numbers are told when they, or their trunks, have changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from calls.live.events import LiveEvents
from calls.live.number_feed import DeletedNumber, NumberFeed, NumberNews
from sipcore.trunks.trunk import TrunkStatus
from storage.phone_numbers.phone_numbers import PhoneNumber

UP = TrunkStatus("registered")
DOWN = TrunkStatus("failed", "403 Forbidden")


class Numbers:
    """The numbers of a server, their statuses, and what was told of them."""

    def __init__(self) -> None:
        self.status = UP
        self.read: list[PhoneNumber] = []
        self.told: list[Any] = []
        events = LiveEvents()
        events.encode = self._keep
        events.follow("one")
        self.feed = NumberFeed(events, lambda _: [(each, self.status) for each in self.read], lambda _: self.status)
        self.feed.on_read()

    def _keep(self, _name: str, subject: object) -> bytes:
        self.told.append(subject)
        return b""


@pytest.fixture
async def numbers() -> Numbers:
    return Numbers()


def number(version: int = 1, organization_id: str = "one") -> PhoneNumber:
    return cast(PhoneNumber, SimpleNamespace(id="n", organization_id=organization_id, updated_at=version))


async def test_a_number_is_told_once_for_each_change(numbers: Numbers) -> None:
    numbers.feed.on_stored(number(1))
    numbers.read = [number(1)]
    numbers.feed.on_read()
    numbers.feed.on_trunk_status("n", UP)
    numbers.status = DOWN
    numbers.feed.on_trunk_status("n", DOWN)
    numbers.feed.on_read()
    numbers.read = [number(2)]
    numbers.feed.on_read()
    assert numbers.told == [NumberNews(number(1), UP), NumberNews(number(1), DOWN), NumberNews(number(2), DOWN)]


async def test_nothing_is_told_of_what_the_first_read_finds() -> None:
    events, told = LiveEvents(), list[object]()

    def keep(_name: str, subject: object) -> bytes:
        told.append(subject)
        return b""

    events.encode = keep
    events.follow("one")
    feed = NumberFeed(events, lambda _: [(number(), UP)], lambda _: UP)
    feed.on_read()
    feed.on_read()
    assert not told


async def test_a_deleted_number_does_not_come_back_with_a_read_that_began_before(numbers: Numbers) -> None:
    numbers.read = [number()]
    numbers.feed.on_read()
    numbers.told.clear()
    numbers.feed.on_deleted("one", "n")
    numbers.feed.on_read()
    numbers.read = []
    numbers.feed.on_read()
    assert numbers.told == [DeletedNumber("n")]


async def test_another_organizations_number_is_not_told(numbers: Numbers) -> None:
    numbers.feed.on_stored(number(1, "two"))
    assert not numbers.told
