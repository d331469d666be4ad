"""What turn taking made of a call: as it was stored, and as a replay finds it. Times are ms of the recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final

import numpy as np

from media.engine.call_audio import CallEvent
from media.turns.events import AgentStarted, BargeIn, PlayoutPaused, PlayoutResumed, TurnDropped, TurnEnded

CUT_OFF_MS: Final = 1500.0
"""A caller who goes on within this time of the end of the turn was cut off,"""
JUST_BEGUN_MS: Final = 500.0
"""unless the agent has been heard for longer than this: then it is an interruption."""
NO_WORDS: Final = "no words in it"
"""Why a turn that the engine ended is none: nothing was recognized in it."""


@dataclass(frozen=True)
class ReplayedTurn:
    """A turn of the caller: the speech, when it was taken to be over and why. `answer_ms`: the agent's next sound in
    the recording, before the next turn. `cut_off`: the caller had not finished; None where that cannot be told."""

    start_ms: float
    end_ms: float
    decided_ms: float
    why: str
    answer_ms: float | None = None
    cut_off: bool | None = None

    @property
    def wait_ms(self) -> float:
        """From the end of the speech to the decision."""
        return self.decided_ms - self.end_ms

    @property
    def gap_ms(self) -> float | None:
        """From the end of the speech to the recorded answer."""
        return None if self.answer_ms is None else self.answer_ms - self.end_ms

    def moved(self, by_ms: float) -> ReplayedTurn:
        """The same so much later."""
        answer = None if self.answer_ms is None else self.answer_ms + by_ms
        start, end, decided = self.start_ms + by_ms, self.end_ms + by_ms, self.decided_ms + by_ms
        return replace(self, start_ms=start, end_ms=end, decided_ms=decided, answer_ms=answer)


@dataclass(frozen=True)
class ReplayOutcome:
    """The turns of a call, and what else happened; None: not stored with a call."""

    turns: Sequence[ReplayedTurn]
    interruptions: int
    pauses: int | None = None
    resumes: int | None = None
    dropped: Mapping[str, int] | None = None

    @property
    def cut_offs(self) -> int | None:
        """Turns that were ended before the caller had finished."""
        return None if self.dropped is None else sum(bool(turn.cut_off) for turn in self.turns)

    def wait_ms(self, percentile: float) -> float | None:
        """Of all turns; None without any."""
        waits = [turn.wait_ms for turn in self.turns]
        return float(np.percentile(waits, percentile)) if waits else None

    def moved(self, by_ms: float) -> ReplayOutcome:
        """The same so much later."""
        return replace(self, turns=[turn.moved(by_ms) for turn in self.turns])


def of_events(events: Sequence[CallEvent], wordless: Sequence[TurnEnded]) -> ReplayOutcome:
    """What a replay's events say. `wordless` are the ended turns in which nothing was recognized."""
    ended = [each for each in events if isinstance(each, TurnEnded) and each not in wordless]
    answers = [each.at_ms for each in events if isinstance(each, AgentStarted)]
    turns = [_seen(each, later, answers) for each, later in zip_longest(ended, ended[1:])]
    dropped = Counter[str](each.reason for each in events if isinstance(each, TurnDropped))
    dropped.update({NO_WORDS: len(wordless)} if wordless else {})
    return ReplayOutcome(
        turns,
        interruptions=_count(events, BargeIn),
        pauses=_count(events, PlayoutPaused),
        resumes=_count(events, PlayoutResumed),
        dropped=dropped,
    )


def of_stored(timeline: Sequence[Mapping[str, Any]]) -> ReplayOutcome:
    """What was stored with the call: times count from its answer. A turn that went on before it was answered is one
    there, so that cut-offs cannot be told."""
    turns = [
        ReplayedTurn(each["speech_start_ms"], each["speech_end_ms"], each["turn_end_ms"], each["ended_by"],
                 each["agent_start_ms"])
        for each in timeline
        if each["speech_end_ms"] is not None and each["ended_by"] != "digits"
    ]  # fmt: skip
    return ReplayOutcome(turns, interruptions=sum(bool(each["interrupted"]) for each in timeline))


def apart(stored: ReplayOutcome, replayed: ReplayOutcome) -> list[tuple[float, float]]:
    """Where the replay has the end of each speech that both found, and how much later that is. The same are the ends
    nearest to each other, if they are near enough."""
    found = []
    for turn in stored.turns:
        near = min(replayed.turns, key=lambda each: abs(each.end_ms - turn.end_ms), default=None)
        if near is not None and abs(near.end_ms - turn.end_ms) < CUT_OFF_MS:
            found.append((near.end_ms, near.end_ms - turn.end_ms))
    return found


def _count(events: Sequence[CallEvent], kind: type[object]) -> int:
    return sum(isinstance(each, kind) for each in events)


def _seen(ended: TurnEnded, later: TurnEnded | None, answers: Sequence[float]) -> ReplayedTurn:
    next_ms = float("inf") if later is None else later.speech_start_ms
    answer = next((at for at in answers if ended.speech_end_ms <= at < next_ms), None)
    heard = answer is not None and next_ms - answer > JUST_BEGUN_MS
    cut_off = next_ms - ended.at_ms <= CUT_OFF_MS and not heard
    return ReplayedTurn(ended.speech_start_ms, ended.speech_end_ms, ended.at_ms, ended.reason, answer, cut_off)
