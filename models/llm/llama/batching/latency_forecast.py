"""Forecasts how long callers wait for a model of a given speed: their turns are played through the real scheduler on a
virtual clock. Pure, and the same for the same numbers."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from models.llm.llama.batching.scheduler import TURN, ResponseWork, StepLimits, StepTimePredictor, next_step

_TURNS: Final = 120
"""Played for a forecast, over all calls."""
_LEAST_TURNS_EACH: Final = 6
_SETTLING: Final = 1
"""Turns of each call that do not count: all begin at once otherwise."""
_UNEVEN: Final = 0.5
"""How much longer or shorter a turn is than the usual one, at most."""
_FEW, _MANY = 16, 64
"""Tokens of chunks by which the pace is known before the first step."""
ENDLESS_S: Final = 20.0
"""Who waits so long has hung up."""


@dataclass(frozen=True)
class TurnPattern:
    """What each call does: every `every_s` (give or take half of it) a turn of `tokens_in` new tokens, answered by
    `tokens_out`. The first `first_tokens` of an answer are its first sentence, that the voice begins with; all of it
    takes `speech_s` to be heard. Each has a prompt of `prompt_tokens` and `conversation_tokens` of its talk in
    memory."""

    every_s: float
    tokens_in: int
    tokens_out: int
    first_tokens: int
    speech_s: float
    prompt_tokens: int = 600
    conversation_tokens: int = 300


@dataclass(frozen=True)
class LlmLatencyForecast:
    """In 95 of 100 answers the caller waits for words no longer than `wait_s`, at the beginning and in the middle taken
    together; the model works `busy` of the time (0..1)."""

    wait_s: float
    busy: float


@dataclass(frozen=True)
class MeasuredSteps:
    """Seconds of steps: of one token each `writes` for so many calls together, and of one that `reads` so many of a
    prompt; of each at least one."""

    writes: Mapping[int, float]
    reads: Mapping[int, float]


class StepTimes:
    """How long steps take by what is in them and by how long the talks are: what was measured, in straight lines
    between and beyond."""

    def __init__(self, measured: Mapping[int, MeasuredSteps]) -> None:
        """For each length of the talks in memory, of which at least one. More tokens never take less time, nor do
        longer talks."""
        lengths = sorted(measured)
        self._short, self._long = lengths[0], lengths[-1]
        self._writes = [_Interpolation(measured[length].writes) for length in (self._short, self._long)]
        self._reads = [_Interpolation(measured[length].reads) for length in (self._short, self._long)]

    def writes(self, calls: int, held_tokens: int = 0) -> float:
        """Seconds for the next words of so many calls."""
        return self._between(self._writes, calls, held_tokens)

    def reads(self, tokens: int, held_tokens: int = 0) -> float:
        """Seconds for so many tokens of a prompt."""
        return self._between(self._reads, tokens, held_tokens)

    def _between(self, lines: Sequence[_Interpolation], tokens: int, held_tokens: int) -> float:
        low_s, high_s = (line(tokens) for line in lines)
        if self._long == self._short:
            return low_s
        return low_s + max(0.0, high_s - low_s) * max(0, held_tokens - self._short) / (self._long - self._short)


class _Interpolation:
    """A function through points."""

    def __init__(self, points: Mapping[int, float]) -> None:
        highest, self._points = 0.0, []
        for tokens, seconds in sorted(points.items()):
            highest = max(highest, seconds)
            self._points.append((tokens, highest))

    def __call__(self, tokens: int) -> float:
        points = self._points
        at = bisect_right(points, (tokens, float("inf")))
        if at == 0:
            return points[0][1]
        if at == len(points):
            last_tokens, last_s = points[-1]
            return last_s * tokens / last_tokens
        (low, low_s), (high, high_s) = points[at - 1], points[at]
        return low_s + (high_s - low_s) * (tokens - low) / (high - low)


@dataclass(slots=True)
class _Call:
    """A caller. `next_s` is when the next turn comes; `work` is its answer in the making, `made` its tokens so far."""

    next_s: float
    work: ResponseWork | None = None
    made: int = 0
    first_s: float = 0.0


def forecast(
    step_s: StepTimes, calls: int, turns: TurnPattern, *, slowed: float = 1.0, bounds: StepLimits | None = None
) -> LlmLatencyForecast:
    """The waiting of so many calls at once, when other work on the machine makes each step take `slowed` times as
    long. Milliseconds to tenths of a second."""
    return _Simulation(step_s, calls, turns, slowed, bounds or StepLimits()).run()


class _Simulation:
    """One run of the talk."""

    def __init__(self, step_s: StepTimes, calls: int, turns: TurnPattern, slowed: float, bounds: StepLimits) -> None:
        self._step_s, self._turns, self._slowed, self._bounds = step_s, turns, slowed, bounds
        self._chance = random.Random(calls)
        self._talk = turns.prompt_tokens + turns.conversation_tokens
        few_s, many_s = (slowed * step_s.reads(tokens, self._talk) for tokens in (_FEW, _MANY))
        each_s = (many_s - few_s) / (_MANY - _FEW)
        self._pace = StepTimePredictor(max(0.0, few_s - _FEW * each_s), each_s)
        self._calls = [_Call(self._chance.uniform(0, turns.every_s)) for _ in range(calls)]
        self._wanted = max(_TURNS, _LEAST_TURNS_EACH * calls)
        self._settling = _SETTLING * calls
        self._waits: list[float] = []
        self._now_s = 0.0
        self._busy_s = 0.0

    def run(self) -> LlmLatencyForecast:
        while len(self._waits) < self._wanted:
            self._begin_turns()
            works = [call.work for call in self._calls if call.work is not None]
            if not works:
                self._now_s = min(call.next_s for call in self._calls)
                continue
            if max(self._now_s - work.arrived_s for work in works) > ENDLESS_S:
                return LlmLatencyForecast(ENDLESS_S, 1.0)
            self._step(works)
        counted = sorted(self._waits[self._settling :])
        return LlmLatencyForecast(counted[len(counted) * 95 // 100], self._busy_s / self._now_s)

    def _begin_turns(self) -> None:
        for number, call in enumerate(self._calls):
            if call.work is None and call.next_s <= self._now_s:
                tokens = self._turns.tokens_in
                call.work = ResponseWork(number, tokens, False, call.next_s, call.next_s, is_turn=tokens <= TURN)
                call.made = 0

    def _step(self, works: list[ResponseWork]) -> None:
        shares = next_step(works, self._now_s, self._pace, self._bounds)
        began_s = self._now_s
        if speaking := sum(share.tokens == 1 for share in shares):
            self._take(speaking, 1, self._step_s.writes(speaking, self._talk))
        for share in shares:
            if share.tokens > 1:
                self._take(1, share.tokens, self._step_s.reads(share.tokens, self._talk))
        for share in shares:
            call = self._calls[share.key]
            assert call.work is not None
            call.work = replace(call.work, pending=call.work.pending - share.tokens, served_s=began_s)
            if not call.work.pending:
                self._token(call, call.work)

    def _take(self, calls: int, tokens: int, seconds: float) -> None:
        took_s = seconds * self._slowed
        self._pace.learn(calls, tokens, took_s)
        self._now_s += took_s
        self._busy_s += took_s

    def _token(self, call: _Call, work: ResponseWork) -> None:
        turns = self._turns
        call.made += 1
        call.work = replace(work, pending=1, generating=True)
        if call.made == turns.first_tokens:
            call.first_s = self._now_s
        if call.made < turns.tokens_out:
            return
        before_s = call.first_s - work.arrived_s
        within_s = max(0.0, self._now_s - call.first_s - turns.speech_s)
        self._waits.append(before_s + within_s)
        call.work = None
        pause_s = turns.every_s * self._chance.uniform(1 - _UNEVEN, 1 + _UNEVEN)
        call.next_s = max(work.arrived_s + pause_s, self._now_s + turns.every_s / 4)
