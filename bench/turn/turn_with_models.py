"""A whole turn with models of real sizes on this machine's processors: from the end of the caller's speech to the first
sound of the answer, over real SIP and RTP (`turn`, with `weighty`)."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any, Final

from bench.models.random_gguf import shape_file
from bench.models.random_vocabulary import sentence
from bench.turn.turn_latency import Scenario, measure

DELAY_MS: Final = 100
"""`turnEndpointDelay`: part of what is told."""
GOAL_MS: Final = 1200
"""Of the median, on four cores with a model of 0.6 billion weights."""
GOAL_CORES: Final = 4
PROMPT: Final = 600
"""Tokens of the agent's prompt."""

Row = dict[str, Any]


async def run(quick: bool) -> list[Row]:
    """The rows of the table."""
    shape, seconds = ("15M", 20.0) if quick else ("0.6B", 180.0)
    path = str(await asyncio.to_thread(shape_file, shape))
    agent = {
        "turn_endpoint_delay": DELAY_MS,
        "system_prompt": sentence("the agent", PROMPT),
        "allow_end_call": False,
    }
    scene = Scenario(f"{shape}, Zipformer, flite", agent, lambda _: None, weights=path)
    rows = []
    for calls in (1,) if quick else (1, 4):
        row = await measure(scene, calls, seconds)
        whole = {key: row[key] + DELAY_MS for key in ("p50_ms", "p95_ms", "max_ms")}
        ticks = {key: row[key] for key in ("lateness_ms", "deviation_ms", "skipped_ticks")}
        rows.append({"what": scene.what, "calls": calls, "n": row["n"], **whole, **ticks, "cpu": row["cpu_by_thread"]})
    return rows


def misses(rows: Sequence[Row]) -> list[str]:
    """Which rows miss the goal, in words."""
    return [
        f"{row['what']}, {row['calls']} calls: p50 {row['p50_ms']} ms, more than {GOAL_MS} (on {os.cpu_count()} cores, "
        f"the goal is for {GOAL_CORES})"
        for row in rows
        if row["p50_ms"] > GOAL_MS
    ]


if __name__ == "__main__":
    for each in asyncio.run(run(quick=False)):
        print(json.dumps(each))
