"""How many calls a machine holds, and how long their callers wait for answers: from what models were measured to take.
Pure: numbers in, numbers out.

Each call costs its line (SIP, sound, voice activity), and takes turns that are heard, judged, answered and spoken. The
language model's schedule is played through (`models.llm.llama.batching.latency_forecast`); for all other work callers
stand in line for the cores, at random moments and for much the same work each: half as long as in an M/M/c queue
(Kleinrock, Queueing Systems I, 3.5; for one server 5.6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, lgamma, log
from typing import Final

from models.llm.llama.batching.latency_forecast import ENDLESS_S, LlmLatencyForecast, StepTimes, TurnPattern, forecast

MOST_BUSY: Final = 0.85
"""Of the cores: with more, each disturbance is felt by every caller."""
_LAST_WORDS_S: Final = 0.3
"""Sound that is not heard yet when a turn ends."""


@dataclass(frozen=True)
class CallProfile:
    """What a call is taken to be. Shares are of the call's time; `call_cores` is what a call takes of one core without
    any model."""

    turn_every_s: float = 8.0
    tokens_in: int = 20
    tokens_out: int = 30
    first_tokens: int = 12
    """Of an answer's first sentence."""
    caller_speaks: float = 0.4
    agent_speaks: float = 0.4
    questions: float = 2.0
    """To the end-of-turn model, in each turn."""
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
    """A recognizer. `factors`: seconds of a core for a second of sound, by how many are heard together; `threads` hear
    side by side."""

    name: str
    factors: Mapping[int, float]
    threads: int

    def factor(self, calls: float) -> float:
        """When so many are spread over the threads: that of the largest number measured which is not above each one's
        share, else of the least."""
        share = calls / self.threads
        return self.factors[max((count for count in self.factors if count <= share), default=min(self.factors))]


@dataclass(frozen=True)
class EotCost:
    """An end-of-turn model: seconds of a core for an answer."""

    name: str
    answer_s: float


@dataclass(frozen=True)
class LlmCost:
    """A language model on the cores: its steps, and how many calls' talk it keeps in memory."""

    name: str
    steps: StepTimes
    conversations: int


@dataclass(frozen=True)
class TtsCost:
    """A voice: seconds of a core for a second of speech; `threads` speak side by side."""

    name: str
    factor: float
    threads: int


@dataclass(frozen=True)
class ModelCosts:
    """What was measured of the models that calls use. None: it costs nothing here, or was not measured."""

    stt: SttCost | None = None
    eot: EotCost | None = None
    llm: LlmCost | None = None
    tts: TtsCost | None = None
    stt_second: SttCost | None = None
    """What hears each turn whole, when it is over."""

    @property
    def cost_nothing(self) -> bool:
        """No model was measured: only lines take cores."""
        models = self.stt, self.eot, self.llm, self.tts, self.stt_second
        return all(model is None for model in models)


@dataclass(frozen=True)
class LatencyForecast:
    """So many calls: 95 of 100 answers begin within `wait_s` of the turn's end, and so much of the cores is in use."""

    wait_s: float
    busy: float


@dataclass(frozen=True)
class Capacity:
    """`calls` at once get their answers `within_s`; `bound` is what there is too little of for one more."""

    within_s: float
    calls: int
    bound: str


def forecast_latency(costs: ModelCosts, cores: float, calls: int, profile: CallProfile) -> LatencyForecast:
    """How it will be with so many calls."""
    others = _others_cores(costs, calls, profile)
    share = others / cores
    if share >= 1:
        return LatencyForecast(ENDLESS_S, share)
    written = _written(costs, calls, profile, slowed=1 / (1 - share))
    beside_s = sum(queue.waits_s(share) for queue in _queues(costs, cores, calls, profile)) * (1 + written.busy)
    return LatencyForecast(min(ENDLESS_S, written.wait_s + beside_s), share + written.busy * (1 - share))


def capacities(
    costs: ModelCosts, cores: float, most: int, profile: CallProfile, within_s: Sequence[float]
) -> tuple[Capacity, ...]:
    """How many calls get their answers within each of these times; at most `most`, and as many as the language model
    remembers. Up to a second or two."""
    limit = most if costs.llm is None else min(most, costs.llm.conversations)
    forecasts = cache(lambda calls: forecast_latency(costs, cores, calls, profile))
    enough_cores = _largest(lambda calls: _others_cores(costs, calls, profile) <= MOST_BUSY * cores, limit)
    found = []
    for seconds in within_s:
        calls = _largest(lambda calls, seconds=seconds: forecasts(calls).wait_s <= seconds, enough_cores)  # type: ignore[misc]
        bound = "max_calls" if limit == most else "memory"
        if calls < limit:
            bound = _bottleneck(costs, cores, calls + 1, profile)
        found.append(Capacity(seconds, calls, bound))
    return tuple(found)


def _largest(holds: Callable[[int], bool], limit: int) -> int:
    """The largest number up to `limit` that holds, when all smaller ones do too; 0 when none does."""
    low, high = 0, 1
    while high <= limit and holds(high):
        low, high = high, high * 2
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _bottleneck(costs: ModelCosts, cores: float, calls: int, profile: CallProfile) -> str:
    """What makes so many callers wait the longest, when there are cores enough."""
    others = _others_cores(costs, calls, profile)
    if others > MOST_BUSY * cores:
        return "cores"
    share = others / cores
    waits = {queue.part: queue.waits_s(share) for queue in _queues(costs, cores, calls, profile)}
    waits["language model"] = _written(costs, calls, profile, slowed=1 / (1 - share)).wait_s
    return max(waits, key=lambda part: waits[part])


def _others_cores(costs: ModelCosts, calls: int, profile: CallProfile) -> float:
    """Cores that all but the language model takes."""
    return calls * profile.call_cores + sum(queue.cores for queue in _queues(costs, 1, calls, profile))


@dataclass(frozen=True)
class _Queue:
    """Where callers stand in line: `work_s` is done before an answer is heard, the work for all calls takes `cores`,
    and `servers` do it."""

    part: str
    work_s: float
    cores: float
    servers: float

    def waits_s(self, share: float) -> float:
        """How long 95 of 100 wait at most, when such a share of all cores is in use."""
        return _wait_s(self.work_s, max(self.cores, share * self.servers), self.servers)


def _queues(costs: ModelCosts, cores: float, calls: int, profile: CallProfile) -> list[_Queue]:
    queues = []
    if costs.stt is not None:
        factor = costs.stt.factor(calls * profile.caller_speaks)
        threads = min(cores, costs.stt.threads)
        queues.append(_Queue("recognizer", factor * _LAST_WORDS_S, calls * profile.caller_speaks * factor, threads))
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


def _written(costs: ModelCosts, calls: int, profile: CallProfile, slowed: float) -> LlmLatencyForecast:
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
    return forecast(costs.llm.steps, calls, turns, slowed=slowed)


def _wait_s(work_s: float, load: float, servers: float) -> float:
    """How long 95 of 100 wait at most for work of `work_s` to be done by one of so many servers (a share of one works
    more slowly), which have to do `load` of them without an end."""
    count = max(1, int(servers))
    work_s, load = work_s * count / servers, load * count / servers
    if load >= count:
        return ENDLESS_S
    late = _waits(load, count) / 0.05
    return work_s + (work_s / (count - load) * log(late) / 2 if late > 1 else 0.0)


def _waits(load: float, servers: int) -> float:
    """The probability that all servers are busy (Erlang's C)."""
    if load <= 0:
        return 0.0
    terms = [exp(count * log(load) - lgamma(count + 1)) for count in range(servers + 1)]
    last = terms[servers] * servers / (servers - load)
    return last / (sum(terms[:servers]) + last)
