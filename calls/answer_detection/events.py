"""Verdicts and events of answer detection."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class AnswerKind(StrEnum):
    """What answered the call."""

    HUMAN = "human"
    VOICEMAIL = "voicemail"
    MAILBOX_UNAVAILABLE = "mailbox_unavailable"
    """Nobody can be reached and no message left: the mailbox is full, the number is not in service, busy."""
    CALL_SCREENING = "call_screening"
    """An assistant that asks for name and reason before it connects."""
    MENU = "menu"
    HOLD_QUEUE = "hold_queue"
    FAX = "fax"
    SILENCE = "silence"


class Rule(StrEnum):
    """The rule that decided."""

    SHORT_ANSWER = "short_answer"
    """Short speech, then quiet."""
    SPEECH_THEN_QUIET = "speech_then_quiet"
    """Longer speech without words of a machine, then quiet."""
    LIVE_WORDS = "live_words"
    """Words that only a listener says, then quiet."""
    GREETING_WORDS = "greeting_words"
    """The recognizer has a short answer, though voice activity detection has not seen its beginning or end."""
    PHRASE = "phrase"
    """Words that only machines say."""
    HINTS = "hints"
    """Two different things that machines say, and nothing that only people say."""
    CADENCE = "cadence"
    """Long speech without a pause, whose words are not known."""
    TONE = "tone"
    MUSIC = "music"
    """Uninterrupted sound that is neither speech nor a tone."""
    NO_SPEECH = "no_speech"
    WINDOW_OVER = "window_over"
    """Speech until the end of the window without evidence of a machine."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The rule that decided, and its words or tone ("after the tone"), or the length of the speech ("640 ms")."""

    rule: Rule
    detail: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict, which holds until another one `replaces` it or the window closes."""

    at_ms: float
    kind: AnswerKind
    evidence: Evidence
    replaces: AnswerKind | None = None


@dataclass(frozen=True, slots=True)
class MessageMayStart:
    """The voicemail records now. At most once, and only while the verdict is `voicemail`."""

    at_ms: float
    reason: Literal["beep", "quiet"]


@dataclass(frozen=True, slots=True)
class WindowClosed:
    """The verdict is final; the detector ignores all further input."""

    at_ms: float
    kind: AnswerKind


AnswerEvent = Verdict | MessageMayStart | WindowClosed
