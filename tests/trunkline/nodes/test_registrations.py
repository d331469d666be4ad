"""The registrations of three nodes at one registrar (Kamailio): each number has one node that registers it, another one
after that has died or drains. The tests run in this order."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.peers.kamailio import Kamailio
from tests.trunkline.nodes.cluster import Cluster, cluster

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
USERS = [f"user{number}" for number in range(30)]
TAKEN_OVER_S = 10.0
"""The longest time from the death of a node until the others have registered its numbers."""
Bindings = Mapping[str, Collection[str]]


@dataclass
class Registrar:
    """The nodes, the registrar, and the ids of the numbers by their users."""

    nodes: Cluster
    kamailio: Kamailio
    ids: Mapping[str, str]

    async def bindings(self) -> Bindings:
        """The names of the nodes at which each user is bound."""
        names = {str(node.sip_port): name for name, node in self.nodes.nodes.items()}
        contacts = await self.kamailio.all_contacts()
        return {user: {names[each.rpartition(":")[2]] for each in contacts.get(user, [])} for user in USERS}

    async def until(self, holds: Callable[[Bindings], bool], timeout_s: float = 20) -> Bindings:
        """Wait until the bindings are so; returns them."""
        end_s = time.monotonic() + timeout_s
        while not holds(found := await self.bindings()):
            assert time.monotonic() < end_s, found
            await asyncio.sleep(0.1)  # the registrar reports no event
        return found

    async def wait_for_status(self, name: str, user: str, state: str, detail: str) -> None:
        """Wait until a node shows this status of a number, with a detail that begins so."""
        async with self.nodes.client(name) as client, asyncio.timeout(5):
            while True:
                found = await client.v1("GET", f"phone-numbers/{self.ids[user]}")
                if found["sipStatus"] == state and str(found["sipStatusDetail"]).startswith(detail):
                    return
                assert found["sipStatus"] in ("registering", "registered", "listening"), found
                await asyncio.sleep(0.1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def registrar(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Registrar]:
    """Nodes `a`, `b` and `c`, with numbers that register."""
    async with (
        Kamailio(dict.fromkeys(USERS, "s3cret"), host="127.0.0.2") as kamailio,
        cluster(tmp_path_factory.mktemp("cluster"), "a", "b", "c") as nodes,
    ):
        ids = {}
        async with nodes.client("a") as client:
            for index, user in enumerate(USERS):
                body = {
                    "number": f"+49401{index:03}", "provider": "sip", "agentId": None, "sipMode": "registration",
                    "sipUsername": user, "sipPassword": "s3cret", "sipProxy": kamailio.target,
                }  # fmt: skip
                ids[user] = (await client.v1("POST", "phone-numbers", body))["id"]
        yield Registrar(nodes, kamailio, ids)


def live(found: Bindings, *names: str) -> list[str]:
    """The nodes among these at which users are bound, once for each binding."""
    return [name for bound in found.values() for name in bound if name in names]


async def test_each_number_is_registered_by_one_node_and_all_nodes_have_as_many(registrar: Registrar) -> None:
    found = await registrar.until(
        lambda found: (
            all(len(bound) == 1 for bound in found.values()) and set(Counter(live(found, *"abc")).values()) == {10}
        )
    )
    user = next(user for user, bound in found.items() if "a" in bound)
    await registrar.wait_for_status("a", user, "registered", "registered until ")
    await registrar.wait_for_status("b", user, "registered", "registered until ")
    async with registrar.nodes.client("b") as client:
        found_there = await client.v1("GET", f"phone-numbers/{registrar.ids[user]}")
        assert "; by node a, as of " in found_there["sipStatusDetail"]


async def test_numbers_of_a_killed_node_are_registered_by_the_others(registrar: Registrar) -> None:
    before = await registrar.bindings()
    await registrar.nodes.nodes["a"].kill()
    killed_s = time.monotonic()
    found = await registrar.until(lambda found: all(bound & {"b", "c"} for bound in map(set, found.values())))
    took_s = time.monotonic() - killed_s
    assert took_s < TAKEN_OVER_S
    assert Counter(live(found, "b", "c")) == {"b": 15, "c": 15}, "none is registered twice"
    for user, bound in before.items():
        assert "a" in bound or bound == found[user], "nothing else has moved"


async def test_numbers_of_a_draining_node_are_registered_by_another_before_they_are_removed(
    registrar: Registrar,
) -> None:
    node = registrar.nodes.nodes["b"]
    node.signal(signal.SIGTERM)
    ending = asyncio.create_task(node.ended())
    found = await registrar.until(lambda found: set(live(found, "b", "c")) == {"c"} or not _all_bound(found))
    assert Counter(live(found, "b", "c")) == {"c": 30}, "each was bound all the time"
    await ending
    assert not node.log.all("trunk.failed")


def _all_bound(found: Bindings) -> bool:
    return all(set(bound) & {"b", "c"} for bound in found.values())
