"""State of a call's turn detection: the state, the caller's speech and silence, the agent's speech, and the queries to
the end-of-turn model. `media.turns.turn_detector` holds the transitions. Times are arguments, in ms."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from media.turns.constants import ANSWER_LIMIT_MS, ASK_AGAIN_MS, EPSILON_MS, REOPEN_MS, WORDS_STAND_MS
from media.turns.events import AgentStarted, AgentStopped


class TurnState(Enum):
    """GUARDED: the caller's speech does not count yet, because the agent is audible, because the speech began inside
    `postSpeechCooldown`, or because the agent's speech is uninterruptible. PAUSED: playout waits for the caller's
    words."""

    IDLE = auto()
    SPEECH = auto()
    SILENCE = auto()
    GUARDED = auto()
    GUARDED_SILENCE = auto()
    PAUSED = auto()
    PAUSED_SILENCE = auto()


CALLER_SPEAKING: Final = frozenset({TurnState.SPEECH, TurnState.GUARDED, TurnState.PAUSED})
"""States in which the caller speaks."""


@dataclass(slots=True)
class CallerSpeech:
    """The caller's speech that is open, or was last."""

    start: float
    segment: float  # where its present stretch began
    end: float
    guarded: bool = False  # it began under a guard and has not outlasted it: a backchannel takes no turn
    reopens: bool = False  # it goes on with the turn before it
    spoken_ms: float = 0.0  # stretches that are over
    confirmed: bool = False  # it has words that take the turn
    tentative_since: float | None = None  # since when it has words that would, unless the recognizer takes them back
    backchannel: bool = False  # its words so far are backchannels alone ("mm-hmm")
    pause_at: float = 0.0  # playout pauses at so many ms of speech; infinite: never again
    resumed: bool = False  # playout was paused for it and went on
    barged_in: bool = False  # it interrupted the agent: it is a turn, however short

    def has_confirmed_words(self, now_ms: float) -> bool:
        """True if it has words that take the turn, and the recognizer has kept them for `WORDS_STAND_MS`."""
        since = self.tentative_since
        return self.confirmed or (since is not None and now_ms - since >= WORDS_STAND_MS - EPSILON_MS)

    def has_tentative_words(self, now_ms: float) -> bool:
        """True if it has words that the recognizer may still take back."""
        return self.tentative_since is not None and not self.has_confirmed_words(now_ms)


@dataclass(slots=True)
class TurnSilence:
    """The present silence within a turn, and what has been done in it."""

    by_energy: bool = False  # the level alone tells it, voice activity detection has not confirmed it
    announced: bool = False
    speculated: bool = False
    sound_since: float | None = None  # when sound came again
    sound_unjudged: bool = False  # voice activity detection has not judged that sound yet


@dataclass(slots=True)
class AgentSpeech:
    """The agent's speech. `cooldown` is the agent's `postSpeechCooldown`."""

    cooldown: float
    audible: bool = False
    uninterruptible: bool = False
    """What plays cannot be interrupted."""
    interrupted: bool = False
    """The caller interrupted it; what was flushed still counts as audible for a moment."""
    started: float = float("-inf")
    stopped: float = float("-inf")
    _finished_since_turn: bool = True  # it has spoken to its end since the caller's last turn, or there was none
    _turn_ended: float = float("-inf")

    def update(self, now_ms: float, audible: bool) -> AgentStarted | AgentStopped | None:
        """Take note of whether the agent is audible at that moment; returns the event of a change."""
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
        """The caller's turn has ended: it is the agent's."""
        self._turn_ended, self._finished_since_turn = now_ms, False

    @property
    def interruptible(self) -> bool:
        """True if it can be paused and interrupted now."""
        return self.audible and not self.uninterruptible and not self.interrupted

    @property
    def cooldown_until(self) -> float:
        """The end of `postSpeechCooldown`, as far as it is known."""
        return self.stopped + self.cooldown

    def is_guarded(self, began_ms: float) -> bool:
        """True if speech that began then does not count at first: it is over the agent, or may be the agent's echo."""
        return self._overlaps(began_ms) or began_ms < self.cooldown_until

    def reopens_turn(self, began_ms: float) -> bool:
        """True if speech that began then goes on with the turn before it: the agent has not been audible since that
        turn ended, or only for a moment."""
        if self._finished_since_turn or (self.uninterruptible and self.audible):
            return False
        return began_ms - self._turn_ended <= REOPEN_MS or not self._overlaps(began_ms)

    def _overlaps(self, began_ms: float) -> bool:
        """True if the agent was audible already when that speech began."""
        return self.audible and began_ms >= self.started


@dataclass(slots=True)
class EndOfTurnQueries:
    """Queries to the end-of-turn model in one call: at most one is open, and an answer counts in the silence that it is
    about. A query is identified by the moment at which it was sent."""

    probability: float | None = None
    """The last answer about the present silence; None: no answer, or the model had nothing to judge by."""
    _open: float | None = None  # the query that waits for its answer
    _first_asked: float = float("inf")  # the first query of the present silence
    _answered: float = float("-inf")  # when the last one of the present silence was answered

    def new_silence(self) -> None:
        """Discard the answers about the silence before this one; an open query stays open."""
        self.probability = None
        self._first_asked, self._answered = float("inf"), float("-inf")

    def expire(self, now_ms: float) -> None:
        """Give up an open query after `ANSWER_LIMIT_MS`: it counts as answered, with nothing to judge by."""
        if self._open is not None and now_ms - self._open >= ANSWER_LIMIT_MS - EPSILON_MS:
            self.on_answer(now_ms, None, self._open)

    def is_due(self, now_ms: float) -> bool:
        """True if no query is open and `ASK_AGAIN_MS` have passed since the last answer."""
        return self._open is None and now_ms - self._answered >= ASK_AGAIN_MS - EPSILON_MS

    def on_asked(self, now_ms: float) -> None:
        """A query was sent."""
        self._open = now_ms
        self._first_asked = min(self._first_asked, now_ms)

    def on_answer(self, now_ms: float, p: float | None, asked_ms: float) -> None:
        """Take the answer to the query of `asked_ms`, also to one that was given up."""
        if asked_ms == self._open:
            self._open = None
        if asked_ms >= self._first_asked:
            self._answered = now_ms
            self.probability = p
