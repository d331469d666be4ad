"""The states of a call's turn taking and what it remembers in them; `media.turns.turn_detector` holds the
transitions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from media.turns.constants import EPSILON_MS, WORDS_STAND_MS


class TurnState(Enum):
    """Where a call stands. GUARDED: speech that does not count yet, because the agent is audible, because it began
    inside `postSpeechCooldown`, or because what plays is protected. PAUSED: playout waits for the caller's words."""

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
    """What is known of the speech that is open (or was last)."""

    start: float
    segment: float  # where its present stretch began
    end: float
    guarded: bool = False  # it began under a guard and has not outlasted it: a backchannel takes no turn
    reopens: bool = False  # it goes on with the turn before it
    spoken_ms: float = 0.0  # stretches that are over, ms
    confirmed: bool = False  # it has words that take the turn
    tentative_since: float | None = (
        None  # since when it has words that would, if the recognizer does not take them back
    )
    backchannel: bool = False  # it has words, so far only such as say that one listens
    pause_at: float = 0.0  # playout pauses when so much has been spoken, ms; infinite: never again
    resumed: bool = False  # playout was paused for it and went on
    barged_in: bool = False  # it interrupted the agent: it is a turn, however short

    def has_confirmed_words(self, now_ms: float) -> bool:
        """Whether it has words that take the turn, and the recognizer has not taken them back for long enough."""
        return self.confirmed or (
            self.tentative_since is not None and now_ms - self.tentative_since >= WORDS_STAND_MS - EPSILON_MS
        )

    def has_tentative_words(self, now_ms: float) -> bool:
        """Whether it has words that the recognizer may still take back."""
        return self.tentative_since is not None and not self.has_confirmed_words(now_ms)


@dataclass(slots=True)
class TurnSilence:
    """What has been done in the present silence within a turn."""

    by_energy: bool = False  # told by quiet alone, the model has not confirmed it
    announced: bool = False
    speculated: bool = False
    sound_since: float | None = None  # when sound came again
    sound_unjudged: bool = False  # that sound has not been judged yet
