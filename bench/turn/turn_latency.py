"""Turn latency over real SIP and RTP: the response gap beyond `turnEndpointDelay`, the time from the caller's first
sound to silence on the wire at barge-in, and the CPU of the server process, with 1, 50 and 100 concurrent calls.

Three processes on one machine: the measured server, the callers, and this one, which captures packets. The end of
speech is the send time of the caller's last packet with sound, the answer begins with the agent's first packet with
sound; sound is a peak of at least 1 % of full scale.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bench.capture.rtp_capture import RtpCapture, levels
from bench.turn.scripted_models import NO_DELAYS, TYPICAL_DELAYS, Delays
from bench.turn.server import NUMBER, PORTS
from bench.worker_process import Worker, thread_seconds

SOUND_PEAK: Final = 328
"""1 % of full scale."""
FAINT_PEAK: Final = 24
"""More than what G.711 leaves of silence, less than any speech."""
PAUSE_S: Final = 0.4
"""Shorter silences belong to the speech segment."""
CALLS: Final = (1, 50, 100)
SETTLE_S: Final = 8.0
"""Time in which every caller begins to speak, and the answer is synthesized once."""
CAPTURED_CALLS: Final = 12
"""Calls whose packets are captured."""
SHORT_ANSWER: Final = "All right, I have noted that."
LONG_ANSWER: Final = (
    "Our office is open from nine to five on every weekday, and on the first Saturday of the month from ten to twelve, "
    "and you will find it next to the train station, behind the old post office and the new library"
)
CPU_GOAL: Final = 0.5
"""Percent of a core per call of a whole session: SIP, RTP, voice activity detection, turn taking, conversation,
recording, database."""
CPU_GOAL_CALLS: Final = 100
"""Smallest number of calls for which `CPU_GOAL` holds."""

Row = dict[str, Any]


@dataclass(frozen=True)
class SpeechSegment:
    """A stretch of speech on the wire. Times of the packets in s."""

    start_s: float
    end_s: float


@dataclass(frozen=True)
class Scenario:
    """A kind of conversation that is measured. `goal_ms` returns the goal of the 95th percentile for a number of calls;
    with `interrupt` the callers interrupt the agent."""

    what: str
    agent: dict[str, Any]
    goal_ms: Callable[[int], float | None]
    delays: Delays = NO_DELAYS
    interrupt: bool = False
    llm_path: str | None = None
    """A language model's GGUF file: random-weight models of real sizes in place of the scripted ones."""

    @property
    def answer(self) -> str:
        """The agent's only answer."""
        return LONG_ANSWER if self.interrupt else SHORT_ANSWER

    def latencies(self, caller: Sequence[SpeechSegment], agent: Sequence[SpeechSegment]) -> list[float]:
        """The latencies of one call, ms: stop times if callers interrupt, else response gaps."""
        return stop_times(caller, agent) if self.interrupt else response_gaps(caller, agent, self._delay_ms)

    @property
    def has_cpu_goal(self) -> bool:
        """True if `CPU_GOAL` holds for this scenario: without model latencies and interruptions."""
        return self.delays == NO_DELAYS and not self.interrupt

    @property
    def _delay_ms(self) -> int:
        delay: int = self.agent["turn_endpoint_delay"]
        return delay


SCENARIOS: Final = (
    Scenario(
        "gap beyond turnEndpointDelay 100, instant models",
        {"turn_endpoint_delay": 100},
        lambda calls: 40.0 if calls == 1 else 60.0,
    ),
    Scenario(
        "gap beyond turnEndpointDelay 500, models take 290 ms, speculativeSilenceMs 150",
        {"turn_endpoint_delay": 500, "speculative_silence_ms": 150},
        lambda _: 120.0,
        TYPICAL_DELAYS,
    ),
    Scenario(
        "the same without speculation",
        {"turn_endpoint_delay": 500, "speculative_silence_ms": None},
        lambda _: None,
        TYPICAL_DELAYS,
    ),
    Scenario(
        "barge-in: first sound to silence, minInterruptionDuration 100",
        {"turn_endpoint_delay": 100, "min_interruption_duration": 100},
        lambda _: 160.0,
        interrupt=True,
    ),
)


def speech_segments(
    times: NDArray[np.float64], peaks: NDArray[np.int32], min_peak: int = SOUND_PEAK
) -> list[SpeechSegment]:
    """The stretches of packets with a peak of at least `min_peak`."""
    loud = times[peaks >= min_peak]
    if not len(loud):
        return []
    breaks = np.nonzero(np.diff(loud) > PAUSE_S)[0]
    starts, ends = np.concatenate(([0], breaks + 1)), np.concatenate((breaks, [len(loud) - 1]))
    return [SpeechSegment(float(loud[a]), float(loud[b])) for a, b in zip(starts, ends, strict=True)]


def response_gaps(caller: Sequence[SpeechSegment], agent: Sequence[SpeechSegment], delay_ms: int) -> list[float]:
    """Times beyond `delay_ms` from each end of the caller's speech to the next beginning of the agent's, ms; without
    the caller's last segment, which may not have been answered yet."""
    gaps = []
    for segment, following in pairwise(caller):
        starts = [answer.start_s for answer in agent if segment.end_s < answer.start_s < following.start_s]
        if starts:
            gaps.append((starts[0] - segment.end_s) * 1000 - delay_ms)
    return gaps


def stop_times(caller: Sequence[SpeechSegment], agent: Sequence[SpeechSegment]) -> list[float]:
    """Times from the caller's first sound during the agent's speech to the agent's last sound, ms."""
    return [
        (answer.end_s - segment.start_s) * 1000
        for segment in caller
        for answer in agent[:-1]
        if answer.start_s < segment.start_s < answer.end_s
    ]


async def measure(scenario: Scenario, calls: int, seconds: float, settle_s: float = SETTLE_S) -> Row:
    """Measures `calls` concurrent calls of a scenario for `seconds`. Returns a row."""
    with TemporaryDirectory() as folder:
        async with Worker("bench.turn.server") as server, Worker("bench.turn.turn_load") as load:
            started = await server.request(
                "start",
                folder=folder,
                answer=scenario.answer,
                delays=asdict(scenario.delays),
                agent=scenario.agent,
                llm_path=scenario.llm_path,
            )
            await load.request("start", calls=calls, port=started["port"], number=NUMBER, interrupt=scenario.interrupt)
            await asyncio.sleep(settle_s)
            await server.request("name_threads")
            await server.request("status")  # resets the pump's statistics
            stats, before = await load.request("stats"), thread_seconds(server.pid)
            began = asyncio.get_running_loop().time()
            with RtpCapture(PORTS, 2 * max(1, calls // CAPTURED_CALLS)) as capture:
                await asyncio.sleep(seconds)
            elapsed_s = asyncio.get_running_loop().time() - began
            percent = _percent(before, thread_seconds(server.pid), elapsed_s)
            after, status = await load.request("stats"), await server.request("status")
    if after["calls"] != calls:
        raise RuntimeError(f"only {after['calls']} of {calls} calls are active")
    latencies = _latencies(scenario, capture)
    return {
        "what": scenario.what,
        "calls": calls,
        **summary(latencies),
        "goal_ms": scenario.goal_ms(calls),
        "cpu_percent_per_call": round(sum(percent.values()) / calls, 2),
        "cpu_by_thread": percent,
        "speech_percent": round((after["spoken_ms"] - stats["spoken_ms"]) / (elapsed_s * calls * 10)),
        "cpu_goal": CPU_GOAL if calls >= CPU_GOAL_CALLS and scenario.has_cpu_goal else None,
        "lateness_ms": [round(value, 2) for value in status["lateness_ms"]],
        "deviation_ms": [round(value, 2) for value in status["deviation_ms"]],
        "skipped_ticks": status["skipped_ticks"],
        "times_ms": [round(latency, 1) for latency in latencies],
    }


def _percent(before: dict[str, float], after: dict[str, float], elapsed_s: float) -> dict[str, float]:
    """Percent of a core by thread, the busiest first."""
    percent = {name: round(100 * (seconds - before.get(name, 0.0)) / elapsed_s, 2) for name, seconds in after.items()}
    return {name: share for name, share in sorted(percent.items(), key=lambda item: -item[1]) if share > 0}


def _latencies(scenario: Scenario, capture: RtpCapture) -> list[float]:
    """The latencies of all captured calls, ms. At barge-in even the agent's faintest sound counts, because a pause in
    its speech is not its end."""
    min_peak = FAINT_PEAK if scenario.interrupt else SOUND_PEAK
    return [
        latency
        for caller, agent in capture.calls()
        for latency in scenario.latencies(speech_segments(*levels(caller)), speech_segments(*levels(agent), min_peak))
    ]


def summary(values: Sequence[float]) -> Row:
    """Number, p50, p95 and maximum in whole ms, because packets leave some tenths of a ms early or late. Raises
    `RuntimeError` if there are no values."""
    if not values:
        raise RuntimeError("nothing was measured")
    p50, p95 = np.percentile(values, [50, 95])
    return {"n": len(values), "p50_ms": round(p50), "p95_ms": round(p95), "max_ms": round(max(values))}


async def run(
    calls: Sequence[int] = CALLS,
    seconds: float = 60.0,
    single_call_seconds: float = 120.0,
    scenarios: Sequence[int] = (),
    settle_s: float = SETTLE_S,
) -> list[Row]:
    """The rows of the table; `scenarios` are indexes of `SCENARIOS`, by default all. A single call is measured for
    longer."""
    rows = []
    for index in scenarios or range(len(SCENARIOS)):
        for number in calls:
            row = await measure(SCENARIOS[index], number, single_call_seconds if number == 1 else seconds, settle_s)
            rows.append({**row, "reached": _reached(row)})
    return rows


def _reached(row: Row) -> str:
    return "missed" if missed_goals([row]) else "" if row["goal_ms"] is None else "yes"


def missed_goals(rows: Sequence[Row]) -> list[str]:
    """The goals that rows miss, in words."""
    missed = []
    for row in rows:
        name = f"{row['what']}, {row['calls']} calls"
        if "goal_ms" not in row:  # Pipecat's
            continue
        if row["goal_ms"] is not None and row["p95_ms"] > row["goal_ms"]:
            missed.append(f"{name}: p95 {row['p95_ms']} ms, more than {row['goal_ms']} ms")
        cpu, cpu_goal = row["cpu_percent_per_call"], row["cpu_goal"]
        if cpu_goal is not None and cpu > cpu_goal:
            missed.append(f"{name}: {cpu} % of a core per call, more than {cpu_goal} %")
    return missed


def main() -> None:
    """Prints the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calls", nargs="*", type=int, default=CALLS)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--scenario", type=int, action="append", default=[], help=f"0 to {len(SCENARIOS) - 1}; by default all"
    )
    options = parser.parse_args()
    for row in asyncio.run(run(options.calls, options.seconds, options.seconds, options.scenario)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
