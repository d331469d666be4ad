"""DTMF digits: collected into entries, duplicates and echoes dropped."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.turn.scripted_models import HANG_UP
from calls.conversation.dtmf_collector import (
    ECHO_WINDOW_MS,
    INTER_DIGIT_TIMEOUT_S,
    MAX_DIGITS,
    METHOD_CHANGE_PRESSES,
    DtmfCollector,
    DtmfDeduplicator,
    DtmfEchoFilter,
    DtmfEntry,
    DtmfKeyPressed,
)
from media.dtmf.keys import DtmfMethod
from models.protocols import LlmOutput, TextDelta, ToolCall
from storage.calls.calls import Call
from tests.calls.call_service_harness import GREETS, call_service, until
from tests.media.dtmf.dtmf_signals import gap, key, sent


class FakeTimers:
    """Timers that the test fires."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def __call__(self, delay_s: float, work: Callable[[], None]) -> FakeTimers.Handle:
        collector = (delay_s, work)
        self.waiting.append(collector)
        return FakeTimers.Handle(self, collector)

    class Handle:
        def __init__(self, timers: FakeTimers, collector: tuple[float, Callable[[], None]]) -> None:
            self.later, self.collector = timers, collector

        def cancel(self) -> None:
            self.later.waiting.remove(self.collector)

    def ring(self) -> None:
        """Fire every pending timer."""
        for _, work in self.waiting:
            work()


def gathered() -> tuple[DtmfCollector, FakeTimers, list[DtmfEntry]]:
    timers, got = FakeTimers(), list[DtmfEntry]()

    def take(news: DtmfKeyPressed | DtmfEntry) -> None:
        if isinstance(news, DtmfEntry):
            got.append(news)

    return DtmfCollector(take, timers, lambda: 0.0), timers, got


Key = tuple[str, DtmfMethod, float]


def counted_presses(*keys: Key) -> str:
    """Returns the digits that count as presses, of digits with method and time in ms."""
    deduplicator = DtmfDeduplicator()
    return "".join(digit for digit, method, at_ms in keys if deduplicator.register(digit, method, at_ms))


def test_an_entry_is_complete_two_seconds_after_its_last_digit() -> None:
    collector, timers, got = gathered()
    for digit in "12*":
        collector.on_digit(digit, "rfc4733", 0.0)
    assert [delay for delay, _ in timers.waiting] == [INTER_DIGIT_TIMEOUT_S]
    assert got == []
    timers.ring()
    assert got == [DtmfEntry("12*")]


def test_hash_completes_an_entry_at_once_and_is_no_part_of_it() -> None:
    collector, timers, got = gathered()
    for digit in "42#7#":
        collector.on_digit(digit, "rfc4733", 0.0)
    assert got == [DtmfEntry("42"), DtmfEntry("7")]
    assert timers.waiting == []


def test_a_hash_alone_is_no_entry() -> None:
    collector, _, got = gathered()
    collector.on_digit("#", "info", 0.0)
    assert got == []


def test_the_end_of_the_call_completes_an_entry() -> None:
    collector, timers, got = gathered()
    collector.on_digit("1", "inband", 0.0)
    collector.close()
    timers.ring()
    assert got == [DtmfEntry("1")]


def test_each_press_is_one_event_at_once() -> None:
    events = list[DtmfKeyPressed | DtmfEntry]()
    collector = DtmfCollector(events.append, FakeTimers(), lambda: 0.0)
    for method in METHODS:
        collector.on_digit("1", method, 0.0)
    assert events == [DtmfKeyPressed()]
    collector.on_digit("#", "rfc4733", 300.0)
    assert events == [DtmfKeyPressed(), DtmfKeyPressed(), DtmfEntry("1")]


def test_an_entry_of_max_digits_is_complete() -> None:
    collector, timers, got = gathered()
    for _ in range(MAX_DIGITS + 1):
        collector.on_digit("1", "inband", 0.0)
    assert got == [DtmfEntry("1" * 64)]
    timers.ring()
    assert got[1:] == [DtmfEntry("1")]


METHODS: tuple[DtmfMethod, ...] = ("rfc4733", "info", "inband")


@pytest.mark.parametrize("order", list(itertools.permutations(METHODS)), ids="-".join)
def test_a_key_by_three_methods_in_any_order_is_one_press(order: tuple[DtmfMethod, ...]) -> None:
    keys: list[Key] = [
        (digit, method, 300.0 * number + 50 * late)
        for number, digit in enumerate("55#1")
        for late, method in enumerate(order)
    ]
    assert counted_presses(*keys) == "55#1"


def test_a_late_duplicate_by_info_is_no_press() -> None:
    events: list[Key] = [(digit, "rfc4733", 100.0 * number) for number, digit in enumerate("1224")]
    late: list[Key] = [(digit, "info", 900.0 + 100.0 * number) for number, digit in enumerate("1224")]
    assert counted_presses(*events, *late) == "1224"


@pytest.mark.parametrize("method", METHODS)
def test_a_key_pressed_twice_quickly_by_one_method_is_two_presses(method: DtmfMethod) -> None:
    assert counted_presses(("5", method, 0.0), ("5", method, 85.0)) == "55"


def test_a_tone_that_is_detected_before_its_event_is_the_same_press() -> None:
    by: tuple[tuple[DtmfMethod, float], ...] = (("inband", 0.0), ("info", 200.0))
    keys: list[Key] = [(digit, method, 400.0 * n + late) for n, digit in enumerate("7788") for method, late in by]
    assert counted_presses(*keys) == "7788"


def test_a_tone_alone_is_no_press_once_events_were_received() -> None:
    assert (
        counted_presses(
            ("1", "rfc4733", 0.0), ("9", "inband", 5000.0), ("2", "rfc4733", 9000.0), ("9", "inband", 20000.0)
        )
        == "12"
    )


def test_tones_count_again_after_several_presses_without_events() -> None:
    keys: list[Key] = [
        ("1", "rfc4733", 0.0),
        *((str(n), "inband", 5000.0 + 1000 * n) for n in range(METHOD_CHANGE_PRESSES + 2)),
    ]
    assert counted_presses(*keys) == "1" + "".join(
        str(n) for n in range(METHOD_CHANGE_PRESSES - 1, METHOD_CHANGE_PRESSES + 2)
    )


def test_the_same_press_by_another_method_is_collected_once() -> None:
    collector, timers, got = gathered()
    for digit in "42#":
        collector.on_digit(digit, "rfc4733", 0.0)
        collector.on_digit(digit, "inband", 40.0)
    timers.ring()
    assert got == [DtmfEntry("42")]


def test_tones_during_our_dtmf_and_shortly_after_are_its_echo() -> None:
    keys = DtmfEchoFilter()
    assert not keys.is_echo(0.0)
    keys.set_sending(True, 1000.0)
    assert [keys.is_echo(at_ms) for at_ms in (999.0, 1000.0, 9000.0)] == [False, True, True]
    keys.set_sending(False, 1200.0)
    assert [keys.is_echo(at_ms) for at_ms in (1200.0 + ECHO_WINDOW_MS, 1201.0 + ECHO_WINDOW_MS)] == [True, False]
    keys.set_sending(True, 1300.0)
    assert keys.is_echo(1100.0), "of the digits before"
    keys.set_sending(False, 1500.0)
    keys.set_sending(True, 5000.0)
    assert not keys.is_echo(4999.0)


def said(call: Call) -> list[tuple[str, str]]:
    return [(item["role"], item["content"]) for item in call.transcript]


@pytest.mark.parametrize("last", ["", "#"])
async def test_digits_entered_just_before_the_caller_hangs_up_are_in_the_transcript(tmp_path: Path, last: str) -> None:
    async with call_service(tmp_path) as harness:
        await harness.create_number(**GREETS)
        phone = harness.invite()
        await until(lambda: phone.leg.on_digit is not None)
        slot = phone.slot
        await until(
            lambda: (
                harness.pump.sent_position(slot)
                and harness.pump.sent_position(slot) == harness.pump.written_position(slot)
            )
        )
        for digit in f"4711{last}":
            phone.driver.on_digit(digit, "rfc4733")
        phone.hangs_up()
        call = await harness.ended_call(phone)
    assert said(call) == [("assistant", "Welcome caller."), ("user", "4711")]
    assert call.turn_count == 1
    assert [(turn["turn"], turn["ended_by"]) for turn in call.timeline] == [(0, None), (1, "digits")]


async def test_the_echo_of_the_agents_dtmf_is_no_digit_of_the_caller(tmp_path: Path) -> None:
    pressing = ToolCall("1", "send_dtmf", '{"digits": "5"}')
    thanks: list[LlmOutput] = [TextDelta("Thank you."), HANG_UP]
    async with call_service(tmp_path, [pressing], "It is pressed.", thanks) as harness:
        await harness.create_number(first_speaker="agent", agent_greeting_enabled=False)
        harness.llm.gate.clear()
        phone = harness.invite()
        ours = list[bool]()
        await until(lambda: phone.leg.on_dtmf_sending is not None)
        hear = phone.leg.on_dtmf_sending
        assert hear is not None

        def press(on: bool) -> None:
            hear(on)
            ours.append(on)
            if not on:
                echo, calls = key("5", ms=100), (gap(800), key("4", ms=100), gap(100), key("#", ms=100))
                harness.pump.speak(phone.slot, sent(gap(100), echo, *calls))

        phone.leg.on_dtmf_sending = press
        harness.llm.gate.set()
        call = await harness.ended_call(phone)
    assert ours == [True, False]
    assert harness.pump.dialled == ["5"]
    assert [text for role, text in said(call) if role == "user"] == ["4"]


def test_an_entry_has_the_times_of_its_first_and_last_key() -> None:
    collector, timers, got = gathered()
    collector.on_digit("4", "inband", 1000.0)
    collector.on_digit("4", "rfc4733", 1010.0)
    collector.on_digit("2", "rfc4733", 1500.0)
    collector.on_digit("#", "rfc4733", 2100.0)
    collector.on_digit("7", "rfc4733", 5000.0)
    timers.ring()
    assert [(each.digits, each.first_key_ms, each.last_key_ms) for each in got] == [
        ("42", 1000.0, 2100.0),
        ("7", 5000.0, 5000.0),
    ]
