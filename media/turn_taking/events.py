"""Events of turn detection and barge-in. `at_ms` of an event is the time of the decision on the arrival clock
(CLOCK_MONOTONIC, ms); the true start and end of speech, which lie before it, are fields of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TurnEndReason = Literal["model", "delay", "fallback", "typed"]
"""What ended the turn: the end-of-turn model, `turnEndpointDelay` alone, or `fallbackSilenceMs`; `typed`: its words
were typed in a chat."""
TurnDropReason = Literal["short", "cooldown", "protected", "no_words", "backchannel"]
"""Why speech takes no turn: shorter than `minTurnDuration`; over before the end of `postSpeechCooldown`; over an
uninterruptible message; over the agent without words; over the agent with backchannels alone ("mm-hmm")."""


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The caller began to speak at `speech_start_ms`. One for each `TurnEnded` or `TurnDropped` that follows."""

    at_ms: float
    speech_start_ms: float
    reopens: bool = False
    """The speech continues the turn before it: the agent has not been audible since that ended, or only for a moment.
    It does not count as speech over the agent; if the agent becomes audible, it pauses at once, and any word interrupts
    it."""


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The caller has been silent for `turnEndpointDelay`, since `speech_end_ms`. The turn stays open until it is
    ended."""

    at_ms: float
    speech_end_ms: float


@dataclass(frozen=True, slots=True)
class SpeechResumed:
    """After a `SpeechStopped` or a `SpeculativeTurnEnd` the caller continued the same turn."""

    at_ms: float


@dataclass(frozen=True, slots=True)
class SpeculativeTurnEnd:
    """The turn may have ended, after `speculativeSilenceMs` of silence: preemptive generation of a response may begin,
    which may be discarded."""

    at_ms: float


@dataclass(frozen=True, slots=True)
class AskEndOfTurn:
    """Query to the end-of-turn model; its answer goes to `TurnDetector.on_end_of_turn`. The engine does not dispatch
    this event."""

    at_ms: float


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The caller's turn is over. Its speech lasted from `speech_start_ms` to `speech_end_ms`."""

    at_ms: float
    speech_start_ms: float
    speech_end_ms: float
    reason: TurnEndReason
    probability: float | None = None
    """The end-of-turn model's probability, if it ended the turn."""


@dataclass(frozen=True, slots=True)
class TurnDropped:
    """The speech takes no turn; the speech sink has been reset."""

    at_ms: float
    reason: TurnDropReason


@dataclass(frozen=True, slots=True)
class PlayoutPaused:
    """Playout is paused because the caller speaks over the agent. `PlayoutResumed` or `BargeIn` follows."""

    at_ms: float


@dataclass(frozen=True, slots=True)
class PlayoutResumed:
    """False interruption: playout resumes where it was paused."""

    at_ms: float


@dataclass(frozen=True, slots=True)
class BargeIn:
    """The caller interrupted the agent: playout has been flushed; the unplayed part of the response counts as not
    spoken."""

    at_ms: float
    speech_start_ms: float
    reopens: bool = False
    """The interrupting speech continues the turn to which the agent responded."""


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """The agent became audible."""

    at_ms: float


@dataclass(frozen=True, slots=True)
class AgentStopped:
    """All queued audio has been sent (or flushed), and no more is announced."""

    at_ms: float


TurnEvent = (
    SpeechStarted
    | SpeechStopped
    | SpeechResumed
    | SpeculativeTurnEnd
    | AskEndOfTurn
    | TurnEnded
    | TurnDropped
    | PlayoutPaused
    | PlayoutResumed
    | BargeIn
    | AgentStarted
    | AgentStopped
)
