"""Random faults of three nodes behind Kamailio in network namespaces: nodes are killed (`kill -9`), stopped (SIGSTOP),
cut off from the database and the others, drained and started again, and PostgreSQL is stopped, in random order and with
random calls in and out meanwhile. Afterwards everything that the calls have left must be right (`cluster_invariants`).

Each schedule follows from its seed, which is printed. In the environment, `CHAOS_SEEDS` says how many schedules run,
`CHAOS_PARALLEL` how many of them at once, and `CHAOS_SEED` the seed of a single one. The logs of a schedule with a
violation are kept in `build/chaos`. Ends with status 1 if there was one.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import aiohttp
import structlog

from tests.trunkline.nodes.fault_injection import FaultInjection
from tests.trunkline.nodes.network_namespaces import Network, reason_to_skip
from tests.trunkline.nodes.networked_cluster import NODES, NUMBER, NetworkedCluster, entered_network, networked_cluster

SCHEDULES: Final = 200
PARALLEL: Final = 2
"""Schedules at once."""
STEPS: Final = (4, 8)
"""Fewest and most faults, ends of faults included."""
PAUSE_S: Final = (0.3, 3.5)
CALL_PAUSE_S: Final = (0.1, 0.6)
FAULTY_NODES: Final = 2
"""At once."""
MAX_CALLS: Final = 12
USERS: Final = 6
FAILED_ATTEMPTS: Final = (0, 0, 0, 0, 1, 2, 4)
API_TIMEOUT_S: Final = 5.0
ENDED_S: Final = 90.0
"""The longest time of a drain whose calls have ended."""
LOGS: Final = Path(__file__).parents[2] / "build/chaos"
Action = Literal[
    "kill", "stop", "cut", "drain", "start", "continue", "heal", "restart", "stop database", "start database"
]
BEGINS: Final[tuple[Action, ...]] = ("kill", "stop", "cut", "drain")
ENDS: Final[dict[Action, Action]] = {"kill": "start", "stop": "continue", "cut": "heal", "drain": "restart"}


@dataclass(frozen=True)
class Step:
    """After a pause, an action on a node, or on the database with the node ""."""

    pause_s: float
    action: Action
    node: str

    def __str__(self) -> str:
        return f"{self.pause_s:.1f} s {self.action} {self.node}".strip()


def schedule(seed: int) -> list[Step]:
    """Returns the steps of a seed. No node is started while the database is away."""
    rng = random.Random(seed)
    faulty: dict[str, Action] = {}
    is_database_up = True
    steps = []
    for _ in range(rng.randint(*STEPS)):
        options: list[tuple[Action, str]] = [("stop database", "") if is_database_up else ("start database", "")]
        if len(faulty) < FAULTY_NODES:
            options += [(action, node) for node in NODES if node not in faulty for action in BEGINS]
        ends = [(ENDS[action], node) for node, action in faulty.items()]
        options += [each for each in ends * 4 if is_database_up or each[0] in ("continue", "heal")]
        action, node = rng.choice(options)
        if action in BEGINS:
            faulty[node] = action
        elif node:
            del faulty[node]
        else:
            is_database_up = not is_database_up
        steps.append(Step(rng.uniform(*PAUSE_S), action, node))
    return steps


@dataclass
class Chaos:
    """A cluster under the schedule of a seed."""

    injection: FaultInjection
    rng: random.Random
    faulty: dict[str, Action] = field(default_factory=dict)
    is_database_up: bool = True
    is_over: bool = False
    created: list[str] = field(default_factory=list)
    """The ids of the calls whose creation the API has confirmed."""

    @property
    def cluster(self) -> NetworkedCluster:
        """The cluster."""
        return self.injection.cluster

    async def run(self, steps: Sequence[Step]) -> list[str]:
        """Take the steps with calls meanwhile, undo all faults, and end all calls; returns the violations."""
        calling = asyncio.create_task(self._make_calls())
        for step in steps:
            await asyncio.sleep(step.pause_s)
            await self._take(step.action, step.node)
        await asyncio.sleep(PAUSE_S[1])
        self.is_over = True
        await calling
        await self._undo()
        await self.injection.settle()
        stored = {each.id for each in (await self.injection.state()).calls}
        lost = [f"call {each} was created and is not stored" for each in self.created if each not in stored]
        return lost + await self.injection.violations()

    async def _take(self, action: Action, node: str) -> None:  # noqa: C901 - one case for each action
        injection = self.injection
        match action:
            case "kill":
                await injection.kill(node)
            case "stop":
                injection.stop(node)
            case "continue":
                injection.go_on(node)
            case "cut":
                injection.cut(node)
            case "heal":
                injection.heal(node)
            case "drain":
                injection.begin_drain(node)
            case "start":
                await injection.start(node)
            case "restart":
                await injection.hang_up_all(node)
                await injection.cluster.nodes[node].ended(ENDED_S)
                await injection.start(node)
            case "stop database":
                await injection.stop_database()
            case "start database":
                await injection.start_database()
        if action in BEGINS:
            self.faulty[node] = action
        elif node:
            del self.faulty[node]
        else:
            self.is_database_up = action == "start database"

    async def _undo(self) -> None:
        if not self.is_database_up:
            await self._take("start database", "")
        for node, action in list(self.faulty.items()):
            await self._take(ENDS[action], node)
        await self.cluster.wait_until_active()

    async def _make_calls(self) -> None:
        """Dial, hang up and have nodes call until the steps are over. Refusals and silence are not failures here: the
        invariants say what may not be."""
        pbx = self.cluster.pbx
        async with asyncio.TaskGroup() as group:
            while not self.is_over:
                await asyncio.sleep(self.rng.uniform(*CALL_PAUSE_S))
                calls = pbx.in_progress
                match self.rng.choice(("dial", "dial", "place", "place", "hang up", "hang up", "decline")):
                    case "dial":
                        group.create_task(self._dial())
                    case "place":
                        group.create_task(self._place(self.rng.choice(NODES)))
                    case "hang up" if calls:
                        group.create_task(self._hang_up(self.rng.randrange(len(calls))))
                    case "decline":
                        pbx.declines += 1

    async def _dial(self) -> None:
        with suppress(TimeoutError):
            await self.cluster.pbx.dial(NUMBER)

    async def _hang_up(self, index: int) -> None:
        with suppress(TimeoutError, IndexError):
            await self.cluster.pbx.hang_up(self.cluster.pbx.in_progress[index])

    async def _place(self, node: str) -> None:
        """Have a node call the PBX; it may refuse, or say nothing."""
        with suppress(AssertionError, aiohttp.ClientError, TimeoutError, ValueError):
            async with asyncio.timeout(API_TIMEOUT_S):
                self.created.append(await self.cluster.place_call(node))


async def run(network: Network, seed: int) -> list[str]:
    """Run the schedule of a seed in a new cluster; returns the violations."""
    with tempfile.TemporaryDirectory(prefix="trunkline-chaos-") as folder:
        async with networked_cluster(
            network, Path(folder), max_calls=MAX_CALLS, users=USERS, failed_attempts=FAILED_ATTEMPTS
        ) as cluster:
            chaos = Chaos(FaultInjection(cluster), random.Random(seed))
            try:
                found = await chaos.run(schedule(seed))
            except Exception as error:  # noqa: BLE001 - a schedule that breaks off is a finding, and the next one runs
                found = [f"the schedule was not completed: {error!r}"]
            if found:
                await asyncio.to_thread(_keep_logs, cluster, seed, found)
            return found


def _keep_logs(cluster: NetworkedCluster, seed: int, found: Sequence[str]) -> None:
    folder = LOGS / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "violations").write_text("\n".join(found))
    for name, node in cluster.nodes.items():
        (folder / f"{name}.log").write_text("\n".join(node.log.lines))
    started_at = time.time() - time.monotonic()
    received = sorted(cluster.receiver.requests, key=lambda each: each.received_s)
    (folder / "webhooks").write_text("\n".join(
        f"{datetime.fromtimestamp(started_at + each.received_s, UTC).isoformat()} from {each.source}: event "
        f"{each.delivery_id} of call {each.call_id}, attempt {each.attempt}, {each.behaviour}"
        for each in received
    ))  # fmt: skip


def run_one(seed: int) -> bool:
    """Run the schedule of a seed in a network of its own, and print what was found; true if nothing was."""
    print(f"seed {seed}: {', '.join(map(str, schedule(seed)))}", flush=True)
    began_s = time.monotonic()
    with entered_network() as network:
        found = asyncio.run(run(network, seed))
    print(
        "\n".join(
            [f"    {len(found)} violations, {time.monotonic() - began_s:.0f} s", *(f"    {each}" for each in found)]
        )
    )
    return not found


async def run_all(seeds: Sequence[int], parallel: int) -> list[int]:
    """Run each schedule in a process of its own, some at once, and print what they print as they end; returns the
    seeds of those that failed."""
    slots = asyncio.Semaphore(parallel)
    failed = []

    async def run_process(seed: int) -> None:
        async with slots:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", __spec__.name, "--seed", str(seed),
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            )  # fmt: skip
            output, _ = await process.communicate()
        ended.append(seed)
        print(f"{len(ended)}/{len(seeds)} {output.decode().rstrip()}", flush=True)
        if process.returncode:
            failed.append(seed)

    ended: list[int] = []
    await asyncio.gather(*map(run_process, seeds))
    return failed


def main() -> None:
    """Prints what was found with each seed, and the seeds with violations at the end."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    if reason := reason_to_skip():
        sys.exit(reason)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=os.environ.get("CHAOS_SEEDS", SCHEDULES))
    parser.add_argument("--parallel", type=int, default=os.environ.get("CHAOS_PARALLEL", PARALLEL), help="at once")
    parser.add_argument("--seed", type=int, default=os.environ.get("CHAOS_SEED"), help="this schedule alone")
    options = parser.parse_args()
    if options.seed is not None:
        sys.exit(0 if run_one(options.seed) else 1)
    seeds = random.sample(range(1_000_000), options.schedules)
    if failed := asyncio.run(run_all(seeds, options.parallel)):
        sys.exit(f"violations with these seeds: {' '.join(map(str, failed))}")
    print(f"no violation in {len(seeds)} schedules", flush=True)


if __name__ == "__main__":
    main()
