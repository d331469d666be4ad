"""Answered calls in virtual time: what is said and sounds, and what the detector makes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calls.answer_detection.detector import TICK_MS, AnswerDetector
from calls.answer_detection.events import AnswerEvent, AnswerKind, MessageMayStart, Rule, Verdict, WindowClosed
from calls.answer_detection.settings import AnswerDetectionSettings
from media.call_progress.tones import Tone, ToneKind

HUMAN, VOICEMAIL, SILENCE = AnswerKind.HUMAN, AnswerKind.VOICEMAIL, AnswerKind.SILENCE
SCREENING, MENU, HOLD = AnswerKind.CALL_SCREENING, AnswerKind.MENU, AnswerKind.HOLD_QUEUE
UNAVAILABLE, FAX = AnswerKind.MAILBOX_UNAVAILABLE, AnswerKind.FAX
GREETING = "you've reached anna i can't come to the phone right now please leave a message"
STRONG = f"{GREETING} after the tone"
SCREEN = "record your name and reason for calling and i'll see if this person is available"

START_LAG_MS = 64
STOP_LAG_MS = 120
"""Voice activity detection reports an end after this quiet: the default `turnEndpointDelay`, and a tick."""
TONE_LAG_MS = 250
Input = tuple[float, Callable[[AnswerDetector, float], list[AnswerEvent]]]


def speech(start: float, end: float | None, stop_lag_ms: float = STOP_LAG_MS) -> list[Input]:
    """Speech without words; `end` None: voice activity detection never finds its end."""
    started: Input = (start + START_LAG_MS, lambda detector, at: detector.speech_started(at, start))
    if end is None:
        return [started]
    return [started, (end + stop_lag_ms, lambda detector, at: detector.speech_stopped(at, end))]


def partial(at: float, text: str) -> list[Input]:
    """A partial text."""
    return [(at, lambda detector, now: detector.partial_text(now, text))]


def final(at: float, text: str) -> list[Input]:
    """A final text."""
    return [(at, lambda detector, now: detector.final_text(now, text))]


def spotted(at: float, phrase: str) -> list[Input]:
    """A phrase was spotted in the audio."""
    return [(at, lambda detector, now: detector.phrase_spotted(now, phrase))]


def say(start: float, end: float, text: str) -> list[Input]:
    """Speech; its words are known, all at its end, 200 ms after that is found."""
    return [*speech(start, end), *final(end + STOP_LAG_MS + 200, text)]


def tone(kind: ToneKind, start: float, end: float, *, heard_as_speech: bool = False) -> list[Input]:
    """A tone, which voice activity detection may take for speech."""
    found = Tone(kind, start, end, end + TONE_LAG_MS, 1000.0)
    return [
        *(speech(start, end) if heard_as_speech else []),
        (found.detected_ms, lambda detector, at: detector.tone(at, found)),
    ]


def failed(at: float) -> list[Input]:
    """The recognizer fails."""
    return [(at, lambda detector, now: detector.recognizer_failed(now))]


def listening_again(at: float) -> list[Input]:
    """A hold ends, in which the clock stood still."""
    return [(at, lambda detector, now: detector.listening_again(now))]


def sound(start: float, end: float) -> list[Input]:
    """Uninterrupted sound in which voice activity detection finds no speech."""
    times = range(round(start), round(end) + 1, TICK_MS)
    return [(at, lambda detector, now: detector.tick(now, now - start)) for at in times]


@dataclass(frozen=True)
class Result:
    """The events of a call."""

    events: list[AnswerEvent]

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdicts in order."""
        return [event for event in self.events if isinstance(event, Verdict)]

    @property
    def kinds(self) -> list[AnswerKind]:
        """Their kinds."""
        return [verdict.kind for verdict in self.verdicts]

    @property
    def rules(self) -> list[Rule]:
        """The rules that decided."""
        return [verdict.evidence.rule for verdict in self.verdicts]

    @property
    def message(self) -> MessageMayStart | None:
        """The event that a message may start."""
        return next((event for event in self.events if isinstance(event, MessageMayStart)), None)

    @property
    def closed_ms(self) -> float | None:
        """When the window closed."""
        return next((event.at_ms for event in self.events if isinstance(event, WindowClosed)), None)


def answer(
    *inputs: list[Input], language: str | None = "en", answered_ms: float | None = 0.0, until_ms: float = 30_000
) -> Result:
    """A call: the inputs in order of their times, and ticks."""
    detector = AnswerDetector(AnswerDetectionSettings(language))
    ticks: list[Input] = [(at, AnswerDetector.tick) for at in range(0, round(until_ms) + 1, TICK_MS)]
    starts: list[Input] = [] if answered_ms is None else [(answered_ms, AnswerDetector.answered)]
    timed = sorted([*starts, *(each for some in inputs for each in some), *ticks], key=lambda each: each[0])
    return Result([event for at, put in timed for event in put(detector, at)])


def without_ticks(*inputs: list[Input], language: str | None = "en") -> AnswerDetector:
    """A call, answered at 0, whose ticks are among its inputs."""
    detector = AnswerDetector(AnswerDetectionSettings(language))
    detector.answered(0)
    for at, put in sorted((each for some in inputs for each in some), key=lambda each: each[0]):
        put(detector, at)
    return detector


def heard(*inputs: list[Input], until_ms: float) -> AnswerDetector:
    """A detector that was answered at 0 and has got the inputs until then."""
    detector = AnswerDetector(AnswerDetectionSettings("en"))
    detector.answered(0)
    for at, put in sorted([each for some in inputs for each in some], key=lambda each: each[0]):
        if at <= until_ms:
            put(detector, at)
    detector.tick(until_ms)
    return detector
