"""Replays a recorded call through voice activity detection, turn taking and speech to text, faster than real time.

The clock stops while a model works: each tick waits for the results of the tick before. So the same recording and
settings give the same events every time, on a busy machine too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import count
from threading import get_ident
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from calls.conversation.speech_input import add_call, final_transcript, report_partial_transcript
from media.audio_port import Samples
from media.engine.call_audio import AudioFailure, CallAudio, CallEvent
from media.engine.engine import AudioEngine
from media.replay.recording_reader import RecordedCall, Ticks
from media.replay.replay_port import START_MS, ReplayPort
from media.turn_taking.events import AgentStopped, TurnEnded
from media.turn_taking.settings import TurnSettings
from models.protocols import EndOfTurn, EndOfTurnStream, SpeechToText, SpeechToTextStream
from trunkline.replay.turn_comparison import ReplayOutcome, outcome_of_events

PARTIAL_EVERY_MS: Final = 60
"""Partial results are read each time after so much audio, about as often as a recognizer has one in a call."""
YIELD_EVERY_TICKS: Final = 50
"""The event loop runs at least this often, so that the replay can be cancelled."""


@dataclass(frozen=True)
class ReplayModels:
    """The speech-to-text and end-of-turn models of a replay, and the language (a BCP 47 tag or None) of the call."""

    speech_to_text: SpeechToText
    end_of_turn: EndOfTurn
    language: str | None


@runtime_checkable
class DecodingStream(Protocol):
    """A recognizer's stream that can decode all its audio without flushing."""

    async def drain(self) -> str:
        """The partial text, after all audio so far has been decoded. Raises `ModelError`."""


class PacedStt:
    """A recognizer's stream whose results are waited for. `text`: the partial text of the turn at the last wait."""

    def __init__(self, models: ReplayModels, rate: int) -> None:
        self._stream: SpeechToTextStream = models.speech_to_text.open(
            rate=rate, language=models.language, on_words=lambda _: None
        )
        self._partial_every = PARTIAL_EVERY_MS * rate // 1000
        self._fed = 0
        """Samples since the last partial text."""
        self.text = ""

    def feed(self, samples: Samples) -> None:
        """Called by the engine."""
        self._fed += len(samples)
        self._stream.feed(samples)

    def reset(self) -> None:
        """Called by the engine."""
        self._fed, self.text = 0, ""
        self._stream.reset()

    async def new_text(self) -> str:
        """The partial text of the turn if it has changed; empty if not, or if little audio was fed since the last
        time."""
        if self._fed < self._partial_every:
            return ""
        self._fed = 0
        stream = self._stream  # a flush would finalize words, also in the middle of one
        text = await (stream.drain() if isinstance(stream, DecodingStream) else stream.flush())
        before, self.text = self.text, text
        return self.text if self.text != before else ""

    async def end_turn(self) -> str:
        """The final text of the turn."""
        self._fed, self.text = 0, ""
        return await self._stream.end_turn()

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


class PacedEndOfTurn:
    """An end-of-turn model's stream: results that are not there at once are delivered by `deliver`."""

    def __init__(self, stream: EndOfTurnStream) -> None:
        self._stream = stream
        self._pending: list[asyncio.Future[Callable[[], None]]] = []
        self.feed = stream.feed
        self.reset = stream.reset
        self.close = stream.close

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Called by the engine."""
        loop = asyncio.get_running_loop()
        pending: asyncio.Future[Callable[[], None]] = loop.create_future()
        immediate: list[float | None] = []
        thread, is_asking = get_ident(), True

        def relay(p: float | None) -> None:
            if is_asking and get_ident() == thread:
                immediate.append(p)
            else:
                loop.call_soon_threadsafe(pending.set_result, lambda: answer(p))

        self._stream.ask(relay)
        is_asking = False
        if immediate:
            answer(immediate[0])
        else:
            self._pending.append(pending)

    async def deliver(self) -> None:
        """Wait for the pending results, and deliver them from another thread, as in a call."""
        pending, self._pending = self._pending, []
        for each in pending:
            await asyncio.to_thread(await each)


class _EventCollector:
    """The engine's listener: collects all events, and those since the last `take_new`."""

    def __init__(self) -> None:
        self.events: list[CallEvent] = []
        self._new: list[CallEvent] = []

    def on_media_events(self, events: Sequence[CallEvent]) -> None:
        """Called by the engine."""
        self.events += events
        self._new += events

    def take_new(self) -> list[CallEvent]:
        """The events since the last call."""
        new, self._new = self._new, []
        return new


class Replay:
    """One run of a recording through its own engine. `audible` and `jitter_ms` are those of `ReplayPort`.
    `first_message_uninterruptible`: the agent's first words cannot be interrupted."""

    def __init__(
        self,
        recording: RecordedCall,
        audible: Ticks,
        settings: TurnSettings,
        models: ReplayModels,
        *,
        jitter_ms: NDArray[np.float64] | None = None,
        first_message_uninterruptible: bool = False,
    ) -> None:
        self._port = ReplayPort(recording, audible, np.zeros(recording.ticks) if jitter_ms is None else jitter_ms)
        self._settings = settings
        self._models = models
        self._uninterruptible = first_message_uninterruptible
        self._collector = _EventCollector()
        self._wordless: list[TurnEnded] = []

    async def run(self) -> ReplayOutcome:
        """Replay the recording to its end; only once. Raises `StartupError` without the voice activity model, and what
        the other models raise."""
        rate = self._port.rate(self._port.slot)
        engine = await asyncio.to_thread(AudioEngine, self._port, lambda work: work(), self._port.now_ns)
        with ExitStack() as stack:
            stack.callback(engine.close)
            stt = stack.enter_context(closing(PacedStt(self._models, rate)))
            stream = self._models.end_of_turn.open(rate=rate, language=self._models.language, partial=lambda: stt.text)
            end_of_turn = stack.enter_context(closing(PacedEndOfTurn(stream)))
            call = add_call(
                engine,
                self._port.slot,
                self._settings,
                self._collector,
                stt=stt,
                end_of_turn=end_of_turn,
                end_of_turn_latency_ms=self._models.end_of_turn.latency_ms,
            )
            call.set_uninterruptible(self._uninterruptible)
            engine.tick()  # adds the call; its audio begins at the next tick
            for tick in count():
                if not self._port.step():
                    break
                engine.tick()
                await self._handle_events(call, stt, end_of_turn)
                if tick % YIELD_EVERY_TICKS == 0:
                    await asyncio.sleep(0)
        return outcome_of_events(self._collector.events, self._wordless).shifted(-START_MS)

    async def _handle_events(self, call: CallAudio, stt: PacedStt, end_of_turn: PacedEndOfTurn) -> None:
        """React to the tick's events and results as the conversation of a call does, where it affects turn taking."""
        for event in self._collector.take_new():
            match event:
                case TurnEnded():
                    if not await final_transcript(stt):
                        self._wordless.append(event)
                case AgentStopped() if self._uninterruptible:
                    self._uninterruptible = False
                    call.set_uninterruptible(False)
                case AudioFailure(error=error):
                    raise error
                case _:
                    pass
        text = await stt.new_text()
        if text:
            report_partial_transcript(call, text, self._models.language)
        await end_of_turn.deliver()
