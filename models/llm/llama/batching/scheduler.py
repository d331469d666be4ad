"""The scheduler: selects the tokens of the next step, so that all calls share the model and none blocks another.

Pure: seconds are arguments. In a step each generating request gets one token, in one batch; then prompts are prefilled
one after the other, in slices that are short enough not to be heard.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

_DECAY: Final = 0.98
"""Weight of a measurement after the next one: the predictor follows a change of load within 50 steps."""
_MATRIX_TILE: Final = 4
"""Matrix rows that are multiplied at once: three take as long as four."""
_MIN_PROMPT_SLICE: Final = 32
"""Least tokens of a further prompt in a step, because each prompt costs a pass over the weights."""
_PRIOR_WEIGHT: Final = 0.1
"""Constant weight of the initial estimate, because steps of equal size do not determine the fixed part."""
_MIN_TOKEN_S: Final = 1e-6
"""Least seconds per token."""
MAX_TURN_TOKENS: Final = 64
"""New prompt tokens of a turn, at most."""


class Priority(IntEnum):
    """Priority of a request, the lowest number first."""

    LIVE = 0
    """A caller waits for it or hears it."""
    PREFILL = 1
    """Prefill for the next turn, when there is time."""
    AFTER_CALL = 2
    """Post-call work: summaries and extractions."""


@dataclass(frozen=True, slots=True)
class ResponseWork:
    """The pending work of a request. `pending`: tokens to evaluate before the next one, that is the rest of the prompt,
    or one while `generating` (more after preemption). `last_step_s`: time of its last step, initially `arrived_s`.
    `deadline_s`: latest time of the first token. `is_turn`: at most `MAX_TURN_TOKENS` of its prompt are new."""

    key: int
    pending: int
    generating: bool
    arrived_s: float
    last_step_s: float
    priority: Priority = Priority.LIVE
    deadline_s: float | None = None
    is_turn: bool = False

    @property
    def is_prefilling(self) -> bool:
        """True while it is prefilling: more than one token is to be evaluated, or it has no token yet."""
        return not self.generating or self.pending > 1


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """The first `tokens` pending tokens of a request are part of the step."""

    key: int
    tokens: int


@dataclass(frozen=True, slots=True)
class StepLimits:
    """Limits of a step's duration and size.

    `step_s`: seconds for prompts in a step while a caller hears a response, and while none waits for one, because a new
    turn waits for the step's end. `turn_step_s`: the same for turns. `idle_step_s`: seconds of a step while no caller
    hears a response, and for turns while as many callers wait with a turn as hear a response. `least_chunk`,
    `idle_chunk`: prompt tokens that every such step prefills, however slow the machine. `patience_s`: pause of
    post-call work between steps while callers need the model; `ageing_s`: it is halved at this age of the work, a third
    at twice the age, and so on."""

    step_s: float = 0.08
    turn_step_s: float = 0.2
    idle_step_s: float = 0.3
    batch_tokens: int = 512
    least_chunk: int = 8
    idle_chunk: int = 64
    patience_s: float = 2.0
    ageing_s: float = 30.0

    def prompt_budgets(
        self, step_times: StepTimePredictor, generating: int, waiting: int, waiting_turns: int
    ) -> tuple[int, int]:
        """Prompt token budgets of a step, for turns and for other prompts, when `generating` callers hear a response
        and `waiting` ones wait, `turns` of them with a turn."""
        idle = max(step_times.prompt_tokens_within(self.idle_step_s - step_times.step_s(generating)), self.idle_chunk)
        long_budget = idle if waiting and not generating else self._tokens_within(step_times, self.step_s)
        turn_budget = idle if waiting_turns >= generating else self._tokens_within(step_times, self.turn_step_s)
        return min(turn_budget if waiting_turns else long_budget, self.batch_tokens), min(
            long_budget, self.batch_tokens
        )

    def _tokens_within(self, step_times: StepTimePredictor, seconds: float) -> int:
        return max(step_times.prompt_tokens_within(seconds) // _MATRIX_TILE * _MATRIX_TILE, self.least_chunk)


class StepTimePredictor:
    """Predicts step times from past steps: decode by number of sequences, prefill by prompt tokens."""

    def __init__(self, step_s: float = 0.02, token_s: float = 0.006) -> None:
        """The estimate before the first step: fixed seconds, and seconds per token."""
        self._decode, self._prefill = _LeastSquares(step_s, token_s), _LeastSquares(step_s, token_s)

    @property
    def token_s(self) -> float:
        """Seconds per prompt token."""
        return self._prefill.each

    @property
    def new_prompt_cost_tokens(self) -> int:
        """The fixed cost of a further prompt in a step, in prompt tokens."""
        return int(self._prefill.fixed / self._prefill.each)

    def step_s(self, generating: int, read: int = 0) -> float:
        """Seconds of a step with `generating` sequences and `read` prompt tokens."""
        return self._decode(generating) + self._prefill(read)

    def prompt_tokens_within(self, seconds: float) -> int:
        """Prompt tokens that are prefilled in `seconds`, at least 0."""
        return max(0, int((seconds - self._prefill.fixed) / self._prefill.each))

    def learn(self, calls: int, tokens: int, seconds: float) -> None:
        """Record a step's duration: one token of each of `calls` sequences, or `tokens` of a prompt."""
        if tokens == 1:
            self._decode.learn(calls, seconds)
        else:
            self._prefill.learn(calls * tokens, seconds)


class _LeastSquares:
    """Linear model of seconds by tokens: least squares with exponential decay."""

    def __init__(self, fixed: float, each: float) -> None:
        self._prior = [(tokens, fixed + tokens * each) for tokens in (1, 33)]
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self.fixed, self.each = fixed, max(each, _MIN_TOKEN_S)

    def __call__(self, tokens: int) -> float:
        return self.fixed + tokens * self.each if tokens else 0.0

    def learn(self, tokens: int, seconds: float) -> None:
        decayed = tuple(each * _DECAY for each in self._sums)
        self._sums = _add_sample(decayed, tokens, seconds, 1.0)
        sums: tuple[float, ...] = self._sums
        for prior_sample in self._prior:
            sums = _add_sample(sums, *prior_sample, _PRIOR_WEIGHT)
        n, t, tt, s, ts = sums
        self.each = max((n * ts - t * s) / (n * tt - t * t), _MIN_TOKEN_S)
        self.fixed = max((s - self.each * t) / n, 0.0)


def _add_sample(
    sums: tuple[float, ...], tokens: int, seconds: float, weight: float
) -> tuple[float, float, float, float, float]:
    """The sums of 1, tokens, tokens squared, seconds, and tokens times seconds, with a sample added."""
    n, t, tt, s, ts = sums
    return (
        n + weight,
        t + weight * tokens,
        tt + weight * tokens**2,
        s + weight * seconds,
        ts + weight * tokens * seconds,
    )


def next_step(
    works: Sequence[ResponseWork], now_s: float, step_times: StepTimePredictor, limits: StepLimits
) -> list[BatchSlice]:
    """The slices of the next step, empty without work. Generating requests first, one token each; the remaining time
    goes to prompts, the most urgent first. No prefill for later turns while a caller waits for a first token."""
    live = [work for work in works if work.priority is Priority.LIVE]
    waiting = [work for work in live if work.is_prefilling]
    after_call = [work for work in works if work.priority is Priority.AFTER_CALL]
    if live:
        after_call = [work for work in after_call if now_s - work.last_step_s >= _pause_s(work, now_s, limits)]
    prefill = [] if waiting else [work for work in works if work.priority is Priority.PREFILL]
    admitted = [*live, *prefill, *after_call]
    generating = sorted(
        (work for work in admitted if not work.is_prefilling), key=lambda work: (work.priority, work.last_step_s)
    )
    slices = [BatchSlice(work.key, 1) for work in generating[: limits.batch_tokens]]
    prompt_work = sorted(
        (work for work in admitted if work.is_prefilling),
        key=lambda work: (work.priority, urgency(work, now_s, step_times)),
    )
    waiting_turns = sum(work.is_turn for work in waiting)
    turn_budget, prompt_budget = limits.prompt_budgets(
        step_times, len(live) - len(waiting), len(waiting), waiting_turns
    )
    after_call_tokens = 0
    if live and prompt_work and prompt_work[-1].priority is Priority.AFTER_CALL:
        after_call_tokens = min(limits.least_chunk, prompt_budget // 2)
        prompt_budget -= after_call_tokens
    is_first = True
    for work in prompt_work:
        if live and work.priority is Priority.AFTER_CALL:
            slice_tokens = min(work.pending, after_call_tokens)
            after_call_tokens -= slice_tokens
        else:
            slice_tokens = _slice_tokens(work.pending, turn_budget if work.is_turn else prompt_budget, limits)
            if slice_tokens < work.pending and not is_first and slice_tokens < _MIN_PROMPT_SLICE:
                continue
            prompt_budget, turn_budget, is_first = (
                prompt_budget - slice_tokens - step_times.new_prompt_cost_tokens,
                turn_budget - slice_tokens - step_times.new_prompt_cost_tokens,
                False,
            )
        if slice_tokens > 0:
            slices.append(BatchSlice(work.key, slice_tokens))
    return slices


def _slice_tokens(pending: int, budget: int, limits: StepLimits) -> int:
    """The slice of a prompt, rounded up to all of it if little would remain."""
    return min(pending, limits.batch_tokens) if pending <= budget + limits.least_chunk // 2 else budget


def _pause_s(work: ResponseWork, now_s: float, limits: StepLimits) -> float:
    """Seconds that post-call work pauses between steps; the longer it has waited, the shorter."""
    return limits.patience_s / (1 + max(now_s - work.arrived_s, 0.0) / limits.ageing_s)


def urgency(work: ResponseWork, now_s: float, step_times: StepTimePredictor) -> float:
    """The urgency in seconds, the least first. Short prompts go before long ones, which costs a long one little; but a
    second of waiting counts like a second less of prefill, so that no request starves. A deadline counts by its
    slack."""
    to_read_s = work.pending * step_times.token_s
    by_length = to_read_s - (now_s - work.arrived_s)
    return by_length if work.deadline_s is None else min(by_length, work.deadline_s - now_s - to_read_s)


def expired(works: Iterable[ResponseWork], now_s: float) -> list[int]:
    """The keys of requests whose deadline passed before their first token."""
    return [
        work.key for work in works if not work.generating and work.deadline_s is not None and work.deadline_s < now_s
    ]


def expected_wait_s(
    tokens: int, works: Sequence[ResponseWork], step_times: StepTimePredictor, limits: StepLimits
) -> float:
    """Seconds until the first token of a live request with `tokens` new prompt tokens: shorter prompts go first, in the
    time that decode steps leave."""
    live = [work for work in works if work.priority is Priority.LIVE]
    generating = sum(not work.is_prefilling for work in live)
    shorter_prompts = [work.pending for work in live if work.is_prefilling and work.pending <= tokens]
    turn_budget, prompt_budget = limits.prompt_budgets(
        step_times, generating, len(live) - generating + 1, len(shorter_prompts) + 1
    )
    slice_tokens = turn_budget if tokens <= MAX_TURN_TOKENS else prompt_budget
    steps, rest = divmod(
        sum(shorter_prompts) + len(shorter_prompts) * step_times.new_prompt_cost_tokens + tokens, slice_tokens
    )
    return steps * step_times.step_s(generating, slice_tokens) + (step_times.step_s(generating, rest) if rest else 0.0)
