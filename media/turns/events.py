"""Events of turn detection and barge-in. Every event carries `at_ms`, the moment it was decided, on the arrival clock
(CLOCK_MONOTONIC, ms); the true times of speech, which lie before it, have names of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TurnEndReason = Literal["model", "delay", "fallback"]
"""What ended the turn: the end-of-turn model, `turnEndpointDelay` alone, or `fallbackSilenceMs`."""
TurnDropReason = Literal["short", "cooldown", "protected", "no_words", "backchannel"]
"""Why speech takes no turn: shorter than `minTurnDuration`; over before `postSpeechCooldown` was; over an
uninterruptible message; over the agent without words; over the agent with backchannels alone ("mm-hmm")."""


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The caller began to speak at `began_ms`. One for each `TurnEnded` or `TurnDropped` that follows."""

    at_ms: float
    began_ms: float
    reopens: bool = False
    """It goes on with the turn before it: the agent has not been heard since that ended, or only for a moment. It is
    no speech over the agent; should the agent become audible, it pauses at once, and any word interrupts it."""


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The caller has been silent for `turnEndpointDelay`, since `ended_ms`. The turn goes on until it is ended."""

    at_ms: float
    ended_ms: float


@dataclass(frozen=True, slots=True)
class SpeechResumed:
    """After a `SpeechStopped` or a `Speculate` the caller went on with the same turn."""

    at_ms: float


@dataclass(frozen=True, slots=True)
class Speculate:
    """`speculativeSilenceMs` of silence: preemptive generation of a response may begin, which may be discarded."""

    at_ms: float


@dataclass(frozen=True, slots=True)
class AskEndOfTurn:
    """The end-of-turn model is to be asked now; its answer goes to `TurnDetector.on_end_of_turn`. The engine keeps this
    to itself."""

    at_ms: float


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """It is the agent's turn. The caller's speech lasted from `speech_start_ms` to `speech_end_ms`."""

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
    """The caller speaks over the agent: playout is paused. `PlayoutResumed` or `BargeIn` follows."""

    at_ms: float


@dataclass(frozen=True, slots=True)
class PlayoutResumed:
    """False interruption: playout goes on where it was paused."""

    at_ms: float


@dataclass(frozen=True, slots=True)
class BargeIn:
    """The caller interrupted the agent: playout has been flushed; what was not played was not said."""

    at_ms: float
    speech_start_ms: float
    reopens: bool = False
    """The speech that interrupts goes on with the turn that the agent was about to answer."""


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """The agent became audible."""

    at_ms: float


@dataclass(frozen=True, slots=True)
class AgentStopped:
    """Everything that was queued has been sent (or flushed), and no more is announced."""

    at_ms: float


TurnEvent = (
    SpeechStarted
    | SpeechStopped
    | SpeechResumed
    | Speculate
    | AskEndOfTurn
    | TurnEnded
    | TurnDropped
    | PlayoutPaused
    | PlayoutResumed
    | BargeIn
    | AgentStarted
    | AgentStopped
)
