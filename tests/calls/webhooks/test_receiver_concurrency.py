"""Concurrency limits of webhook attempts."""

from __future__ import annotations

import pytest

from calls.webhooks import receiver_concurrency
from calls.webhooks.receiver_concurrency import MAX_ATTEMPTS, MAX_SLOW_ATTEMPTS, ReceiverConcurrency, ReceiverSpeed

ALONE, SLOW_ALONE = MAX_ATTEMPTS // 2, MAX_SLOW_ATTEMPTS // 2
"""What an organization has where no other has anything."""
MANY = [f"silent-{each}" for each in range(MAX_ATTEMPTS)]


def begin(concurrency: ReceiverConcurrency, destination: str, count: int) -> None:
    for _ in range(count):
        concurrency.begin(destination)


def with_speeds(paces: dict[str, ReceiverSpeed]) -> ReceiverConcurrency:
    """Returns a `ReceiverConcurrency` with the speeds of these receivers."""
    concurrency = ReceiverConcurrency()
    for destination, pace in paces.items():
        concurrency.begin(destination)
        concurrency.end(destination, pace)
    return concurrency


def test_the_limit_of_a_receiver_follows_its_speed() -> None:
    assert ReceiverSpeed.QUICK.limit > ReceiverSpeed.SLOW.limit > ReceiverSpeed.SILENT.limit == ReceiverSpeed.NEW.limit


@pytest.mark.parametrize("pace", ReceiverSpeed)
def test_one_receiver_has_the_limit_of_its_speed(pace: ReceiverSpeed) -> None:
    concurrency = with_speeds({"a": pace})
    assert concurrency.shares(["a"]) == {"a": pace.limit}
    begin(concurrency, "a", pace.limit - 1)
    assert concurrency.shares(["a"]) == {"a": 1}
    begin(concurrency, "a", 1)
    assert concurrency.shares(["a", "b"]) == {"b": ReceiverSpeed.NEW.limit}
    concurrency.end("a", None)
    assert concurrency.shares(["a"]) == {"a": 1}


def test_receivers_share_all_attempts_and_each_gets_one_before_any_gets_two() -> None:
    many = [str(each) for each in range(ALONE - 10)]
    shares = ReceiverConcurrency().shares(many)
    assert sum(shares.values()) == ALONE
    assert shares == {each: 2 if at < 10 else 1 for at, each in enumerate(many)}


def test_at_the_limit_receivers_with_the_fewest_attempts_come_first() -> None:
    concurrency = ReceiverConcurrency()
    begin(concurrency, "busy", ReceiverSpeed.NEW.limit - 1)
    for number in range(ALONE - ReceiverSpeed.NEW.limit):
        concurrency.begin(str(number))
    assert concurrency.under_way == ALONE - 1
    assert concurrency.shares(["busy", "waits", "waits-less"]) == {"waits": 1}
    concurrency.begin("waits")
    assert concurrency.shares(["waits-less"]) == {}


def test_any_number_of_silent_receivers_leaves_half_of_the_attempts() -> None:
    concurrency = with_speeds(dict.fromkeys(MANY, ReceiverSpeed.SILENT))
    shares = concurrency.shares(MANY)
    assert sum(shares.values()) == SLOW_ALONE
    for destination, count in shares.items():
        begin(concurrency, destination, count)
    assert concurrency.shares([*MANY, "healthy"]) == {"healthy": ReceiverSpeed.NEW.limit}
    concurrency.end("silent-0", ReceiverSpeed.SILENT)
    assert concurrency.shares(["silent-1", "silent-100"]) == {"silent-100": 1}


def test_a_receiver_that_becomes_slow_counts_as_slow_with_all_its_attempts() -> None:
    concurrency = with_speeds({"a": ReceiverSpeed.QUICK, **dict.fromkeys(MANY, ReceiverSpeed.SILENT)})
    begin(concurrency, "a", ReceiverSpeed.QUICK.limit)
    concurrency.end("a", ReceiverSpeed.SLOW)
    assert sum(concurrency.shares(MANY).values()) == SLOW_ALONE - (ReceiverSpeed.QUICK.limit - 1)
    concurrency.end("a", ReceiverSpeed.QUICK)
    assert sum(concurrency.shares(MANY).values()) == SLOW_ALONE
    for _ in range(ReceiverSpeed.QUICK.limit - 2):
        concurrency.end("a", None)
    assert concurrency.under_way == 0


def test_the_stored_receivers_are_limited_and_none_with_an_attempt_under_way_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiver_concurrency, "MAX_RECEIVERS", 3)
    concurrency = with_speeds({"old": ReceiverSpeed.QUICK, "b": ReceiverSpeed.QUICK})
    concurrency.begin("old")
    for destination in ("c", "d", "e"):
        concurrency.begin(destination)
        concurrency.end(destination, ReceiverSpeed.QUICK)
    assert len(concurrency._receivers) == 3
    concurrency.end("old", ReceiverSpeed.QUICK)
    assert concurrency.shares(["old", "b"]) == {"old": ReceiverSpeed.QUICK.limit, "b": ReceiverSpeed.NEW.limit}


def test_one_organization_alone_has_half_of_all_attempts() -> None:
    assert (ALONE, SLOW_ALONE) == (200, 100)


@pytest.mark.parametrize("pace", [ReceiverSpeed.NEW, ReceiverSpeed.SILENT])
@pytest.mark.parametrize("hogs", [1, 4, 7])
def test_greedy_organizations_leave_attempts_for_the_next(pace: ReceiverSpeed, hogs: int) -> None:
    concurrency = ReceiverConcurrency()
    begun = []
    for hog in range(hogs):
        destinations = [f"hog-{hog} host-{each}:443" for each in range(MAX_ATTEMPTS)]
        for each in destinations:
            concurrency.begin(each)
            concurrency.end(each, pace)
        for each, count in concurrency.shares(destinations).items():
            begin(concurrency, each, count)
            begun.append(each)
    shares = concurrency.shares([*begun, *(f"fifth host-{each}:443" for each in range(4))])
    assert sum(count for each, count in shares.items() if each.startswith("fifth ")) >= (1 if hogs == 7 else 4)


def test_a_receiver_that_is_slow_for_one_organization_is_new_for_another() -> None:
    concurrency = with_speeds({"one host:443": ReceiverSpeed.QUICK})
    assert concurrency.shares(["one host:443", "other host:443"]) == {
        "one host:443": ReceiverSpeed.QUICK.limit,
        "other host:443": ReceiverSpeed.NEW.limit,
    }
