"""Gathering dialled digits."""

from __future__ import annotations

from collections.abc import Callable

from calls.digits import GATHER_S, LONGEST, DigitEntry, DigitsDialled


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
    return DigitEntry(got.append, later), later, got


def test_an_entry_is_complete_two_seconds_after_its_last_digit() -> None:
    entry, later, got = gathered()
    for digit in "12*":
        entry.press(digit)
    assert [delay for delay, _ in later.waiting] == [GATHER_S]
    assert got == []
    later.ring()
    assert got == [DigitsDialled("12*")]


def test_hash_completes_an_entry_at_once_and_is_no_part_of_it() -> None:
    entry, later, got = gathered()
    for digit in "42#7#":
        entry.press(digit)
    assert got == [DigitsDialled("42"), DigitsDialled("7")]
    assert later.waiting == []


def test_a_hash_alone_is_no_entry() -> None:
    entry, _, got = gathered()
    entry.press("#")
    assert got == []


def test_an_entry_that_was_not_complete_at_the_end_is_forgotten() -> None:
    entry, later, got = gathered()
    entry.press("1")
    entry.close()
    later.ring()
    assert got == []


def test_an_entry_is_complete_when_it_is_as_long_as_an_entry_may_be() -> None:
    entry, later, got = gathered()
    for _ in range(LONGEST + 1):
        entry.press("1")
    assert got == [DigitsDialled("1" * 64)]
    later.ring()
    assert got[1:] == [DigitsDialled("1")]
