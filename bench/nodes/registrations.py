"""The registrations of three nodes (or `--nodes 2`) with one PostgreSQL database at one registrar: the times until the
others have registered the numbers of a node that was killed (`kill -9`), until a node that starts has its share, and
until a node that is stopped (SIGTERM) has given its numbers away. Prints a row of JSON for each.

The nodes and the registrar, which takes every REGISTER without a challenge, share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Final

from bench.worker_process import machine
from tests.sipcore.raw.raw_phone import Message
from tests.sipcore.raw.raw_registrar import RawRegistrar, accept_contacts
from tests.trunkline.nodes.cluster import Cluster, cluster

NUMBERS: Final = 1000
TIMEOUT_S: Final = 180.0
GOAL_S: Final = 10.0
Row = dict[str, Any]


class Bindings:
    """The nodes at which each number is bound, as the registrar has them."""

    def __init__(self, nodes: Cluster) -> None:
        self._nodes = nodes
        self.bound: dict[str, set[str]] = {}
        self.registers = 0
        """REGISTERs that were received."""
        self.unbound = 0
        """Times at which a number lost its last binding."""

    async def follow(self, registrar: RawRegistrar) -> None:
        """Take every request."""
        names = {str(node.sip_port): name for name, node in self._nodes.nodes.items()}
        while True:
            request = await registrar.got.get()
            if request.first_line:  # else a keep-alive
                self._take(request, names)

    def _take(self, request: Message, names: dict[str, str]) -> None:
        contact = request.header("Contact").partition("<sip:")[2].partition(">")[0]
        user, _, host_port = contact.partition("@")
        name = names[host_port.partition(";")[0].rpartition(":")[2]]
        self.registers += 1
        bound = self.bound.setdefault(user, set())
        if request.header("Expires") != "0":
            bound.add(name)
        elif name in bound:
            bound.remove(name)
            self.unbound += not bound

    def forget(self, name: str) -> None:
        """A node is dead: nobody reaches its contacts."""
        for bound in self.bound.values():
            bound.discard(name)

    @property
    def counts(self) -> Counter[str]:
        """The numbers of each node."""
        return Counter(name for bound in self.bound.values() for name in bound)

    def once(self, numbers: int) -> bool:
        """True if each number has one binding, and the nodes that have some differ by one at most."""
        counts = self.counts
        even = max(counts.values(), default=0) - min(counts.values(), default=0) <= 1
        return even and len(self.bound) == numbers and all(len(each) == 1 for each in self.bound.values())

    async def until(self, holds: Callable[[], bool]) -> float:
        """Wait until the bindings are so; returns the seconds."""
        began_s = time.monotonic()
        async with asyncio.timeout(TIMEOUT_S):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return time.monotonic() - began_s


async def run(numbers: int = NUMBERS, node_count: int = 3) -> list[Row]:
    """The rows of the table."""
    with tempfile.TemporaryDirectory(prefix="trunkline-bench-") as folder:
        async with _registered(Path(folder), numbers, node_count) as (nodes, bindings):
            a, b = nodes.nodes["a"], nodes.nodes["b"]
            rows = []

            async def measure(what: str, nodes_after: int, holds: Callable[[], bool]) -> None:
                before, unbound = bindings.registers, bindings.unbound
                took_s = await bindings.until(lambda: holds() and len(bindings.counts) == nodes_after)
                requests, lost = bindings.registers - before, bindings.unbound - unbound
                rows.append({"what": what, "seconds": round(took_s, 1), "registers": requests, "unbound": lost})

            await a.kill()
            bindings.forget("a")
            await measure("kill -9: until every number is bound again", node_count - 1, lambda: bindings.once(numbers))
            await a.start()
            await measure(
                "a node starts: from `ready` until all have their share", node_count, lambda: bindings.once(numbers)
            )
            b.signal(signal.SIGTERM)
            ending = asyncio.create_task(b.ended(TIMEOUT_S))
            await measure("SIGTERM: until the others have all", node_count - 1, lambda: bindings.once(numbers))
            await ending
            return rows


@asynccontextmanager
async def _registered(folder: Path, numbers: int, node_count: int) -> AsyncIterator[tuple[Cluster, Bindings]]:
    """Nodes that have registered these numbers."""
    names = ascii_lowercase[:node_count]
    async with RawRegistrar(accept_contacts(), host="127.0.0.2") as registrar, cluster(folder, *names) as nodes:
        bindings = Bindings(nodes)
        following = asyncio.create_task(bindings.follow(registrar))
        async with nodes.client("a") as client:
            for number in range(numbers):
                user = f"+49401{number:05}"
                body = {
                    "number": user, "provider": "sip", "agentId": None, "sipMode": "registration",
                    "sipUsername": user, "sipPassword": "s3cret", "sipProxy": f"{registrar.host}:{registrar.port}",
                }  # fmt: skip
                await client.v1("POST", "phone-numbers", body)
        await bindings.until(lambda: bindings.once(numbers) and len(bindings.counts) == len(nodes.nodes))
        yield nodes, bindings
        following.cancel()


def missed_goals(rows: Sequence[Row]) -> list[str]:
    """A dead node's registrations must be taken over within `GOAL_S`."""
    return [f"{row['what']}: {row['seconds']} s" for row in rows[:1] if row["seconds"] > GOAL_S]


def main() -> None:
    """Prints the machine and the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--numbers", type=int, default=NUMBERS)
    parser.add_argument("--nodes", type=int, default=3)
    options = parser.parse_args()
    print(json.dumps(machine()), flush=True)
    for row in asyncio.run(run(options.numbers, options.nodes)):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
