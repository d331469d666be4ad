"""The scheduler: which tokens go into the model's next step, so that many calls share it and none keeps another
waiting.

Pure: seconds come as arguments. In a step all calls that speak get one token each, which are computed together; then
new prompts are read, one after the other, in chunks that are no longer than a listener does not notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_FADING: Final = 0.98
"""What a measurement counts for after one more: the pace follows a machine that gets busier within 50 steps."""
_TILE: Final = 4
"""Rows of matrices that are multiplied at once: three take as long."""
_WORTH: Final = 32
"""Tokens of a prompt for which it is begun beside others: for fewer, the weights are passed over in vain."""
_PRIOR: Final = 0.1
"""What the belief at the start counts for, for ever: steps that are all alike do not tell their fixed part."""
_LEAST_S: Final = 1e-6
"""No token takes less."""
TURN: Final = 64
"""Tokens of a turn, at most."""


class Priority(IntEnum):
    """Who goes first."""

    LIVE = 0
    """Somebody listens."""
    PREFILL = 1
    """What a caller may ask next: read for the case that there is time."""
    AFTER_CALL = 2
    """Summaries and the like."""


@dataclass(frozen=True, slots=True)
class ResponseWork:
    """An answer in the making. `pending` tokens must be evaluated before its next token is known: what is left of its
    prompt; one when it is `generating`, which is to say that it has had its first token, or more when it has lost its
    place since. `served_s` is when it was last given a place in a step, at first `arrived_s`; `deadline_s` is when its
    first token comes too late. If `is_turn`, little of its prompt is new (`TURN`)."""

    key: int
    pending: int
    generating: bool
    arrived_s: float
    served_s: float
    priority: Priority = Priority.LIVE
    deadline_s: float | None = None
    is_turn: bool = False

    @property
    def reads(self) -> bool:
        """True if there is more to evaluate than the token before the next."""
        return not self.generating or self.pending > 1


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """The next `tokens` of a work's pending ones are in the step."""

    key: int
    tokens: int


@dataclass(frozen=True, slots=True)
class StepLimits:
    """How long a step may take, and how much it may hold.

    `step_s`: how much longer it takes for the prompts that are read in it, while a caller hears an answer, and while
    nobody waits for one, for a turn that begins waits for the step's end. `turn_step_s`: the same for turns, and
    `idle_step_s`: how long it takes when nobody hears an answer, and for turns when as many callers wait with one as
    hear an answer. `least_chunk` and `idle_chunk`: tokens of a prompt that are then read in every step, however slow
    the machine. `patience_s`: how long work after a call rests while callers need the model, and `ageing_s`: it rests
    half as long when it is that old, a third when twice as old, and so on."""

    step_s: float = 0.08
    turn_step_s: float = 0.2
    idle_step_s: float = 0.3
    batch_tokens: int = 512
    least_chunk: int = 8
    idle_chunk: int = 64
    patience_s: float = 2.0
    ageing_s: float = 30.0

    def room(self, pace: StepTimePredictor, heard: int, waiting: int, turns: int) -> tuple[int, int]:
        """How many tokens are read in a step when so many callers hear an answer and so many wait for one, of which
        some with turns: of turns, and of other prompts."""
        idle = max(pace.tokens_within(self.idle_step_s - pace.step_s(heard)), self.idle_chunk)
        long = idle if waiting and not heard else self._within(pace, self.step_s)
        many = idle if turns >= heard else self._within(pace, self.turn_step_s)
        return min(many if turns else long, self.batch_tokens), min(long, self.batch_tokens)

    def _within(self, pace: StepTimePredictor, seconds: float) -> int:
        return max(pace.tokens_within(seconds) // _TILE * _TILE, self.least_chunk)


class StepTimePredictor:
    """How long steps take, learnt from the steps themselves: words of calls that speak, and chunks of prompts."""

    def __init__(self, step_s: float = 0.02, token_s: float = 0.006) -> None:
        """What is believed before the first step: a fixed part, and one for each token."""
        self._writing, self._reading = _LeastSquares(step_s, token_s), _LeastSquares(step_s, token_s)

    @property
    def token_s(self) -> float:
        """Seconds for one more token of a prompt."""
        return self._reading.each

    @property
    def pass_tokens(self) -> int:
        """How many tokens more of a prompt take as long as to begin with another one."""
        return int(self._reading.fixed / self._reading.each)

    def step_s(self, speaking: int, read: int = 0) -> float:
        """How long a step takes in which so many calls speak and so many tokens of a prompt are read."""
        return self._writing(speaking) + self._reading(read)

    def tokens_within(self, seconds: float) -> int:
        """How many tokens of a prompt are read in that time; 0 for none."""
        return max(0, int((seconds - self._reading.fixed) / self._reading.each))

    def learn(self, calls: int, tokens: int, seconds: float) -> None:
        """So many tokens of each of so many calls took so long: one of each who speaks, or more of a prompt."""
        if tokens == 1:
            self._writing.learn(calls, seconds)
        else:
            self._reading.learn(calls * tokens, seconds)


class _LeastSquares:
    """Seconds by tokens: a fixed part and one for each, by least squares in which what is old fades."""

    def __init__(self, fixed: float, each: float) -> None:
        self._prior = [(tokens, fixed + tokens * each) for tokens in (1, 33)]
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self.fixed, self.each = fixed, max(each, _LEAST_S)

    def __call__(self, tokens: int) -> float:
        return self.fixed + tokens * self.each if tokens else 0.0

    def learn(self, tokens: int, seconds: float) -> None:
        faded = tuple(each * _FADING for each in self._sums)
        self._sums = _added(faded, tokens, seconds, 1.0)
        sums: tuple[float, ...] = self._sums
        for believed in self._prior:
            sums = _added(sums, *believed, _PRIOR)
        n, t, tt, s, ts = sums
        self.each = max((n * ts - t * s) / (n * tt - t * t), _LEAST_S)
        self.fixed = max((s - self.each * t) / n, 0.0)


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


def next_step(
    works: Sequence[ResponseWork], now_s: float, pace: StepTimePredictor, bounds: StepLimits
) -> list[BatchSlice]:
    """The next step's shares; empty when there is no work. Calls that speak come first, one token each; what time is
    left goes to prompts, the most urgent first. Nothing is read ahead while somebody waits for a first word."""
    live = [work for work in works if work.priority is Priority.LIVE]
    waiting = [work for work in live if work.reads]
    after = [work for work in works if work.priority is Priority.AFTER_CALL]
    if live:
        after = [work for work in after if now_s - work.served_s >= _pause_s(work, now_s, bounds)]
    ahead = [] if waiting else [work for work in works if work.priority is Priority.PREFILL]
    admitted = [*live, *ahead, *after]
    speaking = sorted((work for work in admitted if not work.reads), key=lambda work: (work.priority, work.served_s))
    shares = [BatchSlice(work.key, 1) for work in speaking[: bounds.batch_tokens]]
    reading = sorted(
        (work for work in admitted if work.reads),
        key=lambda work: (work.priority, urgency(work, now_s, pace)),
    )
    turns = sum(work.is_turn for work in waiting)
    short, room = bounds.room(pace, len(live) - len(waiting), len(waiting), turns)
    rested = 0
    if live and reading and reading[-1].priority is Priority.AFTER_CALL:
        rested = min(bounds.least_chunk, room // 2)
        room -= rested
    first = True
    for work in reading:
        if live and work.priority is Priority.AFTER_CALL:
            chunk = min(work.pending, rested)
            rested -= chunk
        else:
            chunk = _chunk(work.pending, short if work.is_turn else room, bounds)
            if chunk < work.pending and not first and chunk < _WORTH:
                continue
            room, short, first = room - chunk - pace.pass_tokens, short - chunk - pace.pass_tokens, False
        if chunk > 0:
            shares.append(BatchSlice(work.key, chunk))
    return shares


def _chunk(pending: int, room: int, bounds: StepLimits) -> int:
    """What is read of a prompt: the rest of it too, when that is little more than there is room for."""
    return min(pending, bounds.batch_tokens) if pending <= room + bounds.least_chunk // 2 else room


def _pause_s(work: ResponseWork, now_s: float, bounds: StepLimits) -> float:
    """How long work after a call rests between two steps: the shorter, the longer it has waited."""
    return bounds.patience_s / (1 + max(now_s - work.arrived_s, 0.0) / bounds.ageing_s)


def urgency(work: ResponseWork, now_s: float, pace: StepTimePredictor) -> float:
    """The least is the most urgent. Short prompts go before long ones, which loses a long one little and wins a short
    one much; but each second of waiting counts like a second less to read, so that nobody waits for ever. A deadline
    counts by the time that is left."""
    to_read_s = work.pending * pace.token_s
    by_length = to_read_s - (now_s - work.arrived_s)
    return by_length if work.deadline_s is None else min(by_length, work.deadline_s - now_s - to_read_s)


def expired(works: Iterable[ResponseWork], now_s: float) -> list[int]:
    """The keys of those whose deadline passed before they had a token."""
    return [
        work.key for work in works if not work.generating and work.deadline_s is not None and work.deadline_s < now_s
    ]


def expected_wait_s(tokens: int, works: Sequence[ResponseWork], pace: StepTimePredictor, bounds: StepLimits) -> float:
    """How long a live answer whose prompt has so many new tokens waits for its first, were it asked now: what is
    shorter is read before it, in what the steps of those who speak leave."""
    live = [work for work in works if work.priority is Priority.LIVE]
    speaking = sum(not work.reads for work in live)
    shorter = [work.pending for work in live if work.reads and work.pending <= tokens]
    short, long = bounds.room(pace, speaking, len(live) - speaking + 1, len(shorter) + 1)
    chunk = short if tokens <= TURN else long
    steps, rest = divmod(sum(shorter) + len(shorter) * pace.pass_tokens + tokens, chunk)
    return steps * pace.step_s(speaking, chunk) + (pace.step_s(speaking, rest) if rest else 0.0)
