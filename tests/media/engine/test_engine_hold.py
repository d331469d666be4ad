"""A call that our side holds: nothing of the caller is heard, and the agent's speech waits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from media.audio_port import Samples
from media.engine.call_audio import UtterancePlayed
from media.turn_taking.events import (
    AgentStarted,
    AgentStopped,
    BargeIn,
    PlayoutPaused,
    SpeechStarted,
    TurnDropped,
    TurnEnded,
)
from tests.media.engine_harness import NO_MODEL, EngineHarness
from tests.media.speech import silence, speech, tone


@pytest.fixture(scope="module")
def words() -> Samples:
    return speech("what is your address")


def test_a_caller_on_hold_is_not_heard(words: Samples) -> None:
    harness = EngineHarness()
    call, listener, speech_sink = harness.call(np.concatenate([silence(500), words, silence(1500)]))
    call.set_held(True)
    harness.run(4000)
    assert (listener.events, speech_sink.fed, harness.engine.stats.windows_run) == ([], [], 0)


def test_a_hold_ends_the_open_turn_and_keeps_its_words(words: Samples) -> None:
    harness = EngineHarness()
    call, listener, speech_sink = harness.call(np.concatenate([silence(500), words, words, silence(1500)]))
    harness.run(1500)
    call.set_held(True)
    harness.run(3000)
    assert [type(event) for event in listener.events] == [SpeechStarted, TurnEnded]
    fed = speech_sink.sound
    assert (speech_sink.discarded, len(fed) > 4000) == (0, True)
    call.set_held(False)
    harness.run(1000)
    assert len(listener.events) == 2
    assert len(speech_sink.sound) == len(fed)


def test_a_hold_drops_a_turn_that_is_too_short(words: Samples) -> None:
    harness, settings = EngineHarness(), replace(NO_MODEL, min_turn_duration=400)
    call, listener, speech_sink = harness.call(np.concatenate([silence(500), words, silence(1500)]), settings)
    while not listener.of(SpeechStarted):
        harness.run(20)
    call.set_held(True)
    harness.run(100)
    assert [event.reason for event in listener.of(TurnDropped)] == ["short"]
    assert speech_sink.discarded == 1


def test_the_agent_goes_on_where_the_hold_has_stopped_it() -> None:
    harness = EngineHarness()
    call, listener, _ = harness.call(silence(5000))
    said = tone(1000, 8000)
    call.playout.begin("one moment")
    call.playout.write(said)
    call.playout.end()
    harness.run(400)
    call.set_held(True)
    sent = harness.port.sent_position(call.slot)
    harness.run(5000)
    assert harness.port.sent_position(call.slot) == sent
    assert [type(event) for event in listener.events] == [AgentStarted, AgentStopped]
    call.set_held(False)
    harness.run(1000)
    assert harness.port.sent_position(call.slot) == len(said)
    assert [type(event) for event in listener.events[2:]] == [AgentStarted, UtterancePlayed, AgentStopped]


def test_an_uninterruptible_message_stays_so_after_a_hold(words: Samples) -> None:
    harness = EngineHarness()
    call, listener, _ = harness.call(np.concatenate([silence(2000), words, words, silence(4000)]))
    call.set_uninterruptible(True)
    call.playout.begin("this call is recorded")
    call.playout.write(tone(4000, 8000))
    call.playout.end()
    harness.run(400)
    call.set_held(True)
    harness.run(400)
    call.set_held(False)
    harness.run(6000)
    assert not listener.of(PlayoutPaused)
    assert harness.port.sent_position(call.slot) == 4000 * 8


def test_neither_a_flush_nor_a_false_interruption_ends_a_hold() -> None:
    harness = EngineHarness()
    call, _, _ = harness.call(silence(3000))
    call.playout.pause(True)
    call.set_held(True)
    call.playout.pause(False)
    assert harness.port.paused(call.slot)
    call.playout.flush()
    assert harness.port.paused(call.slot)
    call.set_held(False)
    assert not harness.port.paused(call.slot)


def test_a_hold_that_ends_does_not_end_a_pause() -> None:
    harness = EngineHarness()
    call, _, _ = harness.call(silence(100))
    call.set_held(True)
    call.playout.pause(True)
    call.set_held(False)
    assert harness.port.paused(call.slot)
    call.playout.flush()
    assert not harness.port.paused(call.slot)


def test_speech_over_the_agent_before_a_hold_interrupts_nothing_after_it(words: Samples) -> None:
    harness = EngineHarness()
    call, listener, _ = harness.call(np.concatenate([silence(1000), words, silence(8000)]))
    call.playout.begin("one moment")
    call.playout.write(tone(4000, 8000))
    call.playout.end()
    while not harness.port.paused(call.slot):  # until it is known whether these are words
        harness.run(20)
    call.set_held(True)
    harness.run(2000)
    assert len(listener.of(TurnDropped)) == 1
    call.set_held(False)
    harness.run(6000)
    assert (listener.of(BargeIn), len(listener.of(UtterancePlayed))) == ([], 1)


def test_a_call_that_is_not_listened_to_is_not_listened_to_after_a_hold(words: Samples) -> None:
    harness = EngineHarness()
    call, listener, speech_sink = harness.call(np.concatenate([silence(2000), words, silence(1500)]))
    call.set_listening(False)
    call.set_held(True)
    harness.run(1000)
    call.set_held(False)
    harness.run(4000)
    assert (listener.events, speech_sink.fed) == ([], [])


def test_listening_that_begins_on_hold_begins_with_its_end(words: Samples) -> None:
    harness = EngineHarness()
    caller = np.concatenate([silence(300), words, silence(2700 - len(words) // 8), words, silence(1500)])
    call, listener, _ = harness.call(caller)
    call.set_listening(False)
    call.set_held(True)
    harness.run(100)
    call.set_listening(True, bridged=True)
    harness.run(2500)
    assert listener.of(SpeechStarted) == []
    call.set_held(False)
    harness.run(3500)
    assert len(listener.of(TurnEnded)) == 1
