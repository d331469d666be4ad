"""State of a call's turn detection: the state, the caller's speech and silence, the agent's speech, and the queries to
the end-of-turn model. `media.turn_taking.turn_detector` has the transitions. Times are arguments, in ms."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from media.turn_taking.constants import (
    EOT_QUERY_INTERVAL_MS,
    EOT_QUERY_TIMEOUT_MS,
    EPSILON_MS,
    REOPEN_MS,
    STABLE_WORDS_MS,
)
from media.turn_taking.events import AgentStarted, AgentStopped


class TurnState(Enum):
    """UNCONFIRMED_SPEECH: the caller's speech does not count yet, because the agent is audible, because it began inside
    `postSpeechCooldown`, or because the agent's speech is uninterruptible. PAUSED: playout is paused until the
    recognizer finds words."""

    IDLE = auto()
    SPEECH = auto()
    SILENCE = auto()
    UNCONFIRMED_SPEECH = auto()
    UNCONFIRMED_SILENCE = auto()
    PAUSED = auto()
    PAUSED_SILENCE = auto()


CALLER_SPEAKING: Final = frozenset({TurnState.SPEECH, TurnState.UNCONFIRMED_SPEECH, TurnState.PAUSED})
"""States in which the caller speaks."""


@dataclass(slots=True)
class CallerSpeech:
    """The caller's speech that is open, or was last."""

    start: float
    segment_start: float  # start of its current stretch
    end: float
    unconfirmed: bool = False  # it does not count yet: a backchannel takes no turn
    reopens: bool = False  # it continues the turn before it
    spoken_ms: float = 0.0  # completed stretches
    words_confirmed: bool = False  # it has words that take the turn
    tentative_since: float | None = None  # since when it has words that the recognizer may retract
    backchannel: bool = False  # its words so far are backchannels alone ("mm-hmm")
    pause_after_ms: float = 0.0  # ms of speech after which playout pauses; infinite: never again
    playout_resumed: bool = False  # playout was paused for it and has resumed
    barged_in: bool = False  # it interrupted the agent, and so takes a turn, however short

    def has_confirmed_words(self, now_ms: float) -> bool:
        """True if it has words that take the turn, and the recognizer has kept them for `STABLE_WORDS_MS`."""
        since = self.tentative_since
        return self.words_confirmed or (since is not None and now_ms - since >= STABLE_WORDS_MS - EPSILON_MS)

    def has_tentative_words(self, now_ms: float) -> bool:
        """True if it has words that the recognizer may still retract."""
        return self.tentative_since is not None and not self.has_confirmed_words(now_ms)


@dataclass(slots=True)
class TurnSilence:
    """The current silence within a turn, and what has been done in it."""

    by_energy: bool = False  # found by the level alone, not confirmed by voice activity detection
    announced: bool = False
    speculated: bool = False
    sound_since: float | None = None  # when sound resumed
    sound_unconfirmed: bool = False  # voice activity detection has not judged that sound yet


@dataclass(slots=True)
class AgentSpeech:
    """The agent's speech. `cooldown` is the agent's `postSpeechCooldown`."""

    cooldown: float
    audible: bool = False
    uninterruptible: bool = False
    """The playout cannot be interrupted."""
    interrupted: bool = False
    """The caller interrupted it; flushed audio still counts as audible for a moment."""
    started: float = float("-inf")
    stopped: float = float("-inf")
    _finished_since_turn: bool = True  # a response was played to its end since the last turn, or there was none
    _turn_ended: float = float("-inf")

    def update(self, now_ms: float, audible: bool) -> AgentStarted | AgentStopped | None:
        """Set whether the agent is audible at that moment; returns the event of a change."""
        if audible == self.audible:
            return None
        self.audible = audible
        if audible:
            self.started = now_ms
            return AgentStarted(now_ms)
        self._finished_since_turn, self.interrupted = self._finished_since_turn or not self.interrupted, False
        self.stopped = now_ms
        return AgentStopped(now_ms)

    def on_turn_ended(self, now_ms: float) -> None:
        """The caller's turn has ended."""
        self._turn_ended, self._finished_since_turn = now_ms, False

    @property
    def interruptible(self) -> bool:
        """True if it can be paused and interrupted now."""
        return self.audible and not self.uninterruptible and not self.interrupted

    @property
    def cooldown_until(self) -> float:
        """The end of `postSpeechCooldown` after the agent's last speech."""
        return self.stopped + self.cooldown

    def needs_confirmation(self, speech_start_ms: float) -> bool:
        """True if speech that began then does not count at first: it is over the agent, or may be the agent's echo."""
        return self._overlaps(speech_start_ms) or speech_start_ms < self.cooldown_until

    def reopens_turn(self, speech_start_ms: float) -> bool:
        """True if speech that began then continues the turn before it: the agent has not been audible since that turn
        ended, or only for a moment."""
        if self._finished_since_turn or (self.uninterruptible and self.audible):
            return False
        return speech_start_ms - self._turn_ended <= REOPEN_MS or not self._overlaps(speech_start_ms)

    def _overlaps(self, speech_start_ms: float) -> bool:
        """True if the agent was already audible when that speech began."""
        return self.audible and speech_start_ms >= self.started


@dataclass(slots=True)
class EndOfTurnQueries:
    """Queries to the end-of-turn model in one call: at most one is pending, and an answer counts only in the silence of
    its query. A query is identified by the time at which it was sent."""

    probability: float | None = None
    """The last answer about the current silence; None: no answer, or the model had no input to judge by."""
    _pending: float | None = None  # the query without an answer
    _first_asked: float = float("inf")  # the first query of the current silence
    _answered_at: float = float("-inf")  # when the last query of the current silence was answered

    def new_silence(self) -> None:
        """Discard the answers about the silence before this one; a pending query stays pending."""
        self.probability = None
        self._first_asked, self._answered_at = float("inf"), float("-inf")

    def expire(self, now_ms: float) -> None:
        """Give up a pending query after `EOT_QUERY_TIMEOUT_MS`: it counts as answered with None."""
        if self._pending is not None and now_ms - self._pending >= EOT_QUERY_TIMEOUT_MS - EPSILON_MS:
            self.on_answer(now_ms, None, self._pending)

    def is_due(self, now_ms: float) -> bool:
        """True if no query is pending and `EOT_QUERY_INTERVAL_MS` have passed since the last answer."""
        return self._pending is None and now_ms - self._answered_at >= EOT_QUERY_INTERVAL_MS - EPSILON_MS

    def on_asked(self, now_ms: float) -> None:
        """A query was sent."""
        self._pending = now_ms
        self._first_asked = min(self._first_asked, now_ms)

    def on_answer(self, now_ms: float, p: float | None, asked_ms: float) -> None:
        """The answer to the query of `asked_ms`, which may have been given up."""
        if asked_ms == self._pending:
            self._pending = None
        if asked_ms >= self._first_asked:
            self._answered_at = now_ms
            self.probability = p
