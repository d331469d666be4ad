"""Three nodes with one PostgreSQL database behind Kamailio: phones each, kills one (`kill -9`), and prints what
survived. Ends with status 1 if something was lost."""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
import structlog
from rich.console import Console
from rich.table import Table

from storage import tables
from storage.nodes import nodes
from tests.peers import postgresql
from tests.trunkline.pbx.kamailio_cluster import PBX, Cluster, Node, open_cluster
from tests.trunkline.server_process import Receiver
from tests.trunkline.sip_phone import PhoneCall

NUMBER: Final = "110"
CALLS: Final = 6
CLOSED_S: Final = 15.0
"""The longest time from the death of a node to the stored end of its calls, seconds."""
HEARD_PACKETS: Final = 50
"""Packets of a surviving call after the death, one every 20 ms."""


@dataclass
class Report:
    """The lines of the report, and what was lost."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)

    def add(self, what: str, found: str, *, lost: bool = False) -> None:
        """Add a line; prints it at once."""
        self.rows.append((what, found))
        if lost:
            self.losses.append(what)
        print(f"    {'LOST ' if lost else ''}{what}: {found}", flush=True)


async def run(report: Report) -> None:
    """Start everything, and add what happens to the report."""
    server = await asyncio.to_thread(postgresql.server)
    url = await asyncio.to_thread(server.take_database)
    settings: dict[str, Any] = {"sip": {"max_invites_per_second": 10_000}}
    with tempfile.TemporaryDirectory(prefix="trunkline-cluster-") as folder:
        async with Receiver() as receiver, open_cluster(Path(folder), url, **settings) as cluster:
            agent = {
                "customerSilenceMs": 0,
                "systemPrompt": "Yes.",
                "postCallWebhookUrl": receiver.url,
                "postCallWebhookSecret": "s" * 32,
            }
            await cluster.number(NUMBER, agent, sipSources=[PBX])
            for node in cluster.nodes:
                report.add(f"node {node.host}", f"ready, SIP at {node.target}, API at {node.origin}")
            await _kill_one(cluster, receiver, report)


async def _kill_one(cluster: Cluster, receiver: Receiver, report: Report) -> None:
    async with AsyncExitStack() as stack:
        phoned: dict[Node, list[PhoneCall]] = {node: [] for node in cluster.nodes}
        for _ in range(CALLS):
            call = await stack.enter_async_context(cluster.calling(number=NUMBER))
            phoned[cluster.owner(call.dialog.target)].append(call)
        spread = ", ".join(f"{len(calls)} at {node.host}" for node, calls in phoned.items())
        report.add("calls through Kamailio", spread, lost=not all(phoned.values()))
        await _hang_up_through_another(cluster, phoned, report)
        victim = cluster.nodes[0]
        lost_ids = await _stored_calls(victim, CALLS - 1)
        before = {call: len(call.packets) for node, calls in phoned.items() if node is not victim for call in calls}
        killed_s = time.monotonic()
        await victim.kill()
        report.add(f"kill -9 of {victim.host}", f"it had {len(lost_ids)} calls")
        began_s = time.monotonic()
        answering = await cluster.answering_node()
        report.add("the next call", f"answered by {answering.host} after {time.monotonic() - began_s:.2f} s")
        for call, packets in before.items():
            await call.has_heard(packets + HEARD_PACKETS)
        report.add("calls at the other nodes", f"{len(before)} of {len(before)} go on")
        await _closed_calls(receiver, lost_ids, killed_s, report)
        for call in before:
            await call.hang_up()
    await _restart(cluster, victim, report)
    times = [len([1 for _, body in receiver.received if call_id.encode() in body]) for call_id in lost_ids]
    report.add("webhooks of the lost calls", f"{times} requests", lost=any(each != 1 for each in times))


async def _hang_up_through_another(cluster: Cluster, phoned: dict[Node, list[PhoneCall]], report: Report) -> None:
    """Ends a call at the last node by the API of the first one."""
    first, last = cluster.nodes[0], cluster.nodes[-1]
    call_id = (await _stored_calls(last, CALLS))[0]
    begun_s = time.monotonic()
    await cluster.client_of(first).v1("POST", f"calls/{call_id}/hangup")
    ended = phoned[last].pop(0)
    await ended.hung_up()
    report.add("hang-up of a call", f"by the API of another node, in {time.monotonic() - begun_s:.2f} s")


async def _stored_calls(node: Node, count: int) -> list[str]:
    """The ids of the live calls of a node, once the answers of all `count` calls are stored."""
    calls = tables.calls.c
    live = sa.select(calls.id, calls.node, calls.status).where(calls.ended_at.is_(None))
    async with node.database() as database, asyncio.timeout(20):
        while True:
            rows = await database.read(lambda conn: conn.execute(live).all())
            if [row.status for row in rows] == ["in_progress"] * count:
                return [row.id for row in rows if row.node == node.host]
            await asyncio.sleep(0.1)


async def _closed_calls(receiver: Receiver, call_ids: Sequence[str], killed_s: float, report: Report) -> None:
    for call_id in call_ids:
        await receiver.about(call_id, timeout_s=max(0.1, killed_s + 2 * CLOSED_S - time.monotonic()))
    took_s = time.monotonic() - killed_s
    found = f"{len(call_ids)} closed by a survivor, with their webhooks, after {took_s:.1f} s"
    report.add("calls of the dead node", found, lost=took_s > CLOSED_S)


async def _restart(cluster: Cluster, victim: Node, report: Report) -> None:
    began_s = time.monotonic()
    await victim.start()
    await cluster.proxy.wait_for_state(victim, "A")
    report.add(f"{victim.host} started again", f"takes calls after {time.monotonic() - began_s:.1f} s")
    async with victim.database() as database:
        states = {each.name: each.state for each in await database.read(nodes.all_of)}
    report.add(
        "nodes", ", ".join(f"{name} {state}" for name, state in states.items()), lost={*states.values()} != {"up"}
    )


def main() -> None:
    """Prints each step, and a table at the end."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    report = Report()
    print("==> three nodes, PostgreSQL, Kamailio", flush=True)
    asyncio.run(run(report))
    table = Table("what", "found", title="what survived")
    for row in report.rows:
        table.add_row(*row)
    Console().print(table)
    if report.losses:
        sys.exit(f"lost: {', '.join(report.losses)}")


if __name__ == "__main__":
    main()
