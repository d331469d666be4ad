"""Playout: utterances on the played-samples clock."""

from __future__ import annotations

import numpy as np

from media.playout import Playout
from tests.fakes.fake_audio_port import ArrayPort
from tests.media.speech import tone


def opened(rate: int = 8000) -> tuple[ArrayPort, int, Playout]:
    port = ArrayPort()
    slot = port.open(rate)
    return port, slot, Playout(port, slot)


def say(playout: Playout, ms: int) -> None:
    assert playout.write(tone(ms))


def test_utterances_are_played_in_order() -> None:
    port, slot, playout = opened()
    first = playout.begin("one")
    say(playout, 40)
    second = playout.begin("two")
    say(playout, 60)
    for _ in range(3):
        port.step()
    assert (playout.played(first), playout.played(second)) == (320, 160)
    assert playout.queued == 320
    assert playout.advance(port.sent_position(slot), port.now_ms) == (first,)


def test_a_flush_cuts_unsent_audio_and_freezes_the_played_samples() -> None:
    port, _, playout = opened()
    first = playout.begin("one")
    say(playout, 40)
    second = playout.begin("two")
    say(playout, 60)
    third = playout.begin("three")
    for _ in range(3):
        port.step()
    assert playout.flush() == 480
    assert [playout.played(u) for u in (first, second, third)] == [320, 160, 0]
    assert [u.flushed for u in (first, second, third)] == [False, True, True]
    assert not playout.write(tone(20))
    assert playout.queued == 0


def test_an_utterance_after_a_flush_counts_on_its_own() -> None:
    port, slot, playout = opened()
    playout.begin("cut")
    say(playout, 100)
    playout.flush()
    again = playout.begin("again")
    say(playout, 40)
    playout.end()
    for _ in range(2):
        port.step()
    assert playout.played(again) == 320
    assert playout.advance(port.sent_position(slot), port.now_ms) == (again,)


def test_a_flush_ends_a_pause() -> None:
    port, slot, playout = opened()
    playout.begin("paused")
    say(playout, 100)
    playout.pause(True)
    port.step()
    assert port.sent_position(slot) == 0
    playout.flush()
    assert not port.paused(slot)


def test_samples_that_do_not_fit_into_the_ring_are_queued_later() -> None:
    port, slot, playout = opened()
    utterance = playout.begin("long")
    sound = np.arange(8000 * 35, dtype=np.int64).astype(np.int16)
    assert playout.write(sound[: 8000 * 29])
    assert playout.write(sound[8000 * 29 :])
    playout.end()
    done: list[object] = []
    for _ in range(35 * 50):
        port.step()
        done += playout.advance(port.sent_position(slot), port.now_ms)
    assert done == [utterance]
    assert np.array_equal(port.sent(slot), sound)


def test_a_flush_also_drops_samples_that_wait_for_the_ring() -> None:
    port, slot, playout = opened()
    playout.begin("long")
    assert playout.write(np.ones(8000 * 40, np.int16))
    playout.flush()
    playout.advance(port.sent_position(slot), port.now_ms)
    port.step()
    assert not port.sent(slot).any()


def test_the_port_expects_more_only_when_it_was_announced() -> None:
    port, slot, playout = opened()

    def expected() -> tuple[bool, bool]:
        return port.more(slot), playout.more_expected

    playout.begin("one")
    assert expected() == (True, False)
    say(playout, 20)
    assert expected() == (True, True)
    playout.end()
    assert expected() == (False, False)
    playout.expect_more(True)
    assert expected() == (True, True)
    playout.expect_more(False)
    assert expected() == (False, False)


def run(port: ArrayPort, slot: int, playout: Playout, ticks: int) -> None:
    for _ in range(ticks):
        port.step()
        playout.advance(port.sent_position(slot), port.now_ms)


def test_an_utterance_has_the_times_of_its_first_and_last_sample() -> None:
    port, slot, playout = opened()
    run(port, slot, playout, 10)
    began = port.now_ms
    first = playout.begin("one")
    say(playout, 50)
    second = playout.begin("two")
    say(playout, 70)
    third = playout.begin("three")
    playout.end()
    assert (first.started_ms, first.stopped_ms) == (None, None)
    run(port, slot, playout, 4)
    assert (second.started_ms, second.stopped_ms) == (began + 50, began + 80), "it is still being sent"
    run(port, slot, playout, 10)
    assert (first.started_ms, first.stopped_ms) == (began, began + 50)
    assert (second.started_ms, second.stopped_ms) == (began + 50, began + 120)
    assert (third.started_ms, third.stopped_ms) == (None, None)


def test_an_utterance_that_is_cut_in_a_pause_stopped_when_the_pause_began() -> None:
    port, slot, playout = opened()
    began = port.now_ms
    said = playout.begin("one two three")
    say(playout, 500)
    playout.begin("never")
    say(playout, 500)
    run(port, slot, playout, 5)
    playout.pause(True)
    run(port, slot, playout, 20)
    playout.flush()
    assert (said.started_ms, said.stopped_ms) == (began, began + 100)
    again = playout.begin("again")
    say(playout, 40)
    playout.end()
    run(port, slot, playout, 3)
    assert (again.started_ms, again.stopped_ms) == (began + 500, began + 540)


def test_an_utterance_that_is_cut_before_a_tick_has_seen_it_began_after_the_last_tick() -> None:
    port, slot, playout = opened()
    run(port, slot, playout, 50)
    began = port.now_ms
    said = playout.begin("one two three")
    say(playout, 500)
    port.step()
    playout.flush()
    assert (said.started_ms, said.stopped_ms) == (began, began + 20)


def test_a_pause_within_an_utterance_counts() -> None:
    port, slot, playout = opened()
    began = port.now_ms
    said = playout.begin("one two")
    say(playout, 200)
    playout.end()
    run(port, slot, playout, 5)
    playout.pause(True)
    run(port, slot, playout, 20)
    playout.pause(False)
    run(port, slot, playout, 20)
    assert (said.started_ms, said.stopped_ms) == (began, began + 200 + 400)
