"""A call whose audio is only recorded and played, while its caller talks with another party."""

from __future__ import annotations

from queue import SimpleQueue

import numpy as np
import pytest
from numpy.typing import NDArray

from media.audio_port import TICK_MS, Samples, row_of
from media.engine.call_audio import AudioFailure, UtterancePlayed
from media.engine.engine import IDLE_TICKS, REST_TICKS
from media.turn_taking.events import SpeechStarted, TurnEnded
from media.turn_taking.settings import UTTERANCE_SILENCE_MS, TurnSettings
from tests.fakes.fake_audio_port import ArrayPort
from tests.fakes.scripted_call import AlwaysEndOfTurn
from tests.media.engine_harness import NO_MODEL, EngineHarness, Listener, recorded_call
from tests.media.speech import silence, speech, tone


@pytest.fixture(scope="module")
def words() -> Samples:
    return speech("what is your address")


def test_nothing_that_is_said_meanwhile_takes_a_turn(words: Samples) -> None:
    harness = EngineHarness()
    call, listener, speech_sink = harness.call(np.concatenate([silence(500), words, silence(1500)]))
    call.set_listening(False)
    harness.run(4000)
    assert listener.events == []
    assert speech_sink.fed == []
    assert harness.engine.stats.windows_run == 0


def test_an_open_turn_is_dropped_without_an_event(words: Samples) -> None:
    harness = EngineHarness()
    call, listener, speech_sink = harness.call(np.concatenate([silence(500), words, silence(1500)]))
    harness.run(900)
    assert len(listener.of(SpeechStarted)) == 1
    call.set_listening(False)
    harness.run(3000)
    assert listener.of(TurnEnded) == []
    assert speech_sink.discarded == 1


@pytest.mark.parametrize("away_ms", [400, 6000])
def test_the_caller_is_heard_again_from_the_return_on(words: Samples, away_ms: int) -> None:
    harness = EngineHarness()
    away = np.resize(words, away_ms * 8)
    call, listener, speech_sink = harness.call(np.concatenate([away, silence(1000), words, silence(1500)]))
    call.set_listening(False)
    harness.run(away_ms)
    call.set_listening(True)
    harness.run(1000)
    before = len(listener.of(SpeechStarted))
    harness.run(3500)
    (ended,) = listener.of(TurnEnded)
    assert before == 0
    assert ended.speech_end_ms == pytest.approx(harness.start_ms + away_ms + 1000 + len(words) / 8, abs=60)
    assert np.trim_zeros(speech_sink.sound).tobytes() in np.concatenate([silence(300), words, silence(1500)]).tobytes()


def test_the_recording_has_no_gap(words: Samples) -> None:
    harness = EngineHarness()
    caller = np.resize(words, 8000 * 8)
    call, _, recording = recorded_call(harness, caller)
    harness.run(1000)
    call.set_listening(False)
    harness.run(5000)
    call.set_listening(True)
    harness.run(1500)
    harness.engine.remove(call.slot)
    harness.run(20)
    got = np.concatenate(recording.received)
    assert recording.closed
    assert len(got) >= 7500 * 8 - 320
    assert np.array_equal(got, caller[: len(got)])


class CountingPort(ArrayPort):
    """Counts the reads that got audio of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = np.zeros(self.rows, np.int64)

    def read(
        self,
        heard: Samples,
        said: Samples,
        counts: NDArray[np.int32],
        info: NDArray[np.int64],
        least: NDArray[np.int32],
    ) -> int:
        upper = super().read(heard, said, counts, info, least)
        self.reads += counts > 0
        return upper


def test_audio_that_is_only_recorded_is_read_four_times_a_second(words: Samples) -> None:
    port = CountingPort()
    harness = EngineHarness(port=port)
    call, _, recording = recorded_call(harness, np.resize(words, 8000 * 8))
    other, _, _ = recorded_call(harness, np.resize(words, 8000 * 8))
    call.set_listening(False)
    harness.run(20)
    before = port.reads.copy()
    harness.run(2000)
    assert (port.reads - before)[[row_of(call.slot), row_of(other.slot)]].tolist() == [7, 100]
    assert [len(each) for each in recording.received] == [8 * 540, 8 * 520, 8 * 520], "half a second at a time"


@pytest.mark.parametrize("how", ["remove", "close"])
def test_a_recording_has_its_end(words: Samples, how: str) -> None:
    harness = EngineHarness()
    caller = np.resize(words, 8000 * 8)
    call, _, recording = recorded_call(harness, caller)
    call.set_listening(False)
    harness.run(1240)
    if how == "remove":
        harness.engine.remove(call.slot)
        harness.engine.tick()
    else:
        harness.engine.close()
    got = np.concatenate(recording.received)
    assert recording.closed
    assert np.array_equal(got, caller[: 1240 * 8])


def test_a_monitor_hears_nothing_from_before_it_was_set(words: Samples) -> None:
    harness = EngineHarness()
    sent = np.resize(words, 8000 * 4)
    call, _, _ = harness.call(sent)
    call.set_listening(False)
    harness.run(1240)
    call.monitor = monitor = CollectedMonitor()
    harness.run(1000)
    received = np.concatenate(monitor.samples)
    assert len(monitor.samples) == 50
    assert np.array_equal(received, sent[2240 * 8 - len(received) : 2240 * 8])
    assert len(received) == 980 * 8, "it hears all from the next tick on"


class WaitingPort(ArrayPort):
    """Passes as many ticks as the engine waits for, and has the number of the latest wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: SimpleQueue[int] = SimpleQueue()

    def wait(self, timeout_ms: int, ticks: int = 1) -> bool:
        assert timeout_ms > ticks * TICK_MS
        self.waits.put(ticks)
        for _ in range(ticks):
            self.step()
        return True

    def until_waits_for(self, ticks: int) -> None:
        while self.waits.get(timeout=10) != ticks:
            pass


def test_the_engine_rests_while_no_call_is_heard_and_nothing_is_said(words: Samples) -> None:
    port = WaitingPort()
    engine = EngineHarness(port=port).engine
    engine.start()
    try:
        port.until_waits_for(IDLE_TICKS)
        call = engine.add(port.open(8000, words), NO_MODEL, Listener())
        port.until_waits_for(1)
        call.set_listening(False)
        port.until_waits_for(REST_TICKS)
        wakes = port.wakes
        call.playout.begin("one moment")
        assert port.wakes == wakes + 1
        port.until_waits_for(1)
        call.playout.write(tone(400, 8000))
        call.playout.end()
        port.until_waits_for(REST_TICKS)
        call.monitor = CollectedMonitor()
        port.until_waits_for(1)
        engine.remove(call.slot)
        port.until_waits_for(IDLE_TICKS)
    finally:
        engine.close()


def test_the_agent_is_played_and_reported_meanwhile(words: Samples) -> None:
    harness = EngineHarness()
    call, listener, _ = harness.call(np.resize(words, 8000 * 3))
    call.set_listening(False)
    harness.run(100)
    call.playout.begin("one moment")
    call.playout.write(tone(400, 8000))
    call.playout.end()
    harness.run(1000)
    (played,) = listener.of(UtterancePlayed)
    assert played.utterance.text == "one moment"
    assert [type(event) for event in listener.events] == [UtterancePlayed]


def test_other_calls_are_heard(words: Samples) -> None:
    harness = EngineHarness()
    caller = np.concatenate([silence(500), words, silence(1500)])
    call, _, _ = harness.call(caller)
    _, listener, _ = harness.call(caller)
    call.set_listening(False)
    harness.run(4000)
    assert len(listener.of(TurnEnded)) == 1


class CollectedMonitor:
    """Keeps what it gets; `error` is raised instead."""

    def __init__(self, error: Exception | None = None) -> None:
        self.samples: list[Samples] = []
        self.times: list[tuple[float, float]] = []
        self.error = error

    def on_tick(self, now_ms: float, samples: Samples, end_ms: float) -> None:
        if self.error is not None:
            raise self.error
        self.samples.append(samples)
        self.times.append((now_ms, end_ms))


@pytest.mark.parametrize("listening", [True, False])
def test_a_monitor_gets_all_received_audio_with_its_arrival(words: Samples, listening: bool) -> None:
    harness = EngineHarness()
    sent = np.concatenate([silence(500), words, silence(3000)])
    call, _, _ = harness.call(sent)
    call.set_listening(listening)
    call.monitor = monitor = CollectedMonitor()
    harness.run(3000)
    received = np.concatenate(monitor.samples)
    assert len(received) == 3000 * 8
    first = np.flatnonzero(received)[0] - np.flatnonzero(sent)[0]
    assert np.array_equal(received[:16_000], np.concatenate([silence(0), sent])[-first : 16_000 - first])
    steps = np.diff(np.array(monitor.times), axis=0)
    assert steps == pytest.approx(20, abs=1)
    assert all(now - end == pytest.approx(0, abs=1) for now, end in monitor.times)


def test_an_error_of_a_monitor_ends_its_call_alone(words: Samples) -> None:
    harness = EngineHarness()
    call, listener, _ = harness.call(words)
    _, other, _ = harness.call(np.concatenate([silence(500), words, silence(1500)]))
    call.monitor = CollectedMonitor(ValueError("broken"))
    harness.run(2500)
    assert isinstance(listener.of(AudioFailure)[0].error, ValueError)
    assert other.of(AudioFailure) == []
    assert other.of(SpeechStarted)


@pytest.mark.parametrize(("pause_ms", "utterances"), [(300, 1), (1000, 2)])
def test_silence_alone_ends_what_a_party_says_to_another_one(words: Samples, pause_ms: int, utterances: int) -> None:
    harness = EngineHarness()
    sure = TurnSettings(turn_endpoint_delay=100, ultravad_eot_threshold=0.1)
    call, listener, _ = harness.call(
        np.concatenate([silence(500), words, silence(pause_ms), words, silence(2000)]), settings=sure
    )
    call.end_of_turn_sink = AlwaysEndOfTurn()
    call.set_listening(False)
    call.set_listening(True, bridged=True)
    harness.run(500 + 2 * len(words) // 8 + pause_ms + 2000)
    ends = listener.of(TurnEnded)
    assert [end.reason for end in ends] == ["delay"] * utterances
    assert all(end.at_ms - end.speech_end_ms >= UTTERANCE_SILENCE_MS for end in ends)
