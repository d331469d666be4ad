"""Runs made calls through the server's audio engine, a recognizer and tone detection (`hear`), faster than real time:
the clock stops while a model works. Answer detection judges what was heard (`judge`)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np

from bench.answer_detection.corpus import Call
from bench.answer_detection.synthesis import CallAudio, SpokenWord
from calls.answer_detection.detector import TICK_MS as DETECTOR_TICK_MS
from calls.answer_detection.detector import AnswerDetector
from calls.answer_detection.events import AnswerEvent, AnswerKind, MessageMayStart, Verdict
from calls.answer_detection.phrases.languages import spotted_phrases
from calls.answer_detection.settings import AnswerDetectionSettings
from media.audio_port import TICK_MS, Samples
from media.call_progress.detector import CallProgressDetector
from media.call_progress.tones import Tone
from media.engine.call_audio import AudioFailure, CallEvent
from media.engine.engine import AudioEngine
from media.replay.recording_reader import RecordedCall
from media.replay.replay_port import START_MS, ReplayPort
from media.turn_taking.events import (
    SpeechResumed,
    SpeechStarted,
    SpeechStopped,
    TurnDropped,
    TurnEnded,
)
from media.turn_taking.settings import TurnSettings
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText

TURN_SETTINGS: Final = TurnSettings(fallback_silence_ms=500, speculative_silence_ms=None, post_speech_cooldown=0)
"""The end of speech is known after the default delay, as in a call. Without an end-of-turn model a turn ends after half
a second of quiet: a greeting is recognized in whole sentences."""
TEXT_DELAY_MS: Final = 200.0
"""Time from the end of audio to its text, as of a recognizer in a busy server."""
PARTIAL_EVERY_MS: Final = 200
QUIET_AFTER_MS: Final = 30_000
"""Quiet after the audio in which a window may close."""


class Recognizer(Protocol):
    """The recognizer of one call."""

    def feed(self, samples: Samples) -> None:
        """Called by the engine with the audio of turns."""

    def reset(self) -> None:
        """Called by the engine when a turn is dropped."""

    def spot(self, samples: Samples) -> Sequence[str]:
        """The phrases that were spotted once this audio of a tick was heard."""

    async def partial(self, now_ms: float) -> str:
        """The words of the turn so far."""

    async def end_turn(self, now_ms: float) -> str:
        """The words of the turn."""

    def close(self) -> None:
        """Frees it."""


class PocketsphinxRecognizer:
    """The recognizer in the box."""

    def __init__(self, speech_to_text: PocketsphinxSpeechToText, rate: int) -> None:
        self._stream = speech_to_text.open(rate=rate, language="en", on_words=lambda words: None)
        self.feed, self.reset = self._stream.feed, self._stream.reset
        self._spotted: list[str] = []
        phrases = tuple(spotted_phrases("en"))
        self._spotter = speech_to_text.open_spotter(rate=rate, phrases=phrases, on_phrase=self._spotted.append)

    def spot(self, samples: Samples) -> Sequence[str]:
        """See `Recognizer`."""
        self._spotter.feed(samples)
        self._spotter.wait_searched()
        spotted, self._spotted[:] = list(self._spotted), []
        return spotted

    def close(self) -> None:
        """See `Recognizer`."""
        self._stream.close()
        self._spotter.close()

    async def partial(self, now_ms: float) -> str:
        """See `Recognizer`."""
        return await self._stream.drain()

    async def end_turn(self, now_ms: float) -> str:
        """See `Recognizer`."""
        return await self._stream.end_turn()


class ScriptedRecognizer:
    """Knows the words of the script: a recognizer without errors."""

    def __init__(self, words: Sequence[SpokenWord]) -> None:
        self._words = deque(words)
        self._turn: list[str] = []

    def feed(self, samples: Samples) -> None:
        """See `Recognizer`."""

    def reset(self) -> None:
        """See `Recognizer`."""

    def spot(self, samples: Samples) -> Sequence[str]:
        """See `Recognizer`."""
        return ()

    async def partial(self, now_ms: float) -> str:
        """See `Recognizer`."""
        while self._words and self._words[0].end_ms <= now_ms:
            self._turn.append(self._words.popleft().text)
        return " ".join(self._turn)

    async def end_turn(self, now_ms: float) -> str:
        """See `Recognizer`."""
        text = await self.partial(now_ms)
        self._turn = []
        return text

    def close(self) -> None:
        """See `Recognizer`."""


@dataclass(frozen=True, slots=True)
class SpeechEdge:
    """Speech began or ended at `edge_ms`; known at `at_ms`."""

    at_ms: float
    edge_ms: float
    starts: bool


@dataclass(frozen=True, slots=True)
class Text:
    """A text of the recognizer."""

    at_ms: float
    words: str
    final: bool


@dataclass(frozen=True, slots=True)
class Spotted:
    """A phrase that was spotted."""

    at_ms: float
    phrase: str


@dataclass(frozen=True, slots=True)
class ToneFound:
    """A tone."""

    at_ms: float
    tone: Tone


Input = SpeechEdge | Text | Spotted | ToneFound


@dataclass(frozen=True)
class Heard:
    """All input of answer detection in a call, in order; times in ms since the answer, which is the beginning of the
    audio. `first_sound_ms` is that of `CallAudio`."""

    call: Call
    first_sound_ms: float
    length_ms: float
    inputs: tuple[Input, ...]
    sound_ms: tuple[float, ...] = ()
    """`CallProgressDetector.sound_ms` at each tick of the engine."""


@dataclass
class Outcome:
    """What answer detection made of a call. Times in ms since the answer."""

    call: Call
    first_sound_ms: float
    verdicts: list[Verdict] = field(default_factory=list)
    message_ms: float | None = None
    texts: list[str] = field(default_factory=list)
    speech_ends_ms: list[float] = field(default_factory=list)

    @property
    def kind(self) -> AnswerKind:
        """The last verdict."""
        return self.verdicts[-1].kind

    def decided_ms(self) -> float | None:
        """Time from the first sound to the first verdict that is right; None without one."""
        right = (verdict.at_ms for verdict in self.verdicts if verdict.kind is self.call.expected[0])
        at_ms = next(right, None)
        return None if at_ms is None else at_ms - self.first_sound_ms

    def wait_ms(self) -> float | None:
        """Time from the end of the last speech before the verdict `human` to that verdict; None without one."""
        at_ms = next((verdict.at_ms for verdict in self.verdicts if verdict.kind is AnswerKind.HUMAN), None)
        ends = [end for end in self.speech_ends_ms if at_ms is not None and end <= at_ms]
        return at_ms - ends[-1] if at_ms is not None and ends else None

    def machine_verdict(self) -> Verdict | None:
        """The first verdict that is neither a person nor silence."""
        people = (AnswerKind.HUMAN, AnswerKind.SILENCE)
        return next((verdict for verdict in self.verdicts if verdict.kind not in people), None)

    def take(self, events: Sequence[AnswerEvent]) -> None:
        """Note what the detector returned."""
        for event in events:
            match event:
                case Verdict():
                    self.verdicts.append(event)
                case MessageMayStart(at_ms=at_ms):
                    self.message_ms = at_ms


class _Listener:
    """Collects the engine's events."""

    def __init__(self) -> None:
        self._new: list[CallEvent] = []

    def on_media_events(self, events: Sequence[CallEvent]) -> None:
        """Called by the engine."""
        self._new += events

    def take(self) -> list[CallEvent]:
        """The events since the last call."""
        new, self._new = self._new, []
        return new


class _Hearing:
    """One call."""

    def __init__(self, call: Call, recognizer: Recognizer) -> None:
        self._rate = call.condition.rate
        self._recognizer = recognizer
        self._tones = CallProgressDetector(self._rate)
        self._last_partial = ""
        self._now = 0.0
        self.inputs: list[Input] = []
        self.sound_ms: list[float] = []

    async def run(self, samples: Samples) -> float:
        """Hear the whole audio. Returns its length, ms."""
        frame = self._rate * TICK_MS // 1000
        ticks = len(samples) // frame
        samples = samples[: ticks * frame]
        recording = RecordedCall(self._rate, samples, np.zeros_like(samples))
        port = ReplayPort(recording, np.zeros(ticks, np.bool_), np.zeros(ticks))
        listener = _Listener()
        engine = await asyncio.to_thread(AudioEngine, port, lambda work: work(), port.now_ns)
        with closing(engine):
            engine.add(port.slot, TURN_SETTINGS, listener).speech_sink = self._recognizer
            engine.tick()  # adds the call; its audio begins at the next tick
            for tick in range(ticks):
                port.step()
                engine.tick()
                self._now = (tick + 1) * TICK_MS
                for tone in self._tones.feed(samples[tick * frame : (tick + 1) * frame]):
                    self.inputs.append(ToneFound(self._now, tone))
                for phrase in self._recognizer.spot(samples[tick * frame : (tick + 1) * frame]):
                    self.inputs.append(Spotted(self._now + TEXT_DELAY_MS, phrase))
                self.sound_ms.append(self._tones.sound_ms)
                for event in listener.take():
                    await self._on_event(event)
                if self._now % PARTIAL_EVERY_MS == 0:
                    await self._read_partial()
        return self._now

    async def _on_event(self, event: CallEvent) -> None:
        match event:
            case SpeechStarted(speech_start_ms=start_ms):
                self.inputs.append(SpeechEdge(self._now, start_ms - START_MS, True))
            case SpeechResumed():
                self.inputs.append(SpeechEdge(self._now, self._now, True))
            case SpeechStopped(speech_end_ms=end_ms):
                self.inputs.append(SpeechEdge(self._now, end_ms - START_MS, False))
            case TurnEnded():
                self._add_text(await self._recognizer.end_turn(self._now), True)
            case TurnDropped():
                self.inputs.append(SpeechEdge(self._now, self._now, False))
            case AudioFailure(error=error):
                raise error

    async def _read_partial(self) -> None:
        text = await self._recognizer.partial(self._now)
        if text != self._last_partial:
            self._add_text(text, False)

    def _add_text(self, words: str, final: bool) -> None:
        self._last_partial = "" if final else words
        self.inputs.append(Text(self._now + TEXT_DELAY_MS, words, final))


async def hear(call: Call, audio: CallAudio, recognizer: Recognizer) -> Heard:
    """What is heard in a call; closes the recognizer."""
    with closing(recognizer):
        hearing = _Hearing(call, recognizer)
        length_ms = await hearing.run(audio.samples)
    inputs = sorted(hearing.inputs, key=lambda each: each.at_ms)
    return Heard(call, audio.first_sound_ms, length_ms, tuple(inputs), tuple(hearing.sound_ms))


def judge(heard: Heard, *, with_words: bool = True) -> Outcome:
    """The outcome of a call; the verdicts until the window closes, for which there is quiet after the audio."""
    detector = AnswerDetector(AnswerDetectionSettings(heard.call.language))
    outcome = Outcome(heard.call, heard.first_sound_ms)
    detector.answered(0.0)
    inputs = deque(each for each in heard.inputs if with_words or not isinstance(each, Text | Spotted))
    inputs.append(SpeechEdge(heard.length_ms + TEXT_DELAY_MS, heard.length_ms, False))
    sound_ms = iter(heard.sound_ms)
    now = 0.0
    while not detector.closed and now < heard.length_ms + QUIET_AFTER_MS:
        now += TICK_MS
        sounding_ms = next(sound_ms, 0.0)
        while inputs and inputs[0].at_ms <= now:
            outcome.take(_put(detector, each := inputs.popleft()))
            if isinstance(each, SpeechEdge) and not each.starts:
                outcome.speech_ends_ms.append(each.edge_ms)
            if isinstance(each, Text) and each.final:
                outcome.texts.append(each.words)
        if now % DETECTOR_TICK_MS == 0:
            outcome.take(detector.tick(now, sounding_ms))
    return outcome


def _put(detector: AnswerDetector, each: Input) -> list[AnswerEvent]:
    match each:
        case SpeechEdge(at_ms=at_ms, edge_ms=edge_ms, starts=True):
            return detector.speech_started(at_ms, edge_ms)
        case SpeechEdge(at_ms=at_ms, edge_ms=edge_ms):
            return detector.speech_stopped(at_ms, edge_ms)
        case Text(at_ms=at_ms, words=words, final=True):
            return detector.final_text(at_ms, words)
        case Text(at_ms=at_ms, words=words):
            return detector.partial_text(at_ms, words)
        case Spotted(at_ms=at_ms, phrase=phrase):
            return detector.phrase_spotted(at_ms, phrase)
        case ToneFound(at_ms=at_ms, tone=tone):
            return detector.tone(at_ms, tone)
