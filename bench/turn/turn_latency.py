"""How long a turn takes, over real SIP and RTP, and what a call costs: the gap before the answer beyond
`turnEndpointDelay`, the time from the caller's first sound to silence on the wire when it interrupts, and the CPU of
the server's process, with 1, 50 and 100 calls at once.

Three processes on one machine: the server (measured), the callers, and this one, which watches the wire. The end of
speech is the sending of the last packet with sound of the caller, the answer is the first packet with sound of the
agent, sound being a peak of 1 % of full scale.
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
from bench.turn.scripted_models import NONE, REALISTIC, Delays
from bench.turn.server import NUMBER, PORTS
from bench.worker_process import Worker, thread_seconds

SOUND: Final = 328
"""1 % of full scale."""
FAINT: Final = 24
"""What remains of silence after G.711, and no speech."""
PAUSE_S: Final = 0.4
"""Sound that follows after a shorter silence belongs to the same speech."""
CALLS: Final = (1, 50, 100)
SETTLE_S: Final = 8.0
"""Every call has begun to talk, and the answer was spoken once."""
WATCHED: Final = 12
"""Calls of which the packets are watched."""
SHORT_ANSWER: Final = "All right, I have noted that."
LONG_ANSWER: Final = (
    "Our office is open from nine to five on every weekday, and on the first Saturday of the month from ten to twelve, "
    "and you will find it next to the train station, behind the old post office and the new library"
)
CPU_GOAL: Final = 0.5
"""Percent of a core per call of a whole session: SIP, RTP, voice activity, turn taking, talk, recording, database."""
MANY: Final = 100
"""Calls from which on that is the goal."""

Row = dict[str, Any]


@dataclass(frozen=True)
class SpeechSegment:
    """Speech on the wire, s."""

    start_s: float
    end_s: float


Measure = Callable[[Sequence[SpeechSegment], Sequence[SpeechSegment]], list[float]]


@dataclass(frozen=True)
class Scenario:
    """A talk that is measured. `goal_ms` says what is to be reached at the 95th percentile with so many calls; with
    `over` the callers interrupt."""

    what: str
    agent: dict[str, Any]
    goal_ms: Callable[[int], float | None]
    delays: Delays = NONE
    over: bool = False
    weights: str | None = None
    """A language model's file: the models compute instead of waiting (`weighty`)."""

    @property
    def answer(self) -> str:
        """What the agent always says."""
        return LONG_ANSWER if self.over else SHORT_ANSWER

    def values(self, caller: Sequence[SpeechSegment], agent: Sequence[SpeechSegment]) -> list[float]:
        """What was measured in one call, ms."""
        return stop_times(caller, agent) if self.over else response_gaps(caller, agent, self._delay_ms)

    @property
    def _delay_ms(self) -> int:
        delay: int = self.agent["turn_endpoint_delay"]
        return delay


SCENES: Final = (
    Scenario(
        "gap beyond turnEndpointDelay 100, instant models",
        {"turn_endpoint_delay": 100},
        lambda calls: 40.0 if calls == 1 else 60.0,
    ),
    Scenario(
        "gap beyond turnEndpointDelay 500, models take 290 ms, speculativeSilenceMs 150",
        {"turn_endpoint_delay": 500, "speculative_silence_ms": 150},
        lambda _: 120.0,
        REALISTIC,
    ),
    Scenario(
        "the same without speculation",
        {"turn_endpoint_delay": 500, "speculative_silence_ms": None},
        lambda _: None,
        REALISTIC,
    ),
    Scenario(
        "barge-in: first sound to silence, minInterruptionDuration 100",
        {"turn_endpoint_delay": 100, "min_interruption_duration": 100},
        lambda _: 160.0,
        over=True,
    ),
)


def speech_segments(times: NDArray[np.float64], peaks: NDArray[np.int32], least: int = SOUND) -> list[SpeechSegment]:
    """Stretches of packets with sound: a peak of at least `least`."""
    loud = times[peaks >= least]
    if not len(loud):
        return []
    breaks = np.nonzero(np.diff(loud) > PAUSE_S)[0]
    starts, ends = np.concatenate(([0], breaks + 1)), np.concatenate((breaks, [len(loud) - 1]))
    return [SpeechSegment(float(loud[a]), float(loud[b])) for a, b in zip(starts, ends, strict=True)]


def response_gaps(caller: Sequence[SpeechSegment], agent: Sequence[SpeechSegment], delay_ms: int) -> list[float]:
    """ms beyond the delay, from each end of the caller's speech to the next beginning of the agent's; the last one may
    not have been answered yet."""
    found = []
    for spell, following in pairwise(caller):
        starts = [each.start_s for each in agent if spell.end_s < each.start_s < following.start_s]
        if starts:
            found.append((starts[0] - spell.end_s) * 1000 - delay_ms)
    return found


def stop_times(caller: Sequence[SpeechSegment], agent: Sequence[SpeechSegment]) -> list[float]:
    """ms from the caller's first sound over the agent to the agent's last."""
    return [
        (over.end_s - spell.start_s) * 1000
        for spell in caller
        for over in agent[:-1]
        if over.start_s < spell.start_s < over.end_s
    ]


async def measure(scene: Scenario, calls: int, seconds: float) -> Row:
    """A server and its callers, watched for so long."""
    with TemporaryDirectory() as folder:
        async with Worker("bench.turn.server") as server, Worker("bench.turn.callers") as load:
            facts = await server.do(
                "start",
                folder=folder,
                answer=scene.answer,
                delays=asdict(scene.delays),
                agent=scene.agent,
                weights=scene.weights,
            )
            await load.do("start", calls=calls, port=facts["port"], number=NUMBER, over=scene.over)
            await asyncio.sleep(SETTLE_S)
            await server.do("name_threads")
            await server.do("facts")  # ticks count from here
            stats, before = await load.do("stats"), thread_seconds(server.pid)
            began = asyncio.get_running_loop().time()
            with RtpCapture(PORTS, 2 * max(1, calls // WATCHED)) as wire:
                await asyncio.sleep(seconds)
            took = asyncio.get_running_loop().time() - began
            percent = _percent(before, thread_seconds(server.pid), took)
            after, ticks = await load.do("stats"), await server.do("facts")
    if after["calls"] != calls:
        raise RuntimeError(f"{after['calls']} of {calls} calls are left")
    times = _times(scene, wire)
    goal = scene.goal_ms(calls)
    return {
        "what": scene.what,
        "calls": calls,
        **summary(times),
        "goal_ms": goal,
        "cpu_percent_per_call": round(sum(percent.values()) / calls, 2),
        "cpu_by_thread": percent,
        "speech_percent": round((after["spoken_ms"] - stats["spoken_ms"]) / (took * calls * 10)),
        "cpu_goal": CPU_GOAL if calls >= MANY and scene.delays == NONE and not scene.over else None,
        "lateness_ms": [round(each, 2) for each in ticks["lateness_ms"]],
        "deviation_ms": [round(each, 2) for each in ticks["deviation_ms"]],
        "skipped_ticks": ticks["skipped_ticks"],
        "times_ms": [round(time, 1) for time in times],
    }


def _percent(before: dict[str, float], after: dict[str, float], took_s: float) -> dict[str, float]:
    """Percent of a core by thread, the busiest first."""
    percent = {name: round(100 * (seconds - before.get(name, 0.0)) / took_s, 2) for name, seconds in after.items()}
    return {name: share for name, share in sorted(percent.items(), key=lambda each: -each[1]) if share > 0}


def _times(scene: Scenario, wire: RtpCapture) -> list[float]:
    """For interruptions even the agent's faintest sound counts: a pause of speech is not taken for the end of it."""
    least = FAINT if scene.over else SOUND
    return [
        time
        for caller, agent in wire.calls()
        for time in scene.values(speech_segments(*levels(caller)), speech_segments(*levels(agent), least))
    ]


def summary(values: Sequence[float]) -> Row:
    """How many, and how long in whole ms: the packets themselves leave a tenth of a ms early or late."""
    if not values:
        raise RuntimeError("nothing was measured")
    p50, p95 = np.percentile(values, [50, 95])
    return {"n": len(values), "p50_ms": round(p50), "p95_ms": round(p95), "max_ms": round(max(values))}


async def run(
    calls: Sequence[int] = CALLS, seconds: float = 60.0, alone_seconds: float = 120.0, scenes: Sequence[int] = ()
) -> list[Row]:
    """The rows of the table. A single call is watched for longer."""
    rows = []
    for index in scenes or range(len(SCENES)):
        for number in calls:
            row = await measure(SCENES[index], number, alone_seconds if number == 1 else seconds)
            rows.append({**row, "reached": _verdict(row)})
    return rows


def _verdict(row: Row) -> str:
    return "missed" if misses([row]) else "" if row["goal_ms"] is None else "yes"


def misses(rows: Sequence[Row]) -> list[str]:
    """Which rows miss which target, in words."""
    found = []
    for row in rows:
        name = f"{row['what']}, {row['calls']} calls"
        if "goal_ms" not in row:  # the peer's
            continue
        if row["goal_ms"] is not None and row["p95_ms"] > row["goal_ms"]:
            found.append(f"{name}: p95 {row['p95_ms']} ms, more than {row['goal_ms']} ms")
        cpu, most = row["cpu_percent_per_call"], row["cpu_goal"]
        if most is not None and cpu > most:
            found.append(f"{name}: {cpu} % of a core per call, more than {most} %")
    return found


def main() -> None:
    """Print the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("calls", nargs="*", type=int, default=CALLS)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--scene", type=int, action="append", default=[], help=f"0..{len(SCENES) - 1}; all without it")
    options = parser.parse_args()
    for row in asyncio.run(run(options.calls, options.seconds, options.seconds, options.scene)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
