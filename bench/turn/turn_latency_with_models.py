"""Turn latency with models of real sizes on this machine's CPU: from the end of the caller's speech to the first sound
of the answer, over real SIP and RTP (`bench.turn.turn_latency` with `bench.turn.realistic_models`)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any, Final

from bench.models.random_gguf import shape_file
from bench.models.random_vocabulary import sentence
from bench.turn.turn_latency import SETTLE_S, Scenario, measure

DELAY_MS: Final = 100
"""`turnEndpointDelay`, which the reported latency includes."""
GOAL_MS: Final = 1200
"""Goal of the median, on `GOAL_CORES` cores with a model of 0.6 billion llm_path."""
GOAL_CORES: Final = 4
PROMPT_TOKENS: Final = 600
"""Tokens of the agent's prompt."""

Row = dict[str, Any]


async def run(quick: bool) -> list[Row]:
    """The rows of the table."""
    shape, seconds = ("15M", 20.0) if quick else ("0.6B", 180.0)
    path = str(await asyncio.to_thread(shape_file, shape))
    agent = {
        "turn_endpoint_delay": DELAY_MS,
        "system_prompt": sentence("the agent", PROMPT_TOKENS),
        "allow_end_call": False,
    }
    scenario = Scenario(f"{shape}, Zipformer, flite", agent, lambda _: None, llm_path=path)
    rows = []
    for calls in (1,) if quick else (1, 4):
        row = await measure(scenario, calls, seconds, 1.0 if quick else SETTLE_S)
        latencies = {key: row[key] + DELAY_MS for key in ("p50_ms", "p95_ms", "max_ms")}
        ticks = {key: row[key] for key in ("lateness_ms", "deviation_ms", "skipped_ticks")}
        cpu = row["cpu_by_thread"]
        rows.append({"what": scenario.what, "calls": calls, "n": row["n"], **latencies, **ticks, "cpu": cpu})
    return rows


def missed_goals(rows: Sequence[Row]) -> list[str]:
    """The rows that miss the goal, in words."""
    return [
        f"{row['what']}, {row['calls']} calls: p50 {row['p50_ms']} ms, more than {GOAL_MS} (on {os.cpu_count()} cores, "
        f"the goal is for {GOAL_CORES})"
        for row in rows
        if row["p50_ms"] > GOAL_MS
    ]


if __name__ == "__main__":
    for each in asyncio.run(run(quick=False)):
        print(json.dumps(each))
