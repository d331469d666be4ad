"""Forecasts a machine's capacity: concurrent calls and their response latency, by the measured costs of the models.
Pure.

Each call takes `call_cores` (SIP, audio, VAD), and turns that are recognized, tested for their end, answered and
spoken. The language model's schedule is simulated (`models.llm.llama.batching.latency_forecast`); all other work queues
for the cores, with random arrivals and nearly constant service times: half the wait of an M/M/c queue (Kleinrock,
Queueing Systems I, 3.5; for one server 5.6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, lgamma, log
from typing import Final

from models.llm.llama.batching.latency_forecast import (
    MAX_WAIT_S,
    LlmLatencyForecast,
    StepTimes,
    TurnPattern,
    forecast_llm_latency,
)

MAX_CORE_SHARE: Final = 0.85
"""Share of the cores in use, at most: above it every caller notices each disturbance."""
_UNDECODED_AUDIO_S: Final = 0.3
"""Seconds of audio that are not yet decoded when a turn ends."""


@dataclass(frozen=True)
class CallProfile:
    """The assumed load of one call. Shares are of the call's time; `call_cores`: cores that a call takes without
    models."""

    turn_every_s: float = 8.0
    tokens_in: int = 20
    tokens_out: int = 30
    first_tokens: int = 12
    """Tokens of a response's first sentence."""
    caller_speaks: float = 0.4
    agent_speaks: float = 0.4
    questions: float = 2.0
    """Queries of the end-of-turn model per turn."""
    call_cores: float = 0.005
    prompt_tokens: int = 600
    conversation_tokens: int = 300

    def __str__(self) -> str:
        return (
            f"a turn every {self.turn_every_s:g} s, {self.tokens_in} tokens in and {self.tokens_out} out; "
            f"callers speak {self.caller_speaks:.0%} and agents {self.agent_speaks:.0%} of the time"
        )


@dataclass(frozen=True)
class SttCost:
    """The cost of a recognizer. `factors`: core seconds per second of audio, by number of streams that are decoded
    together; `threads` decode in parallel."""

    name: str
    factors: Mapping[int, float]
    threads: int

    def factor(self, calls: float) -> float:
        """The factor for `calls` streams over all threads: of the largest measured number up to a thread's share, else
        of the smallest."""
        share = calls / self.threads
        return self.factors[max((count for count in self.factors if count <= share), default=min(self.factors))]


@dataclass(frozen=True)
class EotCost:
    """The cost of an end-of-turn model: core seconds per query."""

    name: str
    answer_s: float


@dataclass(frozen=True)
class LlmCost:
    """The cost of a local language model: its step times, and the number of conversations in its KV cache."""

    name: str
    steps: StepTimes
    conversations: int


@dataclass(frozen=True)
class TtsCost:
    """The cost of a voice: core seconds per second of speech; `threads` synthesize in parallel."""

    name: str
    factor: float
    threads: int


@dataclass(frozen=True)
class ModelCosts:
    """The costs of the models that calls use. None: negligible, remote or not measured."""

    stt: SttCost | None = None
    eot: EotCost | None = None
    llm: LlmCost | None = None
    tts: TtsCost | None = None
    stt_second: SttCost | None = None
    """The second pass over each completed turn."""

    @property
    def is_free(self) -> bool:
        """True if no model was measured."""
        models = self.stt, self.eot, self.llm, self.tts, self.stt_second
        return all(model is None for model in models)


@dataclass(frozen=True)
class LatencyForecast:
    """`wait_s`: 95th percentile of the seconds from a turn's end to the response. `busy`: share of the cores in use."""

    wait_s: float
    busy: float


@dataclass(frozen=True)
class Capacity:
    """`calls` concurrent calls get responses `within_s` seconds; `limited_by` names the bottleneck."""

    within_s: float
    calls: int
    limited_by: str


def forecast_latency(costs: ModelCosts, cores: float, calls: int, profile: CallProfile) -> LatencyForecast:
    """Forecast the latency with `calls` concurrent calls."""
    others_cores = _others_cores(costs, calls, profile)
    share = others_cores / cores
    if share >= 1:
        return LatencyForecast(MAX_WAIT_S, share)
    written = _llm_latency(costs, calls, profile, slowdown=1 / (1 - share))
    queues_s = sum(queue.wait_s(share) for queue in _queues(costs, cores, calls, profile)) * (1 + written.busy)
    return LatencyForecast(min(MAX_WAIT_S, written.wait_s + queues_s), share + written.busy * (1 - share))


def forecast_capacities(
    costs: ModelCosts, cores: float, max_calls: int, profile: CallProfile, within_s: Sequence[float]
) -> tuple[Capacity, ...]:
    """The capacity for each latency in `within_s`; at most `max_calls` and the conversations in the KV cache. Takes up
    to a second or two."""
    limit = max_calls if costs.llm is None else min(max_calls, costs.llm.conversations)
    forecasts = cache(lambda calls: forecast_latency(costs, cores, calls, profile))
    calls_by_cores = _largest(lambda calls: _others_cores(costs, calls, profile) <= MAX_CORE_SHARE * cores, limit)
    results = []
    for seconds in within_s:
        calls = _largest(lambda calls, seconds=seconds: forecasts(calls).wait_s <= seconds, calls_by_cores)  # type: ignore[misc]
        limited_by = "max_calls" if limit == max_calls else "memory"
        if calls < limit:
            limited_by = _bottleneck(costs, cores, calls + 1, profile)
        results.append(Capacity(seconds, calls, limited_by))
    return tuple(results)


def _largest(is_met: Callable[[int], bool], limit: int) -> int:
    """The largest number up to `limit` for which the monotonic condition is met; 0 if none."""
    low, high = 0, 1
    while high <= limit and is_met(high):
        low, high = high, high * 2
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if is_met(middle):
            low = middle
        else:
            high = middle
    return low


def _bottleneck(costs: ModelCosts, cores: float, calls: int, profile: CallProfile) -> str:
    """The part that makes callers wait the longest: "cores" if they do not suffice."""
    others_cores = _others_cores(costs, calls, profile)
    if others_cores > MAX_CORE_SHARE * cores:
        return "cores"
    share = others_cores / cores
    waits = {queue.part: queue.wait_s(share) for queue in _queues(costs, cores, calls, profile)}
    waits["language model"] = _llm_latency(costs, calls, profile, slowdown=1 / (1 - share)).wait_s
    return max(waits, key=lambda part: waits[part])


def _others_cores(costs: ModelCosts, calls: int, profile: CallProfile) -> float:
    """Cores that everything but the language model takes."""
    return calls * profile.call_cores + sum(queue.cores for queue in _queues(costs, 1, calls, profile))


@dataclass(frozen=True)
class _Queue:
    """A queue of work: `work_s` seconds delay a response, all calls together take `cores` of `servers`."""

    part: str
    work_s: float
    cores: float
    servers: float

    def wait_s(self, share: float) -> float:
        """The 95th percentile of the wait in seconds, with `share` of all cores in use."""
        return _wait_s(self.work_s, max(self.cores, share * self.servers), self.servers)


def _queues(costs: ModelCosts, cores: float, calls: int, profile: CallProfile) -> list[_Queue]:
    queues = []
    if costs.stt is not None:
        factor = costs.stt.factor(calls * profile.caller_speaks)
        threads = min(cores, costs.stt.threads)
        queues.append(
            _Queue("recognizer", factor * _UNDECODED_AUDIO_S, calls * profile.caller_speaks * factor, threads)
        )
    if costs.stt_second is not None:  # one turn after the other, at worst: few end at the same moment
        factor, threads = costs.stt_second.factor(1), min(cores, costs.stt_second.threads)
        turn_s = profile.turn_every_s * profile.caller_speaks
        queues.append(_Queue("second pass", factor * turn_s, calls * profile.caller_speaks * factor, threads))
    if costs.eot is not None:  # it is asked before the turn is over
        questions = calls * profile.questions / profile.turn_every_s
        queues.append(_Queue("end of turn", 0.0, questions * costs.eot.answer_s, cores))
    if costs.tts is not None:
        first_s = profile.agent_speaks * profile.turn_every_s * profile.first_tokens / profile.tokens_out
        factor, threads = costs.tts.factor, min(cores, costs.tts.threads)
        queues.append(_Queue("voice", factor * first_s, calls * profile.agent_speaks * factor, threads))
    return queues


def _llm_latency(costs: ModelCosts, calls: int, profile: CallProfile, slowdown: float) -> LlmLatencyForecast:
    if costs.llm is None:
        return LlmLatencyForecast(0.0, 0.0)
    turns = TurnPattern(
        profile.turn_every_s,
        profile.tokens_in,
        profile.tokens_out,
        profile.first_tokens,
        profile.turn_every_s * profile.agent_speaks,
        profile.prompt_tokens,
        profile.conversation_tokens,
    )
    return forecast_llm_latency(costs.llm.steps, calls, turns, slowdown=slowdown)


def _wait_s(work_s: float, load: float, servers: float) -> float:
    """The 95th percentile of the seconds until `work_s` is done by one of `servers` with `load` of them in use. Below
    one server the work takes proportionally longer."""
    count = max(1, int(servers))
    work_s, load = work_s * count / servers, load * count / servers
    if load >= count:
        return MAX_WAIT_S
    excess = _erlang_c(load, count) / 0.05
    return work_s + (work_s / (count - load) * log(excess) / 2 if excess > 1 else 0.0)


def _erlang_c(load: float, servers: int) -> float:
    """The probability that all servers are busy (Erlang C formula)."""
    if load <= 0:
        return 0.0
    terms = [exp(count * log(load) - lgamma(count + 1)) for count in range(servers + 1)]
    last = terms[servers] * servers / (servers - load)
    return last / (sum(terms[:servers]) + last)
