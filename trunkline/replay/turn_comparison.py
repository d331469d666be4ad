"""The turns of a call, from its stored timeline or from a replay, and how far apart the two are. Times are ms from the
beginning of the recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Final

import numpy as np

from media.engine.call_audio import CallEvent
from media.turn_taking.events import AgentStarted, BargeIn, PlayoutPaused, PlayoutResumed, TurnDropped, TurnEnded

EARLY_END_MS: Final = 1500.0
"""A turn was ended too early if the caller goes on within this time of its end,"""
MAX_HEARD_ANSWER_MS: Final = 500.0
"""unless the answer has been audible for longer than this: then it is an interruption."""
NO_WORDS: Final = "no words in it"
"""Reason of dropped speech: nothing was recognized in it."""


@dataclass(frozen=True)
class ReplayedTurn:
    """A turn of the caller: the start and end of its speech, and when and by what rule the turn was ended. `answer_ms`:
    the agent's first audio after it in the recording, before the next turn. `ended_early`: the caller had not finished;
    None if that is not known. `probability`: that of the end-of-turn model, if it ended the turn. `interrupts`: the
    speech interrupted the agent."""

    start_ms: float
    end_ms: float
    decided_ms: float
    ended_by: str
    answer_ms: float | None = None
    ended_early: bool | None = None
    probability: float | None = None
    interrupts: bool = False

    @property
    def wait_ms(self) -> float:
        """From the end of the speech to the end of the turn."""
        return self.decided_ms - self.end_ms

    @property
    def gap_ms(self) -> float | None:
        """From the end of the speech to the recorded answer."""
        return None if self.answer_ms is None else self.answer_ms - self.end_ms

    def shifted(self, by_ms: float) -> ReplayedTurn:
        """The turn with all its times later by `by_ms`."""
        answer = None if self.answer_ms is None else self.answer_ms + by_ms
        start, end, decided = self.start_ms + by_ms, self.end_ms + by_ms, self.decided_ms + by_ms
        return replace(self, start_ms=start, end_ms=end, decided_ms=decided, answer_ms=answer)


@dataclass(frozen=True)
class ReplayOutcome:
    """The turns of a call, and counts of other turn-taking events; None for those that are not stored with a call."""

    turns: Sequence[ReplayedTurn]
    interruptions: int
    pauses: int | None = None
    resumes: int | None = None
    dropped: Mapping[str, int] | None = None

    @property
    def early_ends(self) -> int | None:
        """The number of turns that were ended before the caller had finished."""
        return None if self.dropped is None else sum(bool(turn.ended_early) for turn in self.turns)

    def wait_ms(self, percentile: float) -> float | None:
        """A percentile of the turns' waits; None without turns."""
        return percentile_ms([turn.wait_ms for turn in self.turns], percentile)

    def shifted(self, by_ms: float) -> ReplayOutcome:
        """The outcome with all its times later by `by_ms`."""
        return replace(self, turns=[turn.shifted(by_ms) for turn in self.turns])


def percentile_ms(values: Sequence[float], percentile: float) -> float | None:
    """A percentile of values in ms; None without any."""
    return float(np.percentile(values, percentile)) if values else None


def side_by_side(timelines: Sequence[Sequence[ReplayedTurn]]) -> list[list[ReplayedTurn | None]]:
    """Rows of turns whose speech overlaps, with a turn of each timeline or None: a turn of one timeline may overlap
    several of another."""
    remaining = [list(turns) for turns in timelines]
    rows: list[list[ReplayedTurn | None]] = []
    while any(remaining):
        first = min((turns[0] for turns in remaining if turns), key=lambda turn: turn.start_ms)
        row = [turns.pop(0) if turns and turns[0].start_ms <= first.end_ms else None for turns in remaining]
        rows.append(row)
    return rows


def outcome_of_events(events: Sequence[CallEvent], wordless: Sequence[TurnEnded]) -> ReplayOutcome:
    """The outcome of a replay. `wordless`: the ended turns in which nothing was recognized."""
    ended = [event for event in events if isinstance(event, TurnEnded) and event not in wordless]
    answers_ms = [event.at_ms for event in events if isinstance(event, AgentStarted)]
    turns = [_replayed_turn(event, following, answers_ms) for event, following in zip_longest(ended, ended[1:])]
    turns = _with_interruptions(turns, [event.at_ms for event in events if isinstance(event, BargeIn)])
    dropped = Counter[str](event.reason for event in events if isinstance(event, TurnDropped))
    dropped.update({NO_WORDS: len(wordless)} if wordless else {})
    return ReplayOutcome(
        turns,
        interruptions=_count(events, BargeIn),
        pauses=_count(events, PlayoutPaused),
        resumes=_count(events, PlayoutResumed),
        dropped=dropped,
    )


def outcome_of_timeline(timeline: Sequence[Mapping[str, Any]]) -> ReplayOutcome:
    """The outcome of a call, from its stored timeline, whose times count from the call's answer. Early ends are not
    known, because a turn that went on before it was answered is stored as one turn."""
    turns = [
        ReplayedTurn(entry["speech_start_ms"], entry["speech_end_ms"], entry["turn_end_ms"], entry["ended_by"],
                     entry["agent_start_ms"], probability=entry.get("eot_probability"))
        for entry in timeline
        if entry["speech_end_ms"] is not None and entry["ended_by"] != "digits" and entry.get("speaker") != "target"
    ]  # fmt: skip
    interrupted_ms = [at for entry in timeline if (at := entry.get("interrupted_ms")) is not None]
    interruptions = sum(bool(entry["interrupted"]) for entry in timeline)
    return ReplayOutcome(_with_interruptions(turns, interrupted_ms), interruptions)


def speech_end_offsets(stored: ReplayOutcome, replayed: ReplayOutcome) -> list[tuple[float, float]]:
    """For each end of speech that both outcomes have: its time in the replay, and by how many ms that is later than in
    the timeline. The closest ends are matched, if they are close enough."""
    offsets = []
    for turn in stored.turns:
        closest = min(replayed.turns, key=lambda each: abs(each.end_ms - turn.end_ms), default=None)
        if closest is not None and abs(closest.end_ms - turn.end_ms) < EARLY_END_MS:
            offsets.append((closest.end_ms, closest.end_ms - turn.end_ms))
    return offsets


def _with_interruptions(turns: Sequence[ReplayedTurn], interruptions_ms: Sequence[float]) -> list[ReplayedTurn]:
    """The turns, marked where the agent was interrupted since the end of the turn before."""
    decided_ms = [float("-inf"), *(turn.decided_ms for turn in turns)]
    return [
        replace(turn, interrupts=any(before < at <= turn.decided_ms for at in interruptions_ms))
        for before, turn in zip(decided_ms, turns, strict=False)
    ]


def _count(events: Sequence[CallEvent], kind: type[object]) -> int:
    return sum(isinstance(each, kind) for each in events)


def _replayed_turn(ended: TurnEnded, following: TurnEnded | None, answers_ms: Sequence[float]) -> ReplayedTurn:
    next_ms = float("inf") if following is None else following.speech_start_ms
    answer_ms = next((at for at in answers_ms if ended.speech_end_ms <= at < next_ms), None)
    is_heard = answer_ms is not None and next_ms - answer_ms > MAX_HEARD_ANSWER_MS
    ended_early = next_ms - ended.at_ms <= EARLY_END_MS and not is_heard
    return ReplayedTurn(
        ended.speech_start_ms, ended.speech_end_ms, ended.at_ms, ended.reason, answer_ms, ended_early, ended.probability
    )
