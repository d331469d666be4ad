"""When what happened in each turn of a call: where an answer took its time. It holds no word of what was said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from media.events import EndReason, TurnEnded

EndedBy = EndReason | Literal["digits"]
MOMENTS: Final = (
    *("speech_start_ms", "speech_end_ms", "turn_end_ms", "text_ready_ms"),
    *("first_token_ms", "speech_ready_ms", "agent_start_ms", "agent_end_ms"),
)
"""In the order in which they mostly come."""


@dataclass(eq=False)
class Turn:
    """A turn of the caller and its answer; number 0 is the agent's opening message. Times are ms on the arrival clock,
    None where nothing is known; the first of several counts."""

    number: int
    now_ms: Callable[[], float] = field(repr=False)
    ended_by: EndedBy | None = None
    speech_start_ms: float | None = None
    speech_end_ms: float | None = None
    turn_end_ms: float | None = None
    text_ready_ms: float | None = None
    first_token_ms: float | None = None
    speech_ready_ms: float | None = None
    agent_start_ms: float | None = None
    agent_end_ms: float | None = None
    interrupted: bool = False

    def first_token(self) -> None:
        """The language model has begun to answer."""
        if self.first_token_ms is None:
            self.first_token_ms = self.now_ms()

    def speech_ready(self) -> None:
        """The beginning of the answer could be heard now."""
        if self.speech_ready_ms is None:
            self.speech_ready_ms = self.now_ms()

    @property
    def gap_ms(self) -> float | None:
        """From the end of the caller's speech to the agent's first sound. A turn that digits ended has none."""
        if self.agent_start_ms is None or self.speech_end_ms is None or self.ended_by == "digits":
            return None
        return self.agent_start_ms - self.speech_end_ms

    def since(self, zero_ms: float) -> dict[str, Any]:
        """As it is stored: whole ms since `zero_ms`."""
        moments = {name: getattr(self, name) for name in MOMENTS}
        return {
            "turn": self.number,
            "ended_by": self.ended_by,
            **{name: None if at is None else round(at - zero_ms) for name, at in moments.items()},
            "response_gap_ms": None if self.gap_ms is None else round(self.gap_ms),
            "interrupted": self.interrupted,
        }


class Timeline:
    """The turns of one call. `zero_ms` is its answer and `now_ms` the present, both on the arrival clock."""

    def __init__(self, zero_ms: float, now_ms: Callable[[], float]) -> None:
        self._zero_ms = zero_ms
        self._now_ms = now_ms
        self._turns: list[Turn] = []
        self._speaking: Turn | None = None  # the one whose answer plays, or is about to
        self._audible = False

    def items(self) -> list[dict[str, Any]]:
        """What is known by now, as it is stored."""
        return [turn.since(self._zero_ms) for turn in self._turns]

    @property
    def turn(self) -> Turn:
        """The newest one."""
        return self._turns[-1]

    def opens(self) -> None:
        """The agent speaks first."""
        self._turns.append(Turn(0, self._now_ms))

    def caller_said(self, number: int, ended: TurnEnded | None) -> None:
        """The text of a turn is there; without `ended` it is digits. The newest turn's number again: the caller went
        on, and what was being prepared will not be said."""
        now = self._now_ms()
        if not self._turns or self.turn.number != number:
            self._turns.append(Turn(number, self._now_ms))
        turn = self.turn
        turn.text_ready_ms = now
        turn.first_token_ms = turn.speech_ready_ms = None
        if ended is None:
            turn.ended_by, turn.turn_end_ms = "digits", now
        else:
            turn.ended_by, turn.turn_end_ms = ended.reason, ended.at_ms
            turn.speech_end_ms = ended.speech_end_ms
            if turn.speech_start_ms is None:
                turn.speech_start_ms = ended.speech_start_ms

    def agent_begins(self) -> None:
        """The first sound of an answer is handed to the playout. Whatever it was prepared for, it answers the newest
        turn: a greeting that had to wait for the caller is heard as the answer to that."""
        self._speaking = self.turn
        if self._audible:  # sound follows on sound: there will be no news of it
            self.turn.agent_start_ms = self._now_ms()

    def agent_started(self, at_ms: float) -> float | None:
        """It is audible. Returns the response gap in ms, if this is the moment that ends one."""
        turn, self._audible = self._speaking, True
        if turn is None or turn.agent_start_ms is not None:
            return None
        turn.agent_start_ms = at_ms
        return turn.gap_ms

    def agent_silent(self) -> None:
        """It is audible no more."""
        self._audible = False

    def interrupted(self) -> None:
        """The caller cut the answer that plays, if one does."""
        if self._speaking is not None:
            self._speaking.interrupted = True

    def answer_ended(self) -> None:
        """Nothing more of it will be heard."""
        turn, self._speaking = self._speaking, None
        if turn is not None and turn.agent_start_ms is not None:
            turn.agent_end_ms = self._now_ms()
