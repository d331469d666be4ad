"""In-band DTMF through the engine: one event for each key, and no speech."""

from __future__ import annotations

import numpy as np
import pytest

from media.audio_port import Samples
from media.engine.call_audio import CallEvent, DtmfDetected
from media.turn_taking.events import BargeIn, PlayoutPaused, SpeechStarted, TurnEnded
from tests.media.dtmf.dtmf_signals import gap, key, sent
from tests.media.engine_harness import EngineHarness
from tests.media.speech import silence, speech, tone


def dialled(digits: str, rate: int = 8000, ms: float = 100, dbm0: float = -10.0) -> Samples:
    """Half a second of silence, then keys separated by as much silence."""
    tones = [key(digit, rate, ms=ms, low_dbm0=dbm0, high_dbm0=dbm0) for digit in digits]
    parts = [part for tone in tones for part in (tone, gap(ms, rate))]
    return sent(gap(500, rate), *parts, gap(500, rate), noise_dbm0=-50.0)


@pytest.mark.parametrize("jitter_ms", [0, 60])
@pytest.mark.parametrize("rate", [8000, 16000])
def test_each_key_is_one_event_with_its_arrival_time(rate: int, jitter_ms: int) -> None:
    harness = EngineHarness()
    _, listener, _ = harness.call(dialled("19*#0A", rate), rate=rate, jitter_ms=jitter_ms)
    harness.run(2500)
    keys = listener.of(DtmfDetected)
    assert "".join(each.digit for each in keys) == "19*#0A"
    expected = [harness.start_ms + 500 + 200 * number for number in range(6)]
    assert [each.at_ms for each in keys] == pytest.approx(expected, abs=15)


def test_a_key_is_detected_within_100_ms(rate: int = 8000) -> None:
    harness = EngineHarness()
    _, listener, _ = harness.call(dialled("7", ms=400), rate=rate)
    event_times: list[int] = []

    def note(event: CallEvent) -> None:
        if isinstance(event, DtmfDetected):
            event_times.append(harness.port.now_ms - harness.start_ms)

    listener.react = note
    harness.run(1200)
    assert len(event_times) == 1
    assert 540 <= event_times[0] <= 600


@pytest.mark.parametrize(("digits", "dbm0"), [("550812", -10.0), ("888888", -25.0)])
@pytest.mark.parametrize("ms", [60, 100, 400])
def test_keys_do_not_interrupt_the_agent_and_are_no_turn(digits: str, dbm0: float, ms: int) -> None:
    """Faint ones are speech to the voice activity model."""
    harness = EngineHarness()
    call, listener, _ = harness.call(dialled(digits, ms=ms, dbm0=dbm0))
    call.playout.begin("a long sentence")
    call.playout.write(tone(1500 + 12 * ms))
    call.playout.end()
    harness.run(1500 + 13 * ms)
    assert "".join(each.digit for each in listener.of(DtmfDetected)) == digits
    assert not listener.of(PlayoutPaused)
    assert not listener.of(BargeIn)
    assert not listener.of(TurnEnded)


def test_speech_after_a_key_is_a_turn_and_its_sink_gets_no_tone() -> None:
    harness = EngineHarness()
    words = speech("hello there")
    caller = np.concatenate([dialled("3"), words, sent(gap(20), key("4", ms=300)), silence(1500)])
    _, listener, speech_sink = harness.call(caller)
    harness.run(len(caller) // 8)
    assert [each.digit for each in listener.of(DtmfDetected)] == ["3", "4"]
    (started,) = listener.of(SpeechStarted)
    assert started.speech_start_ms == pytest.approx(harness.start_ms + len(dialled("3")) / 8, abs=60)
    assert len(listener.of(TurnEnded)) == 1
    behind = speech_sink.sound[-800:]
    assert not behind.any()


def test_a_call_begins_without_the_keys_of_the_last_call_in_its_row() -> None:
    harness = EngineHarness()
    first, _, _ = harness.call(sent(gap(300), key("5", ms=1000)))
    harness.run(600)
    harness.engine.remove(first.slot)
    harness.port.close(first.slot)
    _, listener, _ = harness.call(sent(gap(300), key("5", ms=100), gap(300)))
    harness.run(700)
    assert [each.digit for each in listener.of(DtmfDetected)] == ["5"]
