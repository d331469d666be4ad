"""Forecasts response latency for a model of a given speed: simulates callers' turns through the real scheduler on a
virtual clock. Pure and deterministic."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from models.llm.llama.batching.scheduler import MAX_TURN_TOKENS, ResponseWork, StepLimits, StepTimePredictor, next_step

_SIMULATED_TURNS: Final = 120
"""Turns of a simulation, over all calls."""
_MIN_TURNS_PER_CALL: Final = 6
_WARM_UP_TURNS: Final = 1
"""Turns of each call that are not counted, because all calls start together."""
_TURN_JITTER: Final = 0.5
"""Largest relative deviation of a turn's interval."""
_FEW_TOKENS, _MANY_TOKENS = 16, 64
"""Tokens of the two prompt slices that initialize the step time predictor."""
MAX_WAIT_S: Final = 20.0
"""Seconds after which a caller is taken to have hung up."""


@dataclass(frozen=True)
class TurnPattern:
    """The load of one call: every `every_s` seconds (plus or minus half) a turn of `tokens_in` new tokens and a
    response of `tokens_out`. The first `first_tokens` are the sentence that synthesis starts with; the response is
    `speech_s` long when spoken. The KV cache holds `prompt_tokens` of prompt and `conversation_tokens` of
    conversation."""

    every_s: float
    tokens_in: int
    tokens_out: int
    first_tokens: int
    speech_s: float
    prompt_tokens: int = 600
    conversation_tokens: int = 300


@dataclass(frozen=True)
class LlmLatencyForecast:
    """`wait_s`: 95th percentile of the seconds that a caller waits for words in a response, before and within it.
    `busy`: share of the time in which the model computes (0..1)."""

    wait_s: float
    busy: float


@dataclass(frozen=True)
class MeasuredSteps:
    """Measured step times in seconds, at least one of each kind. `decode_s`: decode steps by number of sequences.
    `prefill_s`: prefill steps by number of prompt tokens."""

    decode_s: Mapping[int, float]
    prefill_s: Mapping[int, float]


class StepTimes:
    """Step times by content and by cached tokens: measured points, interpolated and extrapolated linearly."""

    def __init__(self, measured: Mapping[int, MeasuredSteps]) -> None:
        """`measured`: step times by number of cached tokens, at least one. More tokens never take less time, nor do
        longer contexts."""
        lengths = sorted(measured)
        self._shortest, self._longest = lengths[0], lengths[-1]
        self._decode_curves = [_Interpolation(measured[length].decode_s) for length in (self._shortest, self._longest)]
        self._prefill_curves = [
            _Interpolation(measured[length].prefill_s) for length in (self._shortest, self._longest)
        ]

    def decode_s(self, calls: int, cached_tokens: int = 0) -> float:
        """Seconds of a decode step for `calls` sequences."""
        return self._interpolate(self._decode_curves, calls, cached_tokens)

    def prefill_s(self, tokens: int, cached_tokens: int = 0) -> float:
        """Seconds of a prefill step for `tokens` of a prompt."""
        return self._interpolate(self._prefill_curves, tokens, cached_tokens)

    def _interpolate(self, curves: Sequence[_Interpolation], tokens: int, cached_tokens: int) -> float:
        low_s, high_s = (curve(tokens) for curve in curves)
        if self._longest == self._shortest:
            return low_s
        return low_s + max(0.0, high_s - low_s) * max(0, cached_tokens - self._shortest) / (
            self._longest - self._shortest
        )


class _Interpolation:
    """A monotonic piecewise linear function through points."""

    def __init__(self, points: Mapping[int, float]) -> None:
        highest, self._points = 0.0, []
        for tokens, seconds in sorted(points.items()):
            highest = max(highest, seconds)
            self._points.append((tokens, highest))

    def __call__(self, tokens: int) -> float:
        points = self._points
        index = bisect_right(points, (tokens, float("inf")))
        if index == 0:
            return points[0][1]
        if index == len(points):
            last_tokens, last_s = points[-1]
            return last_s * tokens / last_tokens
        (low, low_s), (high, high_s) = points[index - 1], points[index]
        return low_s + (high_s - low_s) * (tokens - low) / (high - low)


@dataclass(slots=True)
class _Call:
    """A call. `next_s`: time of the next turn. `work`: the response in progress, with `generated` tokens so far."""

    next_s: float
    work: ResponseWork | None = None
    generated: int = 0
    first_s: float = 0.0


def forecast_llm_latency(
    step_s: StepTimes, calls: int, turns: TurnPattern, *, slowdown: float = 1.0, limits: StepLimits | None = None
) -> LlmLatencyForecast:
    """Forecast the latency for `calls` concurrent calls, when other work on the machine makes each step `slowdown`
    times as long. Takes milliseconds to tenths of a second."""
    return _Simulation(step_s, calls, turns, slowdown, limits or StepLimits()).run()


class _Simulation:
    """One simulation."""

    def __init__(self, step_s: StepTimes, calls: int, turns: TurnPattern, slowdown: float, limits: StepLimits) -> None:
        self._step_s, self._turns, self._slowdown, self._limits = step_s, turns, slowdown, limits
        self._random = random.Random(calls)
        self._cached_tokens = turns.prompt_tokens + turns.conversation_tokens
        few_s, many_s = (
            slowdown * step_s.prefill_s(tokens, self._cached_tokens) for tokens in (_FEW_TOKENS, _MANY_TOKENS)
        )
        token_s = (many_s - few_s) / (_MANY_TOKENS - _FEW_TOKENS)
        self._step_time_predictor = StepTimePredictor(max(0.0, few_s - _FEW_TOKENS * token_s), token_s)
        self._calls = [_Call(self._random.uniform(0, turns.every_s)) for _ in range(calls)]
        self._turns_to_simulate = max(_SIMULATED_TURNS, _MIN_TURNS_PER_CALL * calls)
        self._warm_up_turns = _WARM_UP_TURNS * calls
        self._waits: list[float] = []
        self._now_s = 0.0
        self._busy_s = 0.0

    def run(self) -> LlmLatencyForecast:
        while len(self._waits) < self._turns_to_simulate:
            self._begin_turns()
            works = [call.work for call in self._calls if call.work is not None]
            if not works:
                self._now_s = min(call.next_s for call in self._calls)
                continue
            if max(self._now_s - work.arrived_s for work in works) > MAX_WAIT_S:
                return LlmLatencyForecast(MAX_WAIT_S, 1.0)
            self._step(works)
        waits = sorted(self._waits[self._warm_up_turns :])
        return LlmLatencyForecast(waits[len(waits) * 95 // 100], self._busy_s / self._now_s)

    def _begin_turns(self) -> None:
        for number, call in enumerate(self._calls):
            if call.work is None and call.next_s <= self._now_s:
                tokens = self._turns.tokens_in
                call.work = ResponseWork(
                    number, tokens, False, call.next_s, call.next_s, is_turn=tokens <= MAX_TURN_TOKENS
                )
                call.generated = 0

    def _step(self, works: list[ResponseWork]) -> None:
        slices = next_step(works, self._now_s, self._step_time_predictor, self._limits)
        started_s = self._now_s
        if generating := sum(batch_slice.tokens == 1 for batch_slice in slices):
            self._advance(generating, 1, self._step_s.decode_s(generating, self._cached_tokens))
        for batch_slice in slices:
            if batch_slice.tokens > 1:
                self._advance(1, batch_slice.tokens, self._step_s.prefill_s(batch_slice.tokens, self._cached_tokens))
        for batch_slice in slices:
            call = self._calls[batch_slice.key]
            assert call.work is not None
            call.work = replace(call.work, pending=call.work.pending - batch_slice.tokens, last_step_s=started_s)
            if not call.work.pending:
                self._finish_token(call, call.work)

    def _advance(self, calls: int, tokens: int, seconds: float) -> None:
        elapsed_s = seconds * self._slowdown
        self._step_time_predictor.learn(calls, tokens, elapsed_s)
        self._now_s += elapsed_s
        self._busy_s += elapsed_s

    def _finish_token(self, call: _Call, work: ResponseWork) -> None:
        turns = self._turns
        call.generated += 1
        call.work = replace(work, pending=1, generating=True)
        if call.generated == turns.first_tokens:
            call.first_s = self._now_s
        if call.generated < turns.tokens_out:
            return
        first_wait_s = call.first_s - work.arrived_s
        stall_s = max(0.0, self._now_s - call.first_s - turns.speech_s)
        self._waits.append(first_wait_s + stall_s)
        call.work = None
        pause_s = turns.every_s * self._random.uniform(1 - _TURN_JITTER, 1 + _TURN_JITTER)
        call.next_s = max(work.arrived_s + pause_s, self._now_s + turns.every_s / 4)
