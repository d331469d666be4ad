"""Those who listen in to a call."""

from __future__ import annotations

import numpy as np
import pytest

from media.audio_port import Samples
from media.engine.call_audio import CallAudio
from tests.media.engine_harness import EngineHarness, recorded_call
from tests.media.speech import silence, speech, tone


class Tap:
    """Collects what it gets; with `fails`, raises at the first audio."""

    def __init__(self, *, fails: bool = False) -> None:
        self.received: list[Samples] = []
        self.sent: list[Samples] = []
        self.ends = 0
        self._fails = fails

    def on_audio(self, rx_audio: Samples, tx_audio: Samples) -> None:
        if self._fails:
            raise RuntimeError("the listener is gone")
        assert len(rx_audio) == len(tx_audio) > 0
        self.received.append(rx_audio)
        self.sent.append(tx_audio)

    def on_end(self) -> None:
        self.ends += 1

    @property
    def heard(self) -> Samples:
        return np.concatenate([silence(0), *self.received])


@pytest.fixture(scope="module")
def words() -> Samples:
    return speech("what is your address")


def spoken(harness: EngineHarness, call: CallAudio, sound: Samples) -> None:
    harness.port.write(call.slot, sound)


@pytest.mark.parametrize("listening", [True, False], ids=["with the agent", "connected with another party"])
def test_a_tap_gets_both_sides_from_its_beginning_on(listening: bool) -> None:
    harness = EngineHarness()
    caller = np.random.default_rng(1).integers(-3000, 3000, 8000 * 6).astype(np.int16)
    call, _, _ = recorded_call(harness, caller)
    call.set_listening(listening)
    harness.run(1000)
    tap = Tap()
    call.add_tap(tap)
    harness.run(40)
    agent = tone(500, 440)
    spoken(harness, call, agent)
    harness.run(1000)
    heard, said = tap.heard, np.concatenate(tap.sent)
    start = caller.tobytes().find(heard.tobytes())
    assert start >= 0
    assert start // 16 == pytest.approx(1000, abs=60)
    assert len(heard) >= 1000 * 8
    assert agent.tobytes() in said.tobytes()
    call.remove_tap(tap)
    harness.run(200)
    assert len(tap.heard) - len(heard) <= 160


def test_taps_change_nothing_of_what_is_recorded_and_read(words: Samples) -> None:
    caller = np.resize(words, 8000 * 3)
    recorded = []
    for taps in (0, 3):
        harness = EngineHarness()
        call, listener, recording = recorded_call(harness, caller)
        for _ in range(taps):
            call.add_tap(Tap())
        harness.run(2500)
        harness.engine.remove(call.slot)
        harness.run(20)
        recorded.append((recording.sound.tobytes(), [type(event) for event in listener.events]))
    assert recorded[0] == recorded[1]


def test_a_tap_ends_with_its_call(words: Samples) -> None:
    harness = EngineHarness()
    call, _, _ = recorded_call(harness, words)
    tap, late = Tap(), Tap()
    call.add_tap(tap)
    harness.run(100)
    assert tap.ends == 0
    harness.engine.remove(call.slot)
    harness.run(20)
    assert tap.ends == 1
    call.add_tap(late)
    assert late.ends == 1


def test_a_tap_that_fails_ends_alone(words: Samples) -> None:
    harness = EngineHarness()
    call, listener, _ = recorded_call(harness, np.resize(words, 8000))
    broken, whole = Tap(fails=True), Tap()
    call.add_tap(broken)
    call.add_tap(whole)
    harness.run(500)
    assert broken.ends == 1
    assert len(whole.heard) >= 450 * 8
    assert not [event for event in listener.events if "Failure" in type(event).__name__]
