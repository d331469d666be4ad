"""How much room a receiver has."""

from __future__ import annotations

import pytest

from calls.webhooks import receiver_concurrency
from calls.webhooks.receiver_concurrency import MAX_ATTEMPTS, MAX_SLOW_ATTEMPTS, ReceiverConcurrency, ReceiverSpeed

ALONE, SLOW_ALONE = MAX_ATTEMPTS // 2, MAX_SLOW_ATTEMPTS // 2
"""What an organization has where no other has anything."""
MANY = [f"silent-{each}" for each in range(MAX_ATTEMPTS)]


def begin(lanes: ReceiverConcurrency, destination: str, count: int) -> None:
    for _ in range(count):
        lanes.begin(destination)


def taught(paces: dict[str, ReceiverSpeed]) -> ReceiverConcurrency:
    """Lanes that know the pace of these receivers."""
    lanes = ReceiverConcurrency()
    for destination, pace in paces.items():
        lanes.begin(destination)
        lanes.end(destination, pace)
    return lanes


def test_a_quick_receiver_has_more_room_than_a_slow_one_and_that_one_more_than_one_that_is_silent_or_new() -> None:
    assert ReceiverSpeed.QUICK.limit > ReceiverSpeed.SLOW.limit > ReceiverSpeed.SILENT.limit == ReceiverSpeed.NEW.limit


@pytest.mark.parametrize("pace", ReceiverSpeed)
def test_one_receiver_has_the_room_of_its_pace(pace: ReceiverSpeed) -> None:
    lanes = taught({"a": pace})
    assert lanes.shares(["a"]) == {"a": pace.limit}
    begin(lanes, "a", pace.limit - 1)
    assert lanes.shares(["a"]) == {"a": 1}
    begin(lanes, "a", 1)
    assert lanes.shares(["a", "b"]) == {"b": ReceiverSpeed.NEW.limit}
    lanes.end("a", None)
    assert lanes.shares(["a"]) == {"a": 1}


def test_all_receivers_share_the_whole_room_and_each_gets_one_before_any_gets_two() -> None:
    many = [str(each) for each in range(ALONE - 10)]
    shares = ReceiverConcurrency().shares(many)
    assert sum(shares.values()) == ALONE
    assert shares == {each: 2 if at < 10 else 1 for at, each in enumerate(many)}


def test_beyond_all_room_those_come_first_who_have_waited_longest_and_then_those_with_nothing_under_way() -> None:
    lanes = ReceiverConcurrency()
    begin(lanes, "busy", ReceiverSpeed.NEW.limit - 1)
    for number in range(ALONE - ReceiverSpeed.NEW.limit):
        lanes.begin(str(number))
    assert lanes.under_way == ALONE - 1
    assert lanes.shares(["busy", "waits", "waits-less"]) == {"waits": 1}
    lanes.begin("waits")
    assert lanes.shares(["waits-less"]) == {}


def test_silent_receivers_however_many_leave_half_of_the_room() -> None:
    lanes = taught(dict.fromkeys(MANY, ReceiverSpeed.SILENT))
    shares = lanes.shares(MANY)
    assert sum(shares.values()) == SLOW_ALONE
    for destination, count in shares.items():
        begin(lanes, destination, count)
    assert lanes.shares([*MANY, "healthy"]) == {"healthy": ReceiverSpeed.NEW.limit}
    lanes.end("silent-0", ReceiverSpeed.SILENT)
    assert lanes.shares(["silent-1", "silent-100"]) == {"silent-100": 1}


def test_one_that_turns_slow_counts_as_slow_with_all_that_it_has_under_way() -> None:
    lanes = taught({"a": ReceiverSpeed.QUICK, **dict.fromkeys(MANY, ReceiverSpeed.SILENT)})
    begin(lanes, "a", ReceiverSpeed.QUICK.limit)
    lanes.end("a", ReceiverSpeed.SLOW)
    assert sum(lanes.shares(MANY).values()) == SLOW_ALONE - (ReceiverSpeed.QUICK.limit - 1)
    lanes.end("a", ReceiverSpeed.QUICK)
    assert sum(lanes.shares(MANY).values()) == SLOW_ALONE
    for _ in range(ReceiverSpeed.QUICK.limit - 2):
        lanes.end("a", None)
    assert lanes.under_way == 0


def test_only_so_many_receivers_are_remembered_and_none_with_something_under_way_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(receiver_concurrency, "MAX_RECEIVERS", 3)
    lanes = taught({"old": ReceiverSpeed.QUICK, "b": ReceiverSpeed.QUICK})
    lanes.begin("old")
    for destination in ("c", "d", "e"):
        lanes.begin(destination)
        lanes.end(destination, ReceiverSpeed.QUICK)
    assert len(lanes._receivers) == 3
    lanes.end("old", ReceiverSpeed.QUICK)
    assert lanes.shares(["old", "b"]) == {"old": ReceiverSpeed.QUICK.limit, "b": ReceiverSpeed.NEW.limit}


def test_one_organization_has_what_there_was_for_all_before() -> None:
    assert (ALONE, SLOW_ALONE) == (200, 100)


@pytest.mark.parametrize("pace", [ReceiverSpeed.NEW, ReceiverSpeed.SILENT])
@pytest.mark.parametrize("hogs", [1, 4, 7])
def test_organizations_that_take_all_they_get_leave_room_to_the_next(pace: ReceiverSpeed, hogs: int) -> None:
    lanes = ReceiverConcurrency()
    taken = []
    for hog in range(hogs):
        wanted = [f"hog-{hog} host-{each}:443" for each in range(MAX_ATTEMPTS)]
        for each in wanted:
            lanes.begin(each)
            lanes.end(each, pace)
        for each, count in lanes.shares(wanted).items():
            begin(lanes, each, count)
            taken.append(each)
    shares = lanes.shares([*taken, *(f"fifth host-{each}:443" for each in range(4))])
    assert sum(count for each, count in shares.items() if each.startswith("fifth ")) >= (1 if hogs == 7 else 4)


def test_a_receiver_that_is_slow_for_one_organization_is_new_for_another() -> None:
    lanes = taught({"one host:443": ReceiverSpeed.QUICK})
    assert lanes.shares(["one host:443", "other host:443"]) == {
        "one host:443": ReceiverSpeed.QUICK.limit,
        "other host:443": ReceiverSpeed.NEW.limit,
    }
