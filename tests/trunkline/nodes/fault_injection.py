"""Faults of a networked cluster, each noted with its times, and the history that results from them."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Final, Literal

from bench.webhooks.invariants import Kill
from tests.trunkline.nodes.cluster_invariants import ClusterHistory, SeenCall, StoredState, read_state, violations
from tests.trunkline.nodes.networked_cluster import NODES, RETRY_DELAYS_S, WEBHOOK_TIMEOUT_S, NetworkedCluster
from tests.trunkline.nodes.pbx import PbxCall

END_STORED_S: Final = 1.0
"""The time within which the end of a call is stored."""
NEVER: Final = float("inf")
STEADY_S: Final = 3.0
"""The time within which nodes store the calls of an outage of the database after it, and a little more."""
MOVED_S: Final = 15.0
"""The longest time in which a number moves to another node after all else has settled; for a moment it is bound at
both."""
SETTLED_S: Final = 90.0
"""The longest time until everything is stored and sent: the claim of a dead node on a webhook holds for 31.5 s."""


@dataclass
class Fault:
    """A time in which a node was dead, stopped or cut off, or (with the name "") the database was away; monotonic,
    s."""

    kind: Literal["kill", "stop", "cut", "outage"]
    node: str
    began_s: float
    ended_s: float = NEVER


@dataclass
class FaultInjection:
    """Injects faults."""

    cluster: NetworkedCluster
    faults: list[Fault] = field(default_factory=list)
    cut_off: set[str] = field(default_factory=set)

    def _begin(self, kind: Literal["kill", "stop", "cut", "outage"], node: str) -> None:
        self.faults.append(Fault(kind, node, time.monotonic()))

    def _end(self, node: str) -> None:
        for each in self.faults:
            if each.node == node and each.ended_s == NEVER:
                each.ended_s = time.monotonic()

    async def kill(self, name: str) -> float:
        """`kill -9`; returns when."""
        self._begin("kill", name)
        await self.cluster.nodes[name].kill()
        return self.faults[-1].began_s

    async def start(self, name: str) -> None:
        """Start a node that has ended, and wait until it takes calls."""
        await self.cluster.nodes[name].start()
        self._end(name)
        await self.cluster.wait_until_active(name)

    def stop(self, name: str) -> None:
        """SIGSTOP."""
        self._begin("stop", name)
        self.cluster.nodes[name].signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """SIGCONT."""
        self.cluster.nodes[name].signal(signal.SIGCONT)
        self._end(name)

    def cut(self, name: str) -> None:
        """Cut a node off from the database and the other nodes; the PBX and Kamailio still reach it."""
        self._begin("cut", name)
        self.cut_off.add(name)
        self.cluster.network.cut(name, *self._others(name))

    def heal(self, name: str) -> None:
        """End `cut`."""
        self.cluster.network.heal(name, *self._others(name))
        self.cut_off.discard(name)
        self._end(name)

    @staticmethod
    def _others(name: str) -> Sequence[str]:
        return ("database", *(each for each in NODES if each != name))

    async def stop_database(self) -> None:
        """Stop PostgreSQL."""
        self._begin("outage", "")
        await self.cluster.postgresql.stop()

    async def start_database(self) -> None:
        """Start PostgreSQL again."""
        await self.cluster.postgresql.start()
        self._end("")

    async def drain(self, name: str, timeout_s: float = 40) -> int:
        """SIGTERM, and wait until the node has ended by itself; returns its status."""
        self.begin_drain(name)
        return await self.cluster.nodes[name].ended(timeout_s)

    def begin_drain(self, name: str) -> None:
        """SIGTERM."""
        self.cluster.nodes[name].signal(signal.SIGTERM)

    def undisturbed(self, call: PbxCall) -> bool:
        """True if no fault of its node fell in the time of a call, until its end was stored."""
        ended_s = call.ended_s or time.monotonic()
        name = self.cluster.node_at(call.node).name
        began_s = call.answered_s or 0.0
        return not any(
            each.node == name and each.began_s <= ended_s + END_STORED_S and each.ended_s >= began_s
            for each in self.faults
        )

    async def state(self) -> StoredState:
        """What is stored now."""
        return await self.cluster.database.read(
            partial(read_state, organization_id=self.cluster.organization_id)
        )  # fmt: skip

    async def settle(self, timeout_s: float = SETTLED_S) -> None:
        """Hang up, also calls that nodes still place, until all that were answered are stored and have ended, nothing
        is to be sent, and each number is bound once, for `STEADY_S`; not longer than `timeout_s`, after which
        `violations` names what is not so."""
        until_s, settled_s = time.monotonic() + timeout_s, NEVER
        while time.monotonic() < until_s:
            await self.hang_up_all()
            state = await self.state()
            stored = {each.sip_call_id for each in state.calls}
            if (
                not state.pending
                and stored.issuperset(each.sip_call_id for each in self._answered)
                and all(each.has_ended for each in state.calls)
                and None not in state.holders.values()
                and all(len(self.bound(user)) == 1 for user in self.cluster.bindings.users)
            ):
                settled_s = min(settled_s, time.monotonic())
                if time.monotonic() >= settled_s + STEADY_S:
                    return
            else:
                settled_s = NEVER
            await asyncio.sleep(0.2)

    @property
    def _answered(self) -> list[PbxCall]:
        """The calls that were answered, as the PBX has seen it."""
        return [each for each in self.cluster.pbx.calls.values() if each.answered_s is not None]

    async def hang_up_all(self, node: str = "") -> None:
        """End the calls of a node, by default all."""
        pbx, nodes = self.cluster.pbx, self.cluster.node_at
        calls = [each for each in pbx.in_progress if not node or nodes(each.node).name == node]
        await asyncio.gather(*(pbx.hang_up(each) for each in calls), return_exceptions=True)

    async def _bound_once(self) -> dict[str, set[str]]:
        """The nodes at which each number is bound, as soon as that is one for each, at the latest after `MOVED_S`."""
        until_s = time.monotonic() + MOVED_S
        while True:
            bound = {user: self.bound(user) for user in self.cluster.bindings.users}
            if time.monotonic() >= until_s or all(len(each) == 1 for each in bound.values()):
                return bound
            await asyncio.sleep(0.2)

    def bound(self, user: str) -> set[str]:
        """The running nodes at which a number is bound since their last start."""
        found = set()
        for name in self.cluster.bindings.nodes_of(user):
            node = self.cluster.nodes[name]
            registered_s = max(each.at_s for each in self.cluster.bindings.users[user] if each.node == name)
            if node.serves and registered_s > max(node.died_s, default=0.0):
                found.add(name)
        return found

    async def violations(self) -> list[str]:
        """The violated invariants, in words."""
        return violations(await self.history())

    async def history(self) -> ClusterHistory:
        """What has happened, once everything has settled."""
        cluster, bound = self.cluster, await self._bound_once()
        return ClusterHistory(
            stored=await self.state(),
            seen=[self._seen(each) for each in self._answered],
            requests=cluster.receiver.requests,
            faults=[self._fault_of_sender(each) for each in self.faults if each.kind != "outage"],
            outages=[(each.began_s, each.ended_s) for each in self.faults if each.kind == "outage"],
            stopped={each.node for each in self.faults if each.kind == "stop"},
            retry_delays_s=RETRY_DELAYS_S,
            webhook_timeout_s=WEBHOOK_TIMEOUT_S,
            bound=bound,
            start_balance=Decimal(cluster.start_balance),
            max_calls=cluster.max_calls,
            rejected_reasons=("server_shutdown", "error", "media_timeout"),
        )

    def _fault_of_sender(self, fault: Fault) -> Kill:
        source = self.cluster.nodes[fault.node].host
        return Kill(fault.began_s, min(fault.ended_s, time.monotonic()), source, resumed=fault.kind != "kill")

    def _seen(self, call: PbxCall) -> SeenCall:
        assert call.answered_s is not None
        name = self.cluster.node_at(call.node).name
        ended_s = time.monotonic() if call.ended_s is None else call.ended_s
        began = [each.began_s for each in self.faults if each.node == name and each.ended_s >= call.answered_s]
        return SeenCall(
            sip_call_id=call.sip_call_id,
            node=name,
            answered_s=call.answered_s,
            until_s=max(min([ended_s, *began]), call.answered_s),
            ended_by=call.ended_by,
            disturbed=not self.undisturbed(call),
        )
