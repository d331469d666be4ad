"""What PostgreSQL does for nodes and calls: transactions, WAL and CPU of an idle node and of a call; of a heartbeat, by
the number of nodes; and of a notification, by the number of nodes that listen. Prints a row of JSON for each.

Nodes, PostgreSQL and the caller share the machine; PostgreSQL does not sync to disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import numpy as np
import psycopg
import sqlalchemy as sa

from bench.worker_process import machine
from config.clock import utc_now
from storage import tables
from storage.database.database import Database
from storage.database.database_url import parse
from storage.database.postgresql.connection import open_session
from storage.database.postgresql.locks import HeartbeatLock
from storage.database.postgresql.notifications import CHANNEL
from storage.nodes import nodes
from storage.nodes.cluster_membership import HEARTBEAT_S
from storage.nodes.nodes import Node
from storage.nodes.work_share import LeasedShare
from tests.peers import postgresql
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.nodes.cluster import cluster
from tests.trunkline.sip_phone import PhoneCall

IDLE_S: Final = 30.0
CALLS: Final = 20
HEARTBEATS: Final = 50
NODES: Final = (3, 30, 100, 300, 1000)
NUMBERS_OF_A_NODE: Final = 10
"""Registered numbers."""
LISTENERS: Final = (3, 30, 100, 250)
REPORT_S: Final = 12.0
"""After this time idle sessions have reported their transactions."""
Row = dict[str, Any]


@dataclass
class Load:
    """What a server has done so far: transactions, transaction ids (those of writes and of their savepoints), bytes of
    WAL, CPU seconds of its present sessions."""

    transactions: int
    ids: int
    wal_bytes: int
    cpu_s: float


def load_of(url: str) -> Load:
    """Reads the load of a database's server. Blocks."""
    query = (
        "SELECT xact_commit + xact_rollback, pg_snapshot_xmax(pg_current_snapshot())::text::bigint, "
        "pg_current_wal_lsn() - '0/0'::pg_lsn FROM pg_stat_database WHERE datname = current_database()"
    )
    with open_session(parse(url)) as conn:
        transactions, ids, wal_bytes = conn.execute(query).fetchone() or (0, 0, 0)
        sessions = conn.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()").fetchall()
    return Load(int(transactions), int(ids), int(wal_bytes), sum(_cpu_s(pid) for (pid,) in sessions))


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _row(what: str, before: Load, after: Load, count: float) -> Row:
    return {
        "what": what,
        "transactions": round((after.transactions - before.transactions) / count, 2),
        "transaction_ids": round((after.ids - before.ids) / count, 2),
        "wal_bytes": round((after.wal_bytes - before.wal_bytes) / count),
        "postgresql_cpu_ms": round(1000 * (after.cpu_s - before.cpu_s) / count, 2),
    }


async def measure_calls(idle_s: float, calls: int) -> list[Row]:
    """An idle node in a second, and an inbound call with a webhook, less what the idle nodes do meanwhile."""
    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as folder:
        async with cluster(Path(folder), "a", "b", "c") as made, made.client("a") as client:
            url = made.url
            agent = {"systemPrompt": "Yes.", "customerSilenceMs": 0, "postCallWebhookUrl": made.receiver.url}
            number = await client.number("100", await client.agent(**agent, postCallWebhookSecret="s" * 32))
            assert number
            await asyncio.sleep(REPORT_S)
            idle = await _elapsed(url, partial(asyncio.sleep, idle_s))
            busy = await _elapsed(url, partial(_call, made.nodes["a"].target, calls))
    per_s = _row("an idle node, a second", *idle[:2], 3 * idle[2])
    both = _row("a call", *busy[:2], 1)
    return [
        per_s,
        {"what": "an inbound call with a webhook"}
        | {name: round((both[name] - per_s[name] * 3 * busy[2]) / calls, 2) for name in list(both)[1:]},
    ]


async def _call(target: str, calls: int) -> None:
    for _ in range(calls):
        async with RawPhone(target, "127.0.0.1") as phone, PhoneCall(phone, "100") as call:
            await call.has_heard(25)
            await call.hang_up()
    await asyncio.sleep(2)


async def _elapsed(url: str, work: Callable[[], Awaitable[Any]]) -> tuple[Load, Load, float]:
    """The loads before and after some work, once the sessions have reported it, and the seconds between."""
    before, began_s = await asyncio.to_thread(load_of, url), time.monotonic()
    await work()
    await asyncio.sleep(REPORT_S)
    return before, await asyncio.to_thread(load_of, url), time.monotonic() - began_s


async def measure_heartbeats(counts: Sequence[int], heartbeats: int) -> list[Row]:
    """A node's round every `HEARTBEAT_S`, among others: its heartbeat, and its looks at the leases and the nodes."""
    url = await asyncio.to_thread(postgresql.server().take_database)
    database = Database(url, "measured")
    await database.open()
    rows = []
    try:
        for count in counts:
            node, share = await _filled(database, count)
            took: list[float] = []

            async def rounds(node: Node = node, share: LeasedShare = share, took: list[float] = took) -> None:
                for _ in range(heartbeats):
                    began_s = time.perf_counter()
                    await database.write(partial(nodes.store_heartbeat, node=node), lock=HeartbeatLock(node.name))
                    await share.update(database, takes_over=True)
                    await database.read(nodes.all_of)
                    took.append(1000 * (time.perf_counter() - began_s))

            before, after, _ = await _elapsed(url, rounds)
            row = _row(f"a heartbeat among {count} nodes", before, after, heartbeats)
            cores = round(row["postgresql_cpu_ms"] * count / HEARTBEAT_S / 1000, 2)
            rows.append(row | {"round_p50_ms": round(float(np.median(took)), 2), "cores_of_all_nodes": cores})
    finally:
        await database.close()
    return rows


async def _filled(database: Database, count: int) -> tuple[Node, LeasedShare]:
    """This many nodes, each with the leases of `NUMBERS_OF_A_NODE`; returns one of them."""
    now = utc_now()
    made = [Node(f"node{i}", str(uuid4()), None, "0", "up", 0, 100, now, now) for i in range(count)]
    keys = [f"{i}-{number}" for i in range(count) for number in range(NUMBERS_OF_A_NODE)]
    held = [
        {"name": f"registration:{key}", "instance": made[int(key.partition("-")[0])].instance, "epoch": 1}
        for key in keys
    ]

    def write(conn: sa.Connection) -> None:
        conn.execute(sa.delete(tables.leases))
        conn.execute(sa.delete(tables.nodes))
        conn.execute(sa.insert(tables.leases), held)
        for each in made:
            nodes.store_heartbeat(conn, each)
        conn.execute(sa.update(tables.nodes).values(last_seen_at=sa.text("9000000000000")))  # they stay up

    await database.write(write)
    share = LeasedShare("registration", 50, made[0].instance)
    share.want(keys)
    return made[0], share


@contextmanager
def _listening(url: str, count: int) -> Iterator[list[psycopg.Connection[Any]]]:
    with ExitStack() as stack:
        made = [stack.enter_context(open_session(parse(url))) for _ in range(count)]
        for each in made:
            each.execute(f"LISTEN {CHANNEL}")
        yield made


def measure_notifications(counts: Sequence[int], times: int) -> list[Row]:
    """A committed change of an agent, until all listeners have its notification. Blocks."""
    url = postgresql.server().take_database()
    rows = []
    with open_session(parse(url)) as writer:
        for count in counts:
            with _listening(url, count) as listeners:
                before, commits, all_told = load_of(url), list[float](), list[float]()
                for _ in range(times):
                    began_s = time.perf_counter()
                    writer.execute("UPDATE agents SET name = name")
                    commits.append(1000 * (time.perf_counter() - began_s))
                    for each in listeners:
                        assert next(each.notifies(timeout=10, stop_after=1)).channel == CHANNEL
                    all_told.append(1000 * (time.perf_counter() - began_s))
                row = _row(f"a notification to {count} nodes", before, load_of(url), times)
            rows.append({
                "what": row["what"], "postgresql_cpu_ms": row["postgresql_cpu_ms"],
                "commit_p50_ms": round(float(np.median(commits)), 2),
                "all_told_p50_ms": round(float(np.median(all_told)), 2),
            })  # fmt: skip
    return rows


def main() -> None:
    """Prints the machine and the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--idle", type=float, default=IDLE_S, help="seconds")
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--times", type=int, default=HEARTBEATS, help="heartbeats and notifications of each row")
    parser.add_argument("--most", type=int, default=NODES[-1], help="the largest number of nodes")
    options = parser.parse_args()
    print(json.dumps(machine()), flush=True)
    for row in asyncio.run(measure_calls(options.idle, options.calls)):
        print(json.dumps(row), flush=True)
    for row in asyncio.run(measure_heartbeats([each for each in NODES if each <= options.most], options.times)):
        print(json.dumps(row), flush=True)
    for row in measure_notifications([each for each in LISTENERS if each <= options.most], options.times):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
