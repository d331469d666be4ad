"""Runs a recorded call through voice activity, turn taking and speech to text again, as fast as the machine can.

The clock stands still while a model works: each tick waits until the words and the judgement of the tick before are
there. So the same recording and settings give the same events every time, however busy the machine is.
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

from media.audio_port import Samples
from media.engine.call_audio import AudioFailure, CallAudio, CallEvent
from media.engine.engine import AudioEngine
from media.replay.recording_reader import RecordedCall, Ticks
from media.replay.replay_port import START_MS, ReplayPort
from media.turns.events import AgentStopped, TurnEnded
from media.turns.settings import TurnSettings
from models.protocols import EndOfTurn, EndOfTurnStream, SpeechToText, SpeechToTextStream
from models.turn_detection.backchannels import is_backchannel
from trunkline.replay.turn_comparison import ReplayOutcome, of_events

WORDS_EVERY_MS: Final = 60
"""Words are looked for after so much sound of a turn, about as often as a recognizer does in a call."""
BREATH_TICKS: Final = 50
"""So often the event loop gets a chance to see that it should stop, whatever the call is like."""


@dataclass(frozen=True)
class ReplayModels:
    """The speech-to-text and end-of-turn models of a replay, and the language (a BCP 47 tag or None) of the call."""

    speech_to_text: SpeechToText
    end_of_turn: EndOfTurn
    language: str | None


@runtime_checkable
class DecodingStream(Protocol):
    """A recognizer's stream that can be waited for without an end of anything."""

    async def decoded(self) -> str:
        """The words so far, once all that was fed has been decoded. Raises `ModelError`."""


class PacedStt:
    """A recognizer's stream that is waited for. `text` is what was recognized up to the last wait."""

    def __init__(self, hearing: ReplayModels, rate: int) -> None:
        self._stream: SpeechToTextStream = hearing.speech_to_text.open(
            rate=rate, language=hearing.language, on_words=lambda _: None
        )
        self._due = WORDS_EVERY_MS * rate // 1000
        self._fed = 0
        self.text = ""

    def feed(self, samples: Samples) -> None:
        """For the engine."""
        self._fed += len(samples)
        self._stream.feed(samples)

    def reset(self) -> None:
        """For the engine."""
        self._fed, self.text = 0, ""
        self._stream.reset()

    async def new_words(self) -> str:
        """The text of the turn, if there is a new one; at once when little was fed since the last time."""
        if self._fed < self._due:
            return ""
        self._fed = 0
        stream = self._stream  # whose settled words would stay, wherever in a word it was asked
        words = await (stream.decoded() if isinstance(stream, DecodingStream) else stream.flush())
        before, self.text = self.text, words
        return self.text if self.text != before else ""

    async def end_turn(self) -> str:
        """The final text of the turn."""
        self._fed, self.text = 0, ""
        return (await self._stream.end_turn()).strip()

    def close(self) -> None:
        """Free the stream."""
        self._stream.close()


class PacedTurnDetector:
    """An end-of-turn model's stream whose answers are kept until they are asked for, if they do not come at once."""

    def __init__(self, stream: EndOfTurnStream) -> None:
        self._stream = stream
        self._late: list[asyncio.Future[Callable[[], None]]] = []
        self.feed = stream.feed
        self.reset = stream.reset
        self.close = stream.close

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """For the engine."""
        loop = asyncio.get_running_loop()
        late: asyncio.Future[Callable[[], None]] = loop.create_future()
        at_once: list[float | None] = []
        here, asking = get_ident(), True

        def relay(p: float | None) -> None:
            if asking and get_ident() == here:
                at_once.append(p)
            else:
                loop.call_soon_threadsafe(late.set_result, lambda: answer(p))

        self._stream.ask(relay)
        asking = False
        if at_once:
            answer(at_once[0])
        else:
            self._late.append(late)

    async def answers(self) -> None:
        """Wait for the answers that did not come at once, and hand them over as from another thread."""
        late, self._late = self._late, []
        for each in late:
            await asyncio.to_thread(await each)


class _CollectedEvents:
    """The listener: all events, and those of the tick."""

    def __init__(self) -> None:
        self.events: list[CallEvent] = []
        self._new: list[CallEvent] = []

    def media_events(self, events: Sequence[CallEvent]) -> None:
        """From the engine."""
        self.events += events
        self._new += events

    def take(self) -> list[CallEvent]:
        """Those since the last time."""
        new, self._new = self._new, []
        return new


class Replay:
    """One run of a recording through an engine of its own; for `audible` and `jitter_ms` see `ReplayPort`. `protected`:
    what the agent says first cannot be interrupted."""

    def __init__(
        self,
        sound: RecordedCall,
        audible: Ticks,
        settings: TurnSettings,
        hearing: ReplayModels,
        *,
        jitter_ms: NDArray[np.float64] | None = None,
        protected: bool = False,
    ) -> None:
        self._port = ReplayPort(sound, audible, np.zeros(sound.ticks) if jitter_ms is None else jitter_ms)
        self._settings = settings
        self._models = hearing
        self._protected = protected
        self._kept = _CollectedEvents()
        self._wordless: list[TurnEnded] = []

    async def run(self) -> ReplayOutcome:
        """To the end of the recording, once. Raises `StartupError` without the voice activity model, and what the
        other models raise."""
        rate = self._port.rate(self._port.slot)
        engine = await asyncio.to_thread(AudioEngine, self._port, lambda work: work(), self._port.now_ns)
        with ExitStack() as stack:
            stack.callback(engine.close)
            stt = stack.enter_context(closing(PacedStt(self._models, rate)))
            opened = self._models.end_of_turn.open(rate=rate, language=self._models.language, partial=lambda: stt.text)
            turn_detector = stack.enter_context(closing(PacedTurnDetector(opened)))
            ahead_ms = self._models.end_of_turn.latency_ms
            call = engine.add(self._port.slot, self._settings, self._kept, ask_ahead_ms=ahead_ms)
            call.speech_sink, call.end_of_turn_sink = stt, turn_detector
            call.set_uninterruptible(self._protected)
            engine.tick()  # takes the call in; its sound begins with the next one
            for tick in count():
                if not self._port.step():
                    break
                engine.tick()
                await self._follow(call, stt, turn_detector)
                if tick % BREATH_TICKS == 0:
                    await asyncio.sleep(0)
        return of_events(self._kept.events, self._wordless).moved(-START_MS)

    async def _follow(self, call: CallAudio, stt: PacedStt, turn_detector: PacedTurnDetector) -> None:
        """What the conversation does in a call, as far as turn taking hears of it."""
        for event in self._kept.take():
            match event:
                case TurnEnded():
                    if not await stt.end_turn():
                        self._wordless.append(event)
                case AgentStopped() if self._protected:
                    self._protected = False
                    call.set_uninterruptible(False)
                case AudioFailure(error=error):
                    raise error
                case _:
                    pass
        words = await stt.new_words()
        if words:
            call.on_transcript(is_backchannel(words, self._models.language))
        await turn_detector.answers()
