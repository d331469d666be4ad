"""Which tokens go into the model's next step, so that many calls share it and none keeps another waiting.

Pure: seconds come as arguments. A step evaluates a batch of tokens of many calls at once. Calls that speak need one
token each, at once; new prompts are read in chunks that are no longer than a listener does not notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_FADING: Final = 0.98
"""What a measurement counts for after one more: the pace follows a machine that gets busier within 50 steps."""
_PRIOR: Final = 0.1
"""What the belief at the start counts for, for ever: steps that are all alike do not tell their fixed part."""


class Priority(IntEnum):
    """Who goes first."""

    LIVE = 0
    """Somebody listens."""
    AHEAD = 1
    """What a caller may ask next: read for the case that there is time."""
    AFTER_CALL = 2
    """Summaries and the like."""


@dataclass(frozen=True, slots=True)
class Work:
    """An answer in the making. `pending` tokens must be evaluated before its next token is known: what is left of its
    prompt; one when it `speaks`, which is to say that it has had its first token, or more when it has lost its place
    since. `served_s` is when it was last given a place in a step, at first `arrived_s`; `deadline_s` is when its first
    token comes too late."""

    key: int
    pending: int
    speaks: bool
    arrived_s: float
    served_s: float
    priority: Priority = Priority.LIVE
    deadline_s: float | None = None

    @property
    def reads(self) -> bool:
        """Whether there is more to evaluate than the token before the next."""
        return not self.speaks or self.pending > 1


@dataclass(frozen=True, slots=True)
class Share:
    """The next `tokens` of a work's pending ones are in the step."""

    key: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long a step may take, and how much it may hold.

    `step_s`: how much longer it takes for the prompts that are read in it, while a caller hears an answer, and while
    nobody waits for one, for a turn that begins waits for the step's end. `idle_step_s`: how long it takes else, and
    for prompts of at most `turn` tokens when there are more of those than callers who hear an answer. `least_chunk`
    and `idle_chunk`: tokens of a prompt that are then read in every step, however slow the machine: of 64 each takes
    half as long as of 8. `patience_s`: how long work after a call rests while callers need the model, and `ageing_s`:
    it rests half as long when it is that old, a third when twice as old, and so on."""

    step_s: float = 0.06
    idle_step_s: float = 0.3
    batch_tokens: int = 512
    least_chunk: int = 8
    idle_chunk: int = 64
    turn: int = 64
    patience_s: float = 2.0
    ageing_s: float = 30.0

    def room(self, pace: Pace, speaking: int, *, idle: bool) -> int:
        """How many tokens of prompts are read in a step in which so many calls speak."""
        if idle:
            tokens = max(pace.tokens_within(self.idle_step_s) - speaking, self.idle_chunk)
        else:
            tokens = max(int(self.step_s / pace.token_s), self.least_chunk)
        return min(tokens, self.batch_tokens - speaking)


class Pace:
    """How long steps take: a fixed part and one for each token, learnt from the steps themselves (least squares in
    which what is old fades)."""

    def __init__(self, step_s: float = 0.02, token_s: float = 0.006) -> None:
        """What is believed before the first step."""
        self._prior = [(tokens, step_s + tokens * token_s) for tokens in (1, 33)]
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._fixed, self._each = step_s, token_s

    @property
    def token_s(self) -> float:
        """Seconds for one more token in a step."""
        return self._each

    def step_s(self, tokens: int) -> float:
        """How long a step with so many tokens takes."""
        return self._fixed + tokens * self._each

    def tokens_within(self, seconds: float) -> int:
        """How many tokens a step of that length holds; 0 for none."""
        return max(0, int((seconds - self._fixed) / self._each))

    def learn(self, tokens: int, seconds: float) -> None:
        """A step took so long."""
        faded = tuple(each * _FADING for each in self._sums)
        self._sums = _added(faded, tokens, seconds, 1.0)
        sums: tuple[float, ...] = self._sums
        for believed in self._prior:
            sums = _added(sums, *believed, _PRIOR)
        n, t, tt, s, ts = sums
        self._each = max((n * ts - t * s) / (n * tt - t * t), 1e-6)
        self._fixed = max((s - self._each * t) / n, 0.0)


def _added(
    sums: tuple[float, ...], tokens: int, seconds: float, weight: float
) -> tuple[float, float, float, float, float]:
    """Sums of 1, tokens, tokens squared, seconds, and tokens times seconds."""
    n, t, tt, s, ts = sums
    return (
        n + weight,
        t + weight * tokens,
        tt + weight * tokens**2,
        s + weight * seconds,
        ts + weight * tokens * seconds,
    )


def next_step(works: Sequence[Work], now_s: float, pace: Pace, bounds: Bounds) -> list[Share]:
    """The next step's shares; empty when there is no work. Calls that speak come first, one token each; what time is
    left goes to prompts, the most urgent first. Nothing is read ahead while somebody waits for a first word."""
    live = [work for work in works if work.priority is Priority.LIVE]
    heard, waiting = any(not work.reads for work in live), any(work.reads for work in live)
    after = [work for work in works if work.priority is Priority.AFTER_CALL]
    if live:
        after = [work for work in after if now_s - work.served_s >= _rest_s(work, now_s, bounds)]
    ahead = [] if waiting else [work for work in works if work.priority is Priority.AHEAD]
    admitted = [*live, *ahead, *after]
    speaking = sorted((work for work in admitted if not work.reads), key=lambda work: (work.priority, work.served_s))
    shares = [Share(work.key, 1) for work in speaking[: bounds.batch_tokens]]
    reading = sorted(
        (work for work in admitted if work.reads),
        key=lambda work: (work.priority, urgency(work, now_s, pace)),
    )
    turns = sum(work.reads and work.pending <= bounds.turn for work in live)
    short = bounds.room(pace, len(shares), idle=waiting and (not heard or turns > len(shares)))
    room = bounds.room(pace, len(shares), idle=waiting and not heard)
    rested = live and reading and reading[-1].priority is Priority.AFTER_CALL
    kept = min(bounds.least_chunk, room // 2) if rested else 0
    for work in reading:
        least = bool(live) and work.priority is Priority.AFTER_CALL
        most = short if work.pending <= bounds.turn else room
        chunk = min(work.pending, min(most, bounds.least_chunk) if least else most - kept)
        if chunk > 0:
            shares.append(Share(work.key, chunk))
            room, short = room - chunk, short - chunk
    return shares


def _rest_s(work: Work, now_s: float, bounds: Bounds) -> float:
    """How long work after a call rests between two steps: the shorter, the longer it has waited."""
    return bounds.patience_s / (1 + max(now_s - work.arrived_s, 0.0) / bounds.ageing_s)


def urgency(work: Work, now_s: float, pace: Pace) -> float:
    """The least is the most urgent. Short prompts go before long ones, which loses a long one little and wins a short
    one much; but each second of waiting counts like a second less to read, so that nobody waits for ever. A deadline
    counts by the time that is left."""
    to_read_s = work.pending * pace.token_s
    by_length = to_read_s - (now_s - work.arrived_s)
    return by_length if work.deadline_s is None else min(by_length, work.deadline_s - now_s - to_read_s)


def too_late(works: Iterable[Work], now_s: float) -> list[int]:
    """The keys of those whose deadline passed before they had a token."""
    return [work.key for work in works if not work.speaks and work.deadline_s is not None and work.deadline_s < now_s]


def wait_s(tokens: int, works: Sequence[Work], pace: Pace, bounds: Bounds) -> float:
    """How long a live answer whose prompt has so many new tokens waits for its first, were it asked now: what is
    shorter is read before it, in what the steps of those who speak leave."""
    live = [work for work in works if work.priority is Priority.LIVE]
    speaking = sum(not work.reads for work in live)
    before = sum(work.pending for work in live if work.reads and work.pending <= tokens)
    chunk = max(bounds.room(pace, speaking, idle=not speaking), 1)
    steps, rest = divmod(before + tokens, chunk)
    whole = steps * pace.step_s(speaking + chunk)
    return whole + (pace.step_s(speaking + rest) if rest else 0.0)
