"""Faults of three nodes behind Kamailio in network namespaces. The tests run in this order, on one cluster: after each,
everything that the calls so far have left must be right (`cluster_invariants`).

`CLUSTER_FAULTS=full` (`make test-cluster`) has 60 calls and an outage of two minutes."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import pairwise
from typing import Final

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
from numpy.typing import NDArray

from bench.capture.packet_socket import PACKET_HOST, RTP_OFFSET, PacketCapture
from storage.nodes import nodes
from tests.trunkline.nodes.fault_injection import FaultInjection
from tests.trunkline.nodes.network_namespaces import Network, reason_to_skip
from tests.trunkline.nodes.networked_cluster import NODES, NUMBER, NetworkedCluster, entered_network, networked_cluster
from tests.trunkline.nodes.pbx import PbxCall

FULL: Final = os.environ.get("CLUSTER_FAULTS") == "full"
CALLS: Final = 60 if FULL else 6
"""At once, as many on each node; it is also the ceiling of the organization."""
USERS: Final = 30 if FULL else 6
FAILED_ATTEMPTS: Final = (0, 0, 1, 2, 3, 4) if FULL else (0, 0, 0, 1)
"""Of a webhook, one of which is drawn for each call."""
OUTAGE_S: Final = 120 if FULL else 8
GRACE_S: Final = OUTAGE_S / 2
WINDOW_S: Final = 15 if FULL else 3
"""For how long packets are compared, before a fault and after it."""
CLOSED_S: Final = 15.0
"""The longest time from the death of a node to the stored end of its calls."""
TAKEN_OVER_S: Final = 10.0
"""The longest time for which a number is not registered."""
SPREAD_MS: Final = 5 if FULL else 20
"""How much p99 of the deviations may grow besides doubling; other tests use the same cores."""
RESTARTED: Final = NODES if FULL else NODES[1:]
GONE_S: Final = 2.0 if FULL else 4.0
"""The longest time until a request for a call of a node that is out of reach is answered: 2 s on cores of its own."""
NOTICED_S: Final = 1.5
"""The time in which each node has noticed the outage, and counts its calls itself."""
STORED_S: Final = 10.0
"""The longest time from the end of an outage until what ended in it is stored."""
TICK_MS: Final = 20.0
Deviations = NDArray[np.float64]
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600 if FULL else 120),
    pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip()),
]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """The namespaces; this thread is the PBX."""
    with entered_network() as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def injection(network: Network, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultInjection]:
    """The cluster, whose faults are noted."""
    folder = tmp_path_factory.mktemp("cluster")
    async with networked_cluster(
        network,
        folder,
        max_calls=CALLS,
        users=USERS,
        failed_attempts=FAILED_ATTEMPTS,
        database={"grace_s": GRACE_S},
    ) as cluster:
        yield FaultInjection(cluster)


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def no_call_stays(injection: FaultInjection) -> AsyncIterator[None]:
    """The calls of a test that has failed do not count in the next one."""
    yield
    await injection.settle()


class PacketTimes(PacketCapture):
    """The times at which RTP of the nodes arrives at the PBX, by the address and port of its source."""

    def __init__(self) -> None:
        super().__init__(64, interface="eth0", direction=PACKET_HOST)
        self._times: defaultdict[tuple[bytes, int], list[int]] = defaultdict(list)

    def on_packet(self, frame: bytes, at_ns: int) -> None:
        """Take an RTP packet; other ones are ignored."""
        if (
            len(frame) > RTP_OFFSET + 1
            and frame[23] == socket.IPPROTO_UDP
            and frame[RTP_OFFSET] >> 6 == 2
            and not 192 <= frame[RTP_OFFSET + 1] <= 223
        ):
            self._times[frame[26:30], struct.unpack_from("!H", frame, 34)[0]].append(at_ns)

    def deviations_ms(self, hosts: Sequence[str]) -> Deviations:
        """How far the gaps between packets of these nodes' calls are from 20 ms."""
        gaps = [np.diff(times) / 1e6 for (host, _), times in self._times.items() if _text(host) in hosts]
        return np.abs(np.concatenate(gaps) - TICK_MS)

    def longest(self, count: int = 5) -> list[str]:
        """The longest gaps, in words."""
        gaps = [
            (later - earlier, (earlier - first) / 1e9, f"{_text(host)}:{port}")
            for (host, port), times in self._times.items()
            for first in times[:1]
            for earlier, later in pairwise(times)
        ]
        return [
            f"{gap / 1e6:.0f} ms at {at_s:.1f} s of {source}" for gap, at_s, source in sorted(gaps)[: -count - 1 : -1]
        ]


def _text(host: bytes) -> str:
    return ".".join(map(str, host))


async def dial(cluster: NetworkedCluster, calls: int) -> list[PbxCall]:
    """Dial one call after the other, so that they are spread evenly."""
    return [await cluster.pbx.dial(NUMBER) for _ in range(calls)]


async def hang_up(cluster: NetworkedCluster, calls: Sequence[PbxCall]) -> list[int]:
    """Hang up; returns the statuses."""
    return await asyncio.gather(*(cluster.pbx.hang_up(each) for each in calls))


async def check(injection: FaultInjection) -> None:
    """End all calls, and check the invariants once all is settled."""
    await injection.settle()
    assert await injection.violations() == []


async def closed_after_s(injection: FaultInjection, calls: Sequence[PbxCall], since_s: float) -> float:
    """Wait until the ends of calls are stored as `server_restart`; returns the time since then."""
    wanted = {each.sip_call_id for each in calls}
    async with asyncio.timeout(2 * CLOSED_S):
        while True:
            stored = {each.sip_call_id: each for each in (await injection.state()).calls}
            if all(stored[each].has_ended for each in wanted):
                assert {stored[each].ended_reason for each in wanted} == {"server_restart"}
                return time.monotonic() - since_s
            await asyncio.sleep(0.1)


async def stored(injection: FaultInjection, ended: Sequence[PbxCall], going_on: Sequence[PbxCall]) -> None:
    """Wait until the ends of calls, and other calls, are stored after an outage."""
    async with asyncio.timeout(STORED_S):
        while True:
            found = {each.sip_call_id: each.has_ended for each in (await injection.state()).calls}
            if all(found.get(each.sip_call_id) for each in ended) and all(
                each.sip_call_id in found for each in going_on
            ):
                return
            await asyncio.sleep(0.1)


async def test_calls_reach_all_nodes_and_all_nodes_place_calls(injection: FaultInjection) -> None:
    cluster = injection.cluster
    calls = await dial(cluster, 3)
    placed = [await cluster.place_call(name) for name in NODES]
    async with asyncio.timeout(10):
        while len(cluster.pbx.in_progress) < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert Counter(each.node for each in calls) == Counter(node.host for node in cluster.nodes.values())
    received = [each for each in cluster.pbx.calls.values() if each.callee is not None]
    assert Counter(each.node for each in received) == Counter(node.host for node in cluster.nodes.values())
    await asyncio.gather(*(each.hears(25) for each in cluster.pbx.in_progress))
    assert len(set(placed)) == len(NODES)
    await check(injection)


async def test_calls_of_the_other_nodes_go_on_when_one_is_killed(injection: FaultInjection) -> None:
    """And those of the dead node end once, with one webhook; its numbers are registered by others; the ceiling counts
    its calls until they are closed."""
    cluster, (name, *others) = injection.cluster, NODES
    calls = await dial(cluster, CALLS)
    assert Counter(each.node for each in calls) == {node.host: CALLS // 3 for node in cluster.nodes.values()}
    assert (await cluster.pbx.dial(NUMBER)).status == 486, "the organization's ceiling"
    hosts = [cluster.nodes[each].host for each in others]
    with PacketTimes() as before:
        await asyncio.sleep(WINDOW_S)
    lost = [each for each in calls if each.node == cluster.nodes[name].host]
    with PacketTimes() as after:
        killed_s = await injection.kill(name)
        closing = asyncio.create_task(closed_after_s(injection, lost, killed_s))
        assert (await cluster.pbx.dial(NUMBER)).status == 486, "calls of the dead node count until they are closed"
        await asyncio.sleep(max(0.0, killed_s + WINDOW_S - time.monotonic()))
        closed_s = await closing
    assert closed_s < CLOSED_S
    print(f"longest gaps after the kill: {', '.join(after.longest())}")
    unchanged(before.deviations_ms(hosts), after.deviations_ms(hosts))
    survivors = [each for each in calls if each not in lost]
    assert all(each.goes_on for each in survivors)
    again = await dial(cluster, len(lost))
    assert {each.status for each in again} == {200}
    assert (await cluster.pbx.dial(NUMBER)).status == 486, "the ceiling again"
    await asyncio.gather(*(each.hears(10) for each in survivors))
    assert set(await hang_up(cluster, survivors)) == {200}
    assert set(await hang_up(cluster, lost)) == {481}, "Kamailio answers for the dead node"
    await check(injection)
    absent_s = [cluster.bindings.absence_s(user, name, killed_s) for user in cluster.bindings.users]
    print(f"closed after {closed_s:.1f} s, numbers away for {max(absent_s):.1f} s at most")
    assert max(absent_s) < TAKEN_OVER_S


def unchanged(before: Deviations, after: Deviations) -> None:
    """Assert that the deviations of packets are what they were."""
    p99 = [float(np.percentile(each, 99)) for each in (before, after)]
    print(f"p99 deviation {p99[0]:.2f} -> {p99[1]:.2f} ms, max {before.max():.1f} -> {after.max():.1f} ms")
    assert p99[1] < 2 * p99[0] + SPREAD_MS
    assert after.max() < 500, "no packet is missing for long"


@pytest.mark.parametrize("ahead_s", [-60, 60])
async def test_a_node_whose_clock_is_a_minute_off_works_like_the_others(
    injection: FaultInjection, ahead_s: int
) -> None:
    """It is the one that was killed. Its leases, webhooks and idempotent requests are as if its clock were right."""
    cluster, name = injection.cluster, NODES[0]
    if cluster.nodes[name].serves:
        await injection.drain(name)
    cluster.nodes[name].clock_ahead_s = ahead_s
    await injection.start(name)
    calls = await dial(cluster, 3)
    body = {"agentId": cluster.agent_id, "phoneNumberId": cluster.number_id, "to": "+41445550100"}
    created = []
    for each in NODES:
        async with (
            aiohttp.ClientSession() as session,
            session.post(
                f"{cluster.nodes[each].origin}/v1/calls",
                json=body,
                headers={"Authorization": f"Bearer {cluster.clients[each].key}", "Idempotency-Key": f"once{ahead_s}"},
            ) as response,
        ):
            created.append((response.status, (await response.json())["data"]["id"]))
    assert created == [created[0]] * 3, "one call"
    await asyncio.gather(*(each.hears(50) for each in calls))
    await check(injection)
    stored = [
        each for each in (await injection.state()).calls if each.node == name and each.ended_reason == "customer_ended"
    ]
    assert stored
    assert not any(node.log.all("node.work_taken_away") for node in cluster.nodes.values())


async def test_calls_go_on_and_are_taken_while_the_database_is_away(injection: FaultInjection) -> None:
    """New ones within `grace_s`, up to the ceiling; all are stored afterwards, once."""
    cluster = injection.cluster
    calls = await dial(cluster, CALLS)
    ended, kept = calls[: CALLS // 2], calls[CALLS // 2 :]
    await injection.stop_database()
    try:
        taken = await during_outage(cluster, ended, kept)
    finally:
        await injection.start_database()
    await cluster.wait_until_active()
    await stored(injection, ended, taken)
    assert (await cluster.pbx.dial(NUMBER)).status == 486, "the ceiling of all nodes"
    assert all(each.goes_on for each in (*kept, *taken))
    await check(injection)


async def during_outage(
    cluster: NetworkedCluster, ended: Sequence[PbxCall], kept: Sequence[PbxCall]
) -> Sequence[PbxCall]:
    """Hang up some calls, and dial as many again; returns these."""
    end_s = time.monotonic() + OUTAGE_S
    await asyncio.gather(*(each.hears(10) for each in (*ended, *kept)))
    assert set(await hang_up(cluster, ended)) == {200}
    await asyncio.sleep(NOTICED_S)
    taken = await dial(cluster, len(ended))
    assert {each.status for each in taken} == {200}
    assert (await cluster.pbx.dial(NUMBER)).status == 486, "each node has its part of the ceiling"
    for name in NODES:
        assert (await cluster.clients[name].get("/healthz"))[0] == 200
        assert (await cluster.clients[name].get("/readyz"))[0] == 503
    await asyncio.sleep(max(0.0, end_s - time.monotonic()))
    assert (await cluster.pbx.dial(NUMBER)).status == 503, "after `grace_s`"
    await asyncio.gather(*(each.hears(10) for each in (*kept, *taken)))
    return taken


async def back(cluster: NetworkedCluster, name: str) -> None:
    """Wait until a node that was cut off sends heartbeats again, and is ready."""
    async with asyncio.timeout(CLOSED_S):
        while True:
            found = await cluster.database.read(nodes.all_of)
            is_up = any(each.name == name and not each.is_down for each in found)
            if is_up and (await cluster.clients[name].get("/readyz"))[0] == 200:
                return
            await asyncio.sleep(0.1)


async def test_a_node_that_is_cut_off_is_closed_by_the_others_and_comes_back(injection: FaultInjection) -> None:
    """Its calls go on meanwhile: their true ends replace those that the others have stored, without another webhook."""
    cluster, name = injection.cluster, NODES[1]
    calls = await dial(cluster, 6)
    lost = [each for each in calls if each.node == cluster.nodes[name].host]
    ids = {each.sip_call_id: each.id for each in (await injection.state()).calls}
    injection.cut(name)
    try:
        asked_s = time.monotonic()
        answer = await cluster.clients[NODES[0]].status("POST", f"calls/{ids[lost[0].sip_call_id]}/hangup")
        assert answer == 409, "the call's node is gone"
        assert time.monotonic() - asked_s < GONE_S
        assert await closed_after_s(injection, lost, time.monotonic()) < CLOSED_S
        await asyncio.gather(*(each.hears(10) for each in calls))
        assert await hang_up(cluster, lost[:1]) == [200]
    finally:
        injection.heal(name)
    await back(cluster, name)
    await asyncio.gather(*(each.hears(10) for each in calls if each.goes_on))
    assert {each.status for each in await dial(cluster, 2)} == {200}
    await check(injection)
    stored = {each.sip_call_id: each.ended_reason for each in (await injection.state()).calls}
    assert {stored[each.sip_call_id] for each in lost} == {"customer_ended"}


async def test_a_rolling_restart_cuts_no_call(injection: FaultInjection) -> None:
    cluster = injection.cluster
    for name in RESTARTED:
        calls = await dial(cluster, 3)
        own = [each for each in calls if each.node == cluster.nodes[name].host]
        draining = asyncio.create_task(injection.drain(name))
        await cluster.nodes[name].event("draining")
        new = await dial(cluster, 3)
        assert {each.status for each in new} == {200}
        await asyncio.gather(*(each.hears(10) for each in calls))
        assert set(await hang_up(cluster, [*own, *new])) == {200}
        assert await draining == 0
        await injection.start(name)
        assert set(await hang_up(cluster, cluster.pbx.in_progress)) == {200}
    await check(injection)
