"""Two nodes of one database: calls of a node that is killed, and leases."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from storage.nodes import nodes
from tests.peers import postgresql
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.nodes.cluster import Cluster, cluster
from tests.trunkline.sip_phone import PhoneCall, known

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
NUMBER = "100"
CLOSED_S = 15.0
"""The longest time from the end of a node to the stored end of its calls."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """Nodes `a` and `b`, with a number whose agent waits for the caller to speak."""
    async with cluster(tmp_path_factory.mktemp("cluster"), "a", "b") as made:
        async with made.client("a") as client:
            agent = await client.agent(
                customerSilenceMs=0, postCallWebhookUrl=made.receiver.url, postCallWebhookSecret="s" * 32
            )
            await client.number(NUMBER, agent)
        for node in made.nodes.values():
            await known(node.target)
        yield made


async def test_calls_of_a_killed_node_are_closed_by_the_other_with_their_webhook(pair: Cluster) -> None:
    async with pair.client("b") as client, RawPhone(pair.nodes["a"].target) as raw, PhoneCall(raw, NUMBER):
        call_id = (await pair.nodes["a"].event("call.answered"))["call_id"]
        async with asyncio.timeout(10):
            while (await client.v1("GET", f"calls/{call_id}"))["status"] != "in_progress":  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # its answer is stored after the call goes on
        killed_s = time.monotonic()
        await pair.nodes["a"].kill()
        _, body = await pair.receiver.about(call_id, timeout_s=CLOSED_S)
        assert time.monotonic() - killed_s < CLOSED_S
        assert json.loads(body)["status"] == "completed"
        stored = await client.v1("GET", f"calls/{call_id}")
        assert (stored["status"], stored["endedReason"]) == ("completed", "server_restart")
    await pair.nodes["b"].event("node.down", nodes=["a"])
    for lease in ("retention", "knowledge", "audit"):
        await pair.nodes["b"].event("node.lease_acquired", lease=lease)
    await pair.nodes["a"].start()
    async with pair.database() as database, asyncio.timeout(5):
        while [each.state for each in await database.read(nodes.all_of)] != ["up", "up"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert [json.loads(body)["callId"] for _, body in pair.receiver.received] == [call_id], "sent once"


async def test_calls_go_on_while_the_database_is_away_and_their_ends_are_stored_afterwards(pair: Cluster) -> None:
    node, server = pair.nodes["b"], await asyncio.to_thread(postgresql.server)
    since = node.log.mark()
    async with pair.client("b") as client, RawPhone(node.target) as raw, PhoneCall(raw, NUMBER) as call:
        call_id = (await node.event("call.answered", since=since))["call_id"]
        await asyncio.to_thread(server.stop)
        try:
            await call.hears(50)
            assert (await client.get("/healthz"))[0] == 200
            assert (await client.get("/readyz"))[0] == 503
            await call.hang_up()
            await node.event("call.end_not_stored", since=since, call_id=call_id)
        finally:
            await asyncio.to_thread(server.start)
        _, body = await pair.receiver.about(call_id)
        assert json.loads(body)["status"] == "completed"
        assert (await client.v1("GET", f"calls/{call_id}"))["endedReason"] == "customer_ended"
        async with RawPhone(node.target) as other, PhoneCall(other, NUMBER) as next_call:
            await next_call.hang_up()
