"""The states of a call's turn taking and what it remembers in them; `media.turns` holds the transitions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class State(Enum):
    """Where a call stands. GUARDED: speech that does not count yet, because the agent is audible, because it began
    inside `postSpeechCooldown`, or because what plays is protected. PAUSED: playout waits for the caller's words."""

    IDLE = auto()
    SPEECH = auto()
    SILENCE = auto()
    GUARDED = auto()
    GUARDED_SILENCE = auto()
    PAUSED = auto()
    PAUSED_SILENCE = auto()


TALKING: Final = frozenset({State.SPEECH, State.GUARDED, State.PAUSED})
"""States in which the caller speaks."""


@dataclass(slots=True)
class Speech:
    """What is known of the speech that is open (or was last)."""

    start: float
    segment: float  # where its present stretch began
    end: float
    spoken: float = 0.0  # stretches that are over, ms
    words: bool = False
    resumed: bool = False  # playout went on: no second pause for the same speech
    kept: bool = False  # it interrupted the agent: it is a turn, however short


@dataclass(slots=True)
class Silence:
    """What has been done in the present silence within a turn."""

    by_energy: bool = False  # told by quiet alone, the model has not confirmed it
    asked: float | None = None
    announced: bool = False
    speculated: bool = False
    doubt: float | None = None  # when sound came again
