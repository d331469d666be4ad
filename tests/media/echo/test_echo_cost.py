"""However many lines have an echo, or a caller who may be one, a tick stays short."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from structlog.testing import capture_logs

from media.audio_history import KEEP_MS, AudioHistory, Cursor
from media.audio_port import TICK_MS, Samples
from media.echo import delay_estimator, echo_guard
from media.echo.adaptation_queue import CREATE_FILTER_US, FRAME_US, AdaptationQueue
from media.echo.canceller import LEAD_MS, MOST_FRAMES, PASSES, EchoCanceller
from media.echo.speex import FRAME_MS, AdaptiveFilter, SpeexLibrary
from media.turns.events import PlayoutPaused
from tests.media.echo.echo_room import Room
from tests.media.echo.test_echo_guard import DELAYS, EchoCalls, counted, monologue, say
from tests.media.speech import silence, speech

RATE = 8000
FRAME = FRAME_MS * RATE // 1000
LAG_MS = 100
LINES = 20


class Pairs:
    """Counts frames; each must be the echo of what it comes with."""

    def __init__(self) -> None:
        self.frames = 0

    def cancel(self, heard: Samples, said: Samples) -> Samples:
        assert np.array_equal(heard, said)
        self.frames += 1
        return heard

    def close(self) -> None:
        pass


def history_of(rows: int, ms: int, agent_ms: int) -> AudioHistory:
    """Of so many ms, all rows alike: the agent has spoken for the last `agent_ms`, all of it comes back."""
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


def test_lines_learn_in_their_order_and_no_more_than_a_share_in_a_tick() -> None:
    history = history_of(3, 800, 800)
    learning = AdaptationQueue(history, np.full(3, RATE / 1000))
    made: list[Pairs] = []

    def new(rate: int) -> AdaptiveFilter:
        assert rate == RATE
        made.append(Pairs())
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
    assert {canceller.frames for canceller in made} == {PASSES * ((800 - LAG_MS + LEAD_MS) // FRAME_MS + 1)}


def test_a_line_that_is_let_go_while_it_learns_leaves_the_others_their_turn() -> None:
    learning = AdaptationQueue(history_of(2, 800, 800), np.full(2, RATE / 1000))
    for row in (0, 1):
        learning.add(row, LAG_MS)
    assert not list(learning.adapt(lambda _: Pairs(), 1000))
    learning.remove(0)
    assert [row for row, _ in learning.adapt(lambda _: Pairs(), 10**6)] == [1]


def test_a_filter_learns_the_same_at_once_or_bit_by_bit() -> None:
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


def test_what_comes_while_a_filter_learns_is_learned_too_and_what_is_lost_is_left_out() -> None:
    history, pairs = history_of(1, 790, 790), Pairs()
    line = line_of(history, pairs)
    while not line.adapted:
        line.adapt(3)
        tick = np.zeros(1, np.int64) + FRAME
        if history.lacks_room(np.zeros(1, np.intp), tick)[0]:
            history.make_room(0)
        add(history, sound(TICK_MS))
    assert pairs.frames > PASSES * MOST_FRAMES * 0.8
    assert history.cursor[0, Cursor.END] < (KEEP_MS + 790) * RATE // 1000  # it was moved on the way


def test_nothing_is_learned_from_the_time_before_the_agent_spoke() -> None:
    pairs = Pairs()
    line_of(history_of(1, 800, 300), pairs).adapt(10**6)
    assert pairs.frames == PASSES * ((300 - LAG_MS + LEAD_MS) // FRAME_MS + 1)


def test_lines_that_find_their_echo_at_once_hold_no_caller_while_they_wait_for_their_filters() -> None:
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
    """Counts the calls of a comparison since it was asked last."""
    looks = 0
    compare = getattr(delay_estimator, name)

    def look(*arguments: object) -> delay_estimator.EchoCorrelation:
        nonlocal looks
        looks += 1
        likeness: delay_estimator.EchoCorrelation = compare(*arguments)
        return likeness

    def taken() -> int:
        nonlocal looks
        taken, looks = looks, 0
        return taken

    monkeypatch.setattr(echo_guard, name, look)
    return taken


def test_callers_who_begin_at_once_are_compared_in_turn_and_all_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert most == echo_guard.SHARE_US // echo_guard.CORRELATE_US
    for _, listener, _ in calls:
        assert 1100 <= listener.of(PlayoutPaused)[0].at_ms - phones.start_ms <= 1200


def test_what_could_never_be_compared_counts_as_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = counting(monkeypatch, "correlate")
    monkeypatch.setattr(echo_guard, "SHARE_US", 0)
    monkeypatch.setattr(echo_guard, "LEAST_SHARE_US", 0)
    caller = np.concatenate([silence(1000), speech("no thank you that is wrong", RATE, "rms")])
    phones = EchoCalls()
    call, listener, _ = phones.studio.call(caller)
    say(call, monologue(RATE, 1))
    phones.run(1800)
    assert looks() == 0
    assert 1100 <= listener.of(PlayoutPaused)[0].at_ms - phones.start_ms <= 1200


def test_what_could_not_be_compared_on_a_line_that_waits_for_its_filter_is_its_echo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(echo_guard, "ADAPT_US", 0)
    monkeypatch.setattr(echo_guard, "ADAPT_BEHIND_US", 0)
    phones = EchoCalls()
    call, listener, _ = phones.call(Room(RATE, -15, 150))
    say(call, monologue(RATE, 1))
    phones.run(1000)
    monkeypatch.setattr(echo_guard, "SHARE_US", 0)
    monkeypatch.setattr(echo_guard, "LEAST_SHARE_US", 0)
    phones.run(3000)
    assert counted(listener) == []
