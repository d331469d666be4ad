"""The cost of a tick is bounded, however many calls have an echo or a caller that may be one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from structlog.testing import capture_logs

from media.audio_history import RETAINED_MS, AudioHistory, Cursor
from media.audio_port import TICK_MS, Samples
from media.echo import delay_estimator, echo_guard
from media.echo.adaptation_queue import CREATE_FILTER_US, FRAME_US, AdaptationQueue
from media.echo.canceller import ADAPTATION_PASSES, LEAD_MS, MAX_ADAPTATION_FRAMES, EchoCanceller
from media.echo.speex import FRAME_MS, AdaptiveFilter, SpeexLibrary
from media.turn_taking.events import PlayoutPaused
from tests.media.echo.echo_room import Room
from tests.media.echo.test_echo_guard import DELAYS, EchoCalls, counted, monologue, say
from tests.media.speech import silence, speech

RATE = 8000
FRAME = FRAME_MS * RATE // 1000
LAG_MS = 100
LINES = 20


class CountingFilter:
    """Counts frames; each must be the echo of the sent frame."""

    def __init__(self) -> None:
        self.frames = 0

    def cancel(self, heard: Samples, said: Samples) -> Samples:
        assert np.array_equal(heard, said)
        self.frames += 1
        return heard

    def close(self) -> None:
        pass


def history_of(rows: int, ms: int, agent_ms: int) -> AudioHistory:
    """`ms` of history in equal rows: the agent has spoken for the last `agent_ms`, and all of it returns."""
    history = AudioHistory(rows)
    for row in range(rows):
        history.open(row, RATE)
    add(history, np.concatenate([silence(ms - agent_ms), sound(agent_ms)]))
    return history


def sound(ms: int) -> Samples:
    return np.random.default_rng(3).integers(100, 3000, ms * RATE // 1000).astype(np.int16)


def add(history: AudioHistory, said: Samples) -> None:
    rows = np.arange(len(history.cursor))
    end, count = int(history.cursor[0, Cursor.END]), len(said)
    behind = (LAG_MS - LEAD_MS) * RATE // 1000
    whole = np.concatenate([history.tx_audio[0, end - behind : end], said])
    heard, spoken = (np.tile(part, (len(rows), 1)) for part in (whole[:count], said))
    history.append(rows, np.full(len(rows), count), heard, spoken)
    history.cursor[:, Cursor.READY] = history.cursor[:, Cursor.END]


def line_of(history: AudioHistory, canceller: AdaptiveFilter) -> EchoCanceller:
    return EchoCanceller(history, 0, RATE, LAG_MS, canceller)


def test_filters_adapt_in_order_and_within_the_budget_of_a_tick() -> None:
    history = history_of(3, 800, 800)
    learning = AdaptationQueue(history, np.full(3, RATE / 1000))
    made: list[CountingFilter] = []

    def new(rate: int) -> AdaptiveFilter:
        assert rate == RATE
        made.append(CountingFilter())
        return made[-1]

    for row in (2, 0, 1):
        learning.add(row, LAG_MS)
    ready, took = [], []
    while learning.rows:
        before = sum(canceller.frames for canceller in made)
        ready += [row for row, _ in learning.adapt(new, 2000)]
        took.append(sum(canceller.frames for canceller in made) - before)
        assert learning.spent_us <= 2000 + CREATE_FILTER_US
    assert ready == [2, 0, 1]
    assert max(took) <= 2000 // FRAME_US[RATE]
    assert len(took) >= 3
    assert {canceller.frames for canceller in made} == {ADAPTATION_PASSES * ((800 - LAG_MS + LEAD_MS) // FRAME_MS + 1)}


def test_a_row_removed_during_its_adaptation_makes_way_for_the_next() -> None:
    learning = AdaptationQueue(history_of(2, 800, 800), np.full(2, RATE / 1000))
    for row in (0, 1):
        learning.add(row, LAG_MS)
    assert not list(learning.adapt(lambda _: CountingFilter(), 1000))
    learning.remove(0)
    assert [row for row, _ in learning.adapt(lambda _: CountingFilter(), 10**6)] == [1]


def test_adaptation_in_one_or_many_steps_has_the_same_result() -> None:
    left = []
    for frames in (1, 10**6):
        history = history_of(1, 800, 800)
        line = line_of(history, SpeexLibrary().create_filter(RATE))
        while not line.adapted:
            line.adapt(frames)
        add(history, sound(200))
        history.cursor[0, Cursor.READY] -= 200 * RATE // 1000
        line.process()
        left.append(history.rx_audio[0].copy())
    assert np.array_equal(*left)
    assert not np.array_equal(history.rx_audio[0], history.original(0, 0, len(history.rx_audio[0])))


def test_audio_that_arrives_during_the_adaptation_is_included_and_lost_audio_skipped() -> None:
    history, pairs = history_of(1, 790, 790), CountingFilter()
    line = line_of(history, pairs)
    while not line.adapted:
        line.adapt(3)
        tick = np.zeros(1, np.int64) + FRAME
        if history.needs_compaction(np.zeros(1, np.intp), tick)[0]:
            history.compact(0)
        add(history, sound(TICK_MS))
    assert pairs.frames > ADAPTATION_PASSES * MAX_ADAPTATION_FRAMES * 0.8
    assert history.cursor[0, Cursor.END] < (RETAINED_MS + 790) * RATE // 1000  # it was moved on the way


def test_audio_before_the_first_sound_of_the_agent_is_skipped() -> None:
    pairs = CountingFilter()
    line_of(history_of(1, 800, 300), pairs).adapt(10**6)
    assert pairs.frames == ADAPTATION_PASSES * ((300 - LAG_MS + LEAD_MS) // FRAME_MS + 1)


def test_calls_that_wait_for_their_filters_hold_no_windows() -> None:
    phones = EchoCalls(LINES)
    calls = [phones.call(Room(RATE, -15, DELAYS[i % len(DELAYS)])) for i in range(LINES)]
    for call, _, _ in calls:
        say(call, monologue(RATE, 2))
    with capture_logs() as logs:
        phones.run(300)
        assert 0 < sum(entry["event"] == "echo.found" for entry in logs) < LINES
        phones.run(8000)
    assert sorted({entry["row"] for entry in logs if entry["event"] == "echo.found"}) == list(range(LINES))
    assert [counted(listener) for _, listener, _ in calls] == [[]] * LINES


def counting(monkeypatch: pytest.MonkeyPatch, name: str) -> Callable[[], int]:
    """Counts the calls of a correlation function since the last count."""
    looks = 0
    compare = getattr(delay_estimator, name)

    def look(*arguments: object) -> delay_estimator.EchoCorrelation:
        nonlocal looks
        looks += 1
        likeness: delay_estimator.EchoCorrelation = compare(*arguments)
        return likeness

    def count() -> int:
        nonlocal looks
        counted, looks = looks, 0
        return counted

    monkeypatch.setattr(echo_guard, name, look)
    return count


def test_callers_who_begin_at_once_are_correlated_in_turn_and_all_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = counting(monkeypatch, "correlate")
    caller = np.concatenate([silence(1000), speech("no thank you that is wrong", RATE, "rms")])
    phones = EchoCalls(LINES)
    calls = [phones.studio.call(caller) for _ in range(LINES)]
    for call, _, _ in calls:
        say(call, monologue(RATE, 1))
    most = 0
    for _ in range(1800 // TICK_MS):
        phones.run(TICK_MS)
        most = max(most, looks())
    assert most == echo_guard.BUDGET_US // echo_guard.CORRELATE_US
    for _, listener, _ in calls:
        assert 1100 <= listener.of(PlayoutPaused)[0].at_ms - phones.start_ms <= 1200


def test_a_window_that_was_never_correlated_counts_as_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = counting(monkeypatch, "correlate")
    monkeypatch.setattr(echo_guard, "BUDGET_US", 0)
    monkeypatch.setattr(echo_guard, "MIN_BUDGET_US", 0)
    caller = np.concatenate([silence(1000), speech("no thank you that is wrong", RATE, "rms")])
    phones = EchoCalls()
    call, listener, _ = phones.studio.call(caller)
    say(call, monologue(RATE, 1))
    phones.run(1800)
    assert looks() == 0
    assert 1100 <= listener.of(PlayoutPaused)[0].at_ms - phones.start_ms <= 1200


def test_an_uncorrelated_window_of_a_call_with_a_pending_filter_is_echo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(echo_guard, "ADAPT_BUDGET_US", 0)
    monkeypatch.setattr(echo_guard, "ADAPT_WAITING_BUDGET_US", 0)
    phones = EchoCalls()
    call, listener, _ = phones.call(Room(RATE, -15, 150))
    say(call, monologue(RATE, 1))
    phones.run(1000)
    monkeypatch.setattr(echo_guard, "BUDGET_US", 0)
    monkeypatch.setattr(echo_guard, "MIN_BUDGET_US", 0)
    phones.run(3000)
    assert counted(listener) == []
