"""Gathering dialled digits."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from calls.digits import CHANGED_AFTER, GATHER_S, LONGEST, DigitEntry, DigitsDialled, KeyPresses
from media.dtmf_keys import DigitWay


class Later:
    """Timers that the test lets ring."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, delay_s: float, work: Callable[[], None]) -> Later.Handle:
        entry = (delay_s, work)
        self.waiting.append(entry)
        return Later.Handle(self, entry)

    class Handle:
        def __init__(self, later: Later, entry: tuple[float, Callable[[], None]]) -> None:
            self.later, self.entry = later, entry

        def cancel(self) -> None:
            self.later.waiting.remove(self.entry)

    def ring(self) -> None:
        """The time of every timer that is left has come."""
        for _, work in self.waiting:
            work()


def gathered() -> tuple[DigitEntry, Later, list[DigitsDialled]]:
    later, got = Later(), list[DigitsDialled]()
    return DigitEntry(got.append, later, lambda: 0.0), later, got


Key = tuple[str, DigitWay, float]


def counted(*keys: Key) -> str:
    """The keys that count as presses, of keys with their way and time in ms."""
    presses = KeyPresses()
    return "".join(digit for digit, way, at_ms in keys if presses.is_new(digit, way, at_ms))


def test_an_entry_is_complete_two_seconds_after_its_last_digit() -> None:
    entry, later, got = gathered()
    for digit in "12*":
        entry.press(digit, "rfc4733", 0.0)
    assert [delay for delay, _ in later.waiting] == [GATHER_S]
    assert got == []
    later.ring()
    assert got == [DigitsDialled("12*")]


def test_hash_completes_an_entry_at_once_and_is_no_part_of_it() -> None:
    entry, later, got = gathered()
    for digit in "42#7#":
        entry.press(digit, "rfc4733", 0.0)
    assert got == [DigitsDialled("42"), DigitsDialled("7")]
    assert later.waiting == []


def test_a_hash_alone_is_no_entry() -> None:
    entry, _, got = gathered()
    entry.press("#", "info", 0.0)
    assert got == []


def test_an_entry_that_was_not_complete_at_the_end_is_forgotten() -> None:
    entry, later, got = gathered()
    entry.press("1", "tone", 0.0)
    entry.close()
    later.ring()
    assert got == []


def test_an_entry_is_complete_when_it_is_as_long_as_an_entry_may_be() -> None:
    entry, later, got = gathered()
    for _ in range(LONGEST + 1):
        entry.press("1", "tone", 0.0)
    assert got == [DigitsDialled("1" * 64)]
    later.ring()
    assert got[1:] == [DigitsDialled("1")]


WAYS: tuple[DigitWay, ...] = ("rfc4733", "info", "tone")


@pytest.mark.parametrize("order", list(itertools.permutations(WAYS)), ids="-".join)
def test_a_key_that_comes_by_three_ways_in_any_order_is_one_press(order: tuple[DigitWay, ...]) -> None:
    keys: list[Key] = [
        (digit, way, 300.0 * number + 50 * late)
        for number, digit in enumerate("55#1")
        for late, way in enumerate(order)
    ]
    assert counted(*keys) == "55#1"


def test_a_late_repetition_by_info_is_no_press() -> None:
    events: list[Key] = [(digit, "rfc4733", 100.0 * number) for number, digit in enumerate("1224")]
    late: list[Key] = [(digit, "info", 900.0 + 100.0 * number) for number, digit in enumerate("1224")]
    assert counted(*events, *late) == "1224"


@pytest.mark.parametrize("way", WAYS)
def test_a_key_pressed_twice_quickly_by_one_way_is_two_presses(way: DigitWay) -> None:
    assert counted(("5", way, 0.0), ("5", way, 85.0)) == "55"


def test_a_tone_that_is_heard_before_its_event_comes_is_the_same_press_again_and_again() -> None:
    by: tuple[tuple[DigitWay, float], ...] = (("tone", 0.0), ("info", 200.0))
    keys: list[Key] = [(digit, way, 400.0 * n + late) for n, digit in enumerate("7788") for way, late in by]
    assert counted(*keys) == "7788"


def test_a_voice_that_sounds_like_a_key_is_not_believed_once_events_have_come() -> None:
    assert (
        counted(("1", "rfc4733", 0.0), ("9", "tone", 5000.0), ("2", "rfc4733", 9000.0), ("9", "tone", 20000.0)) == "12"
    )


def test_a_telephone_that_goes_over_to_tones_is_heard_again() -> None:
    keys: list[Key] = [("1", "rfc4733", 0.0), *((str(n), "tone", 5000.0 + 1000 * n) for n in range(CHANGED_AFTER + 2))]
    assert counted(*keys) == "1" + "".join(str(n) for n in range(CHANGED_AFTER - 1, CHANGED_AFTER + 2))


def test_the_same_press_by_another_way_is_gathered_once() -> None:
    entry, later, got = gathered()
    for digit in "42#":
        entry.press(digit, "rfc4733", 0.0)
        entry.press(digit, "tone", 40.0)
    later.ring()
    assert got == [DigitsDialled("42")]
