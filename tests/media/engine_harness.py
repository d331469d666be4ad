"""An audio engine with its port, clock and event loop on arrays, and its listeners and sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from media.audio_port import TICK_MS, Samples
from media.engine.call_audio import CallAudio, CallEvent
from media.engine.engine import AudioEngine
from media.recording import Recording, RecordingResult
from media.turn_taking.settings import TurnSettings
from tests.fakes.fake_audio_port import ArrayPort, FakeEventLoop
from tests.media.speech import silence

Event = TypeVar("Event")
NO_MODEL = TurnSettings(ultravad_eot_threshold=None)


class Listener:
    """Collects the events of a call; `react` is called with each."""

    def __init__(self) -> None:
        self.events: list[CallEvent] = []
        self.react: Callable[[CallEvent], None] = lambda _: None

    def on_media_events(self, events: Sequence[CallEvent]) -> None:
        for event in events:
            self.events.append(event)
            self.react(event)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


class RecordingSpeechSink:
    """Collects the samples fed."""

    def __init__(self) -> None:
        self.fed: list[Samples] = []
        self.discarded = 0

    def feed(self, samples: Samples) -> None:
        self.fed.append(samples)

    def reset(self) -> None:
        self.discarded += 1

    @property
    def sound(self) -> Samples:
        return np.concatenate([silence(0), *self.fed])


class FailingSpeechSink(RecordingSpeechSink):
    """Raises on the first samples."""

    def feed(self, samples: Samples) -> None:
        raise RuntimeError("the recognizer is gone")


class AnsweringEndOfTurnSink:
    """Answers each query at once with the next answer, and collects the samples fed."""

    def __init__(self, answers: Iterator[float | None]) -> None:
        self.answers = answers
        self.fed: list[Samples] = []
        self.discarded = 0

    def feed(self, samples: Samples) -> None:
        self.fed.append(samples)

    def ask(self, answer: Callable[[float | None], None]) -> None:
        answer(next(self.answers))

    def reset(self) -> None:
        self.discarded += 1


class WaitingEndOfTurnSink(AnsweringEndOfTurnSink):
    """Holds the queries of the first turn; `answers_at_the_end`: answers them on the tick thread when that turn is
    over. Answers those of later turns with 0.9."""

    def __init__(self, *, answers_at_the_end: bool) -> None:
        super().__init__(iter([0.9]))
        self.waiting: list[Callable[[float | None], None]] = []
        self._answers = answers_at_the_end

    def ask(self, answer: Callable[[float | None], None]) -> None:
        if self.discarded:
            super().ask(answer)
        else:
            self.waiting.append(answer)

    def reset(self) -> None:
        super().reset()
        while self._answers and self.waiting:
            self.waiting.pop()(None)


class CollectedRecording(Recording):
    """Keeps the received audio in memory, with silence where it has none."""

    def __init__(self, zero_ms: float | None = None) -> None:
        def ignore(_: RecordingResult) -> None:
            return

        super().__init__(Path("unused.wav"), 8000, "call", ignore, zero_ms)
        self.received: list[Samples] = []
        self.closed = False
        self._pending = 0

    def append(self, rx_audio: Samples, tx_audio: Samples) -> None:
        assert len(rx_audio) == len(tx_audio)
        if self._pending:
            self.received.append(np.zeros(self._pending, np.int16))
            self._pending = 0
        self.received.append(rx_audio)

    def add_silence(self, frames: int) -> None:
        self._pending += frames

    def close(self) -> None:
        self.closed = True

    @property
    def sound(self) -> Samples:
        """All of it, int16[n]."""
        return np.concatenate([silence(0), *self.received])


class EngineHarness:
    """An engine with its port, clock and loop; `start_ms` is the begin of the first call's audio."""

    def __init__(self, rows: int = 4, port: ArrayPort | None = None) -> None:
        self.port = port or ArrayPort(rows)
        self.loop = FakeEventLoop()
        self.engine = AudioEngine(self.port, self.loop.post, lambda: self.port.now_ms * 1_000_000)
        self.start_ms = self.port.now_ms

    def call(
        self, caller: Samples, settings: TurnSettings = NO_MODEL, rate: int = 8000, jitter_ms: int = 0
    ) -> tuple[CallAudio, Listener, RecordingSpeechSink]:
        listener, speech_sink = Listener(), RecordingSpeechSink()
        call = self.engine.add(self.port.open(rate, caller, jitter_ms), settings, listener)
        call.speech_sink = speech_sink
        self.engine.tick()
        return call, listener, speech_sink

    def run(self, ms: int) -> None:
        for _ in range(ms // TICK_MS):
            self.port.step()
            self.engine.tick()
            self.loop.run()

    def stall(self, ms: int) -> None:
        """The pump continues, the tick thread does not."""
        for _ in range(ms // TICK_MS):
            self.port.step()


def recorded_call(
    harness: EngineHarness, caller: Samples, zero_ms: float | None = None
) -> tuple[CallAudio, Listener, CollectedRecording]:
    """A call with a recording, whose time 0 is `zero_ms`."""
    listener, recording = Listener(), CollectedRecording(zero_ms)
    call = harness.engine.add(harness.port.open(8000, caller, 0), NO_MODEL, listener, recording)
    call.speech_sink = RecordingSpeechSink()
    harness.engine.tick()
    return call, listener, recording
