"""One call as the audio engine and the conversation share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from media.audio_port import Samples
from media.playout import Playout, Utterance
from media.recording import Recording
from media.turns.events import TurnEvent
from media.turns.turn_detector import Turns


class Judge(Protocol):
    """What says whether a turn is over. Called from the tick thread; must return at once."""

    def feed(self, samples: Samples) -> None:
        """The next mono int16 samples of the turn, at the slot's rate: to keep, not to change."""

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Is the turn over? `answer` gets a probability 0..1, or None when there is nothing to judge by: once, at once
        or later, from any thread."""

    def discard(self) -> None:
        """The turn is over: forget what was fed."""


class Ear(Protocol):
    """Where the caller's sound goes while a turn is open. Called from the tick thread; must return at once."""

    def feed(self, samples: Samples) -> None:
        """The next mono int16 samples of the turn, at the slot's rate: to keep, not to change."""

    def discard(self) -> None:
        """What was fed since the last turn's end counts for nothing."""


@dataclass(frozen=True, slots=True)
class UtteranceSent:
    """An utterance has been sent to its end (one that was flushed never is)."""

    at_ms: float
    utterance: Utterance


@dataclass(frozen=True, slots=True)
class DigitHeard:
    """A key's tones were heard in the caller's sound: 0-9, *, #, A-D."""

    at_ms: float
    digit: str


@dataclass(frozen=True, slots=True)
class Broken:
    """Something of this call raised in the tick thread; the engine has let go of the call. The last event of it."""

    at_ms: float
    error: Exception


CallEvent = TurnEvent | UtteranceSent | DigitHeard | Broken


class CallListener(Protocol):
    """The conversation's side. Called on the event loop, once for all events of a tick."""

    def media_events(self, events: Sequence[CallEvent]) -> None:
        """Take the events, in the order in which they happened."""


Command = Callable[["EngineCall"], Sequence[TurnEvent]]
"""Work for the tick thread on behalf of a call."""


class EngineCall:
    """A call in the engine. The conversation sets `ear` and `judge`, and uses `playout`, `words` and `protect`;
    any thread may. What it asks of the tick thread takes effect at the next tick."""

    def __init__(
        self,
        slot: int,
        rate: int,
        turns: Turns,
        playout: Playout,
        listener: CallListener,
        recording: Recording | None,
        order: Callable[[EngineCall, Command], None],
    ) -> None:
        self.slot = slot
        self.rate = rate
        self.turns = turns
        """Belongs to the tick thread."""
        self.playout = playout
        self.listener = listener
        self.recording = recording
        self.ear: Ear | None = None
        self.judge: Judge | None = None
        self._order = order

    @property
    def speaking(self) -> bool:
        """The caller speaks at this moment, whether or not it counts."""
        return self.turns.talking

    def words(self, backchannel: bool = False) -> None:
        """The recognizer has words for the speech that is open; `backchannel`: they only say that the caller listens
        ("mm-hmm")."""
        self._order(self, _backchannel if backchannel else _words)

    def judged(self, asked_ms: float, p: float | None) -> None:
        """The judge's answer to the question of that moment."""
        self._order(self, lambda call: call.turns.eot(float("-inf"), p, asked_ms))

    def protect(self, on: bool) -> None:
        """What plays from now on cannot be interrupted (or can again)."""
        self._order(self, _protect if on else _unprotect)


def _words(call: EngineCall) -> Sequence[TurnEvent]:
    return call.turns.words(float("-inf"))


def _backchannel(call: EngineCall) -> Sequence[TurnEvent]:
    return call.turns.words(float("-inf"), backchannel=True)


def _protect(call: EngineCall) -> Sequence[TurnEvent]:
    return call.turns.protect(True)


def _unprotect(call: EngineCall) -> Sequence[TurnEvent]:
    return call.turns.protect(False)
