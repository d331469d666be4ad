"""Two nodes: each one's events, live lists and capacity show the calls of both. The tests run in this order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import sqlalchemy as sa

from api.auth.session_cookie import SESSION_COOKIE
from config.clock import utc_now
from storage.accounts import api_keys, organizations
from storage.users import sessions, users
from tests.event_stream import following
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.api_client import Client
from tests.trunkline.nodes.cluster import Cluster, cluster
from tests.trunkline.sip_phone import PhoneCall, known, refusal

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
OFFICE, NEIGHBOUR = "100", "200"
"""Numbers of two organizations."""
BRANCH, UNKNOWN = "127.0.0.67", "127.0.0.66"
"""Addresses of a trunk of the first organization alone, and of none."""
TOLD_S = 2.0
"""The longest time until clients are told that a node cannot be reached."""


@dataclass
class Pair:
    """Nodes `a` and `b`, and the key of a second organization."""

    nodes: Cluster
    neighbours_key: str

    def following(self, name: str, key: str = "", after: str | None = None) -> Any:
        """Follow the events at a node, by default of the first organization."""
        return following(self.nodes.nodes[name].origin, key or self.nodes.key, after=after)

    @asynccontextmanager
    async def call(self, name: str, number: str = OFFICE) -> AsyncIterator[tuple[str, PhoneCall]]:
        """A call of a number on a node: its id and the phone's side."""
        node = self.nodes.nodes[name]
        since = node.log.mark()
        async with RawPhone(node.target) as raw, PhoneCall(raw, number) as phone:
            yield (await node.event("call.answered", since=since))["call_id"], phone


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """The nodes, with a number of each organization."""

    def create(conn: sa.Connection) -> str:
        owner = organizations.create(conn, "neighbour")
        return api_keys.create(conn, owner.id, requests_per_minute=100_000)[1]

    async with cluster(tmp_path_factory.mktemp("cluster"), "a", "b") as made:
        async with made.database() as database:
            key = await database.write(create)
        async with made.client("a") as client, Client(made.nodes["a"].origin, key, set()) as neighbour:
            for each, number in ((client, OFFICE), (neighbour, NEIGHBOUR)):
                await each.number(
                    number,
                    await each.agent(
                        customerSilenceMs=0, firstSpeaker="agent", agentGreetingEnabled=True, agentGreeting="Hello"
                    ),
                )
        for node in made.nodes.values():
            await known(node.target)
        yield Pair(made, key)


async def listed(client: Client, call_id: str) -> dict[str, Any]:
    """A call in the list of live calls."""
    async with asyncio.timeout(10):
        while True:
            for each in await client.v1("GET", "calls?status=in_progress"):
                if each["id"] == call_id:
                    return dict(each)
            await asyncio.sleep(0.05)  # its answer is stored after the call goes on


async def test_clients_of_a_node_follow_the_calls_of_both(pair: Pair) -> None:
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(pair.following(name)) for name in ("a", "b")]
        more = await stack.enter_async_context(pair.following("b"))
        async with pair.nodes.client("a") as client:
            metrics = (await client.get("/metrics"))[1].decode()
        assert "\ntrunkline_node_event_streams 1.0\n" in metrics, "one for both clients of node b"
        async with pair.call("a") as (call_id, phone):
            for stream in (here, there, more):
                created = await stream.event("call.created")
                assert (created.data["id"], created.data["node"]) == (call_id, "a")
                await stream.event("call.turn", lambda turn: turn["content"] == "Hello")
            await phone.hang_up()
        for stream in (here, there, more):
            ended = await stream.event("call.ended")
            assert (ended.data["id"], ended.data["node"], ended.data["state"]) == (call_id, "a", "ended")
            await stream.event("call.updated", lambda call: call["status"] == "completed")
            assert len(stream.data("call.created")) == len(stream.data("call.ended")) == 1, "each is told once"
            assert not stream.data("resync")


async def test_a_client_that_comes_back_gets_what_it_has_missed_of_another_node(pair: Pair) -> None:
    async with pair.following("b") as stream:
        seen = stream.events[-1].id
    async with pair.call("a") as (call_id, phone):
        await phone.hang_up()
    await pair.nodes.nodes["a"].event("call.ended", call_id=call_id)
    async with pair.following("b", after=seen) as stream:
        assert (await stream.event("call.created")).data["id"] == call_id
        assert (await stream.event("call.ended")).data["id"] == call_id
        assert not stream.data("resync")


async def test_another_organization_is_told_nothing(pair: Pair) -> None:
    async with (
        pair.following("b", pair.neighbours_key) as neighbours,
        pair.following("b") as own,
        Client(pair.nodes.nodes["b"].origin, pair.neighbours_key, set()) as neighbour,
        pair.nodes.client("b") as client,
    ):
        async with pair.call("a") as (call_id, phone), pair.call("a", NEIGHBOUR) as (other_id, other_phone):
            assert (await neighbours.event("call.created")).data["id"] == other_id
            assert (await own.event("call.created")).data["id"] == call_id
            assert (await listed(neighbour, other_id))["live"] is not None
            assert [each["id"] for each in await neighbour.v1("GET", "calls?status=in_progress")] == [other_id]
            assert [each["id"] for each in await client.v1("GET", "calls?status=in_progress")] == [call_id]
            await phone.hang_up()
            await other_phone.hang_up()
        await own.event("call.ended", lambda call: call["id"] == call_id)
        await neighbours.event("call.ended", lambda call: call["id"] == other_id)
        for stream, foreign in ((own, other_id), (neighbours, call_id)):
            told = [each.data for each in stream.events if each.data]
            assert not [each for each in told if foreign in (each.get("id"), each.get("callId"))]


async def test_the_list_has_what_only_the_node_of_a_call_knows(pair: Pair) -> None:
    async with pair.nodes.client("b") as there, pair.nodes.client("a") as here, pair.call("a") as (call_id, phone):
        await here.v1("POST", f"calls/{call_id}/hold")
        async with asyncio.timeout(10):
            while (found := await listed(there, call_id))["state"] != "on_hold":  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # an earlier answer of the node serves for a while
        assert found["node"] == "a"
        assert set(found["live"]) == set((await listed(here, call_id))["live"])
        await phone.hang_up()


async def test_calls_that_a_node_has_refused_are_listed_by_both(pair: Pair) -> None:
    a, b = pair.nodes.nodes["a"], pair.nodes.nodes["b"]
    async with pair.nodes.client("a") as here, pair.nodes.client("b") as there:
        number_id = await there.number("300", None, sipIp=BRANCH)
        for node in (a, b):
            await known(node.target, BRANCH)
        assert (await refusal(a.target, "300", BRANCH)).status == 480
        assert (await refusal(b.target, "300", BRANCH)).status == 480
        assert (await refusal(a.target, "999", BRANCH)).status == 404
        async with asyncio.timeout(10):
            while len(found := await there.v1("GET", "phone-numbers/refused-calls")) < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.05)  # the organization of the source is looked up after the response
        told = [(each["statusCode"], each["dialledNumber"], each["phoneNumberId"]) for each in found]
        assert told == [(404, "999", None), (480, "300", number_id), (480, "300", number_id)]
        assert await here.v1("GET", "phone-numbers/refused-calls") == found
        of_number = f"phone-numbers/refused-calls?phoneNumberId={number_id}"
        assert await there.v1("GET", of_number) == found[1:]
        for origin in (a.origin, b.origin):
            async with Client(origin, pair.neighbours_key, set()) as neighbour:
                assert await neighbour.v1("GET", "phone-numbers/refused-calls") == []
                assert await neighbour.status("GET", of_number) == 404


async def test_an_unknown_source_of_both_nodes_is_listed_once_by_both(pair: Pair) -> None:
    def sign_in(conn: sa.Connection) -> str:
        return sessions.create(conn, users.create(conn, "chief", "operator", None).id, utc_now())

    async with pair.nodes.database() as database:
        cookie = f"{SESSION_COOKIE}={await database.write(sign_in)}"
    for name, messages in (("a", 1), ("b", 2)):
        async with RawPhone(pair.nodes.nodes[name].target, UNKNOWN) as raw:
            for _ in range(messages):
                raw.invite(raw.dialog(), raw.offer())
    async with aiohttp.ClientSession(headers={"Cookie": cookie}) as operator, asyncio.timeout(30):
        for node in pair.nodes.nodes.values():
            counted: list[int] = []
            while counted != [3]:
                async with operator.get(f"{node.origin}/v1/phone-numbers/unknown-sources") as response:
                    found = (await response.json())["data"]
                counted = [each["messages"] for each in found if each["address"] == UNKNOWN]
                await asyncio.sleep(0.2)  # each node adds what it dropped every few seconds


async def test_a_node_that_does_not_answer_is_named_and_its_calls_are_shown_as_stored(pair: Pair) -> None:
    a, b = pair.nodes.nodes["a"], pair.nodes.nodes["b"]
    async with (
        pair.nodes.client("b") as client,
        pair.following("b") as stream,
        pair.call("a") as (call_id, phone),
    ):
        await listed(client, call_id)
        await stream.event("call.created", lambda call: call["id"] == call_id)
        since, stopped_at = b.log.mark(), datetime.now(UTC)
        a.signal(signal.SIGSTOP)
        try:
            noticed = await b.event("node.not_reached", since=since)
            assert (datetime.fromisoformat(noticed["timestamp"]) - stopped_at).total_seconds() < TOLD_S
            assert (await listed(client, call_id))["state"] == "listening"
            for request in b.log.all("api.request", since=since, path="/v1/calls"):
                assert request["ms"] < TOLD_S * 1000
            warning = {
                "part": "nodes",
                "message": "node a cannot be reached: its calls are shown as they are stored",
            }
            assert warning in (await client.v1("GET", "capacity"))["warnings"]
            await stream.event("capacity.updated", lambda now: warning in now["warnings"])
        finally:
            a.signal(signal.SIGCONT)
        await stream.event("resync")
        await stream.event("capacity.updated", lambda now: not now["warnings"])
        await phone.hang_up()
        await stream.event("call.ended", lambda call: call["id"] == call_id)


async def test_the_calls_of_a_dead_node_end_in_the_events_of_another(pair: Pair) -> None:
    async with pair.following("b") as stream, pair.call("a") as (call_id, _):
        await stream.event("call.created", lambda call: call["id"] == call_id)
        await pair.nodes.nodes["a"].kill()
        ended = await stream.event("call.ended", lambda call: call["id"] == call_id)
        assert (ended.data["endedReason"], ended.data["state"]) == ("server_restart", "ended")
        await pair.nodes.nodes["a"].start()
        await stream.event("resync")
        async with pair.call("a") as (next_id, phone):
            await stream.event("call.created", lambda call: call["id"] == next_id)
            await phone.hang_up()


async def test_the_capacity_is_that_of_all_nodes(pair: Pair) -> None:
    async with (
        pair.nodes.client("b") as client,
        Client(pair.nodes.nodes["b"].origin, pair.neighbours_key, set()) as neighbour,
        pair.following("b") as stream,
        pair.call("a") as (_, phone),
    ):
        told = await stream.event("capacity.updated", lambda now: now["nodes"][0]["calls"] == 1)
        shown = await client.v1("GET", "capacity")
        for found in (told.data, shown):
            assert (found["calls"], found["callsLeft"]) == (1, 99)
            assert [(each["name"], each["state"], each["calls"]) for each in found["nodes"]] == [
                ("a", "up", 1),
                ("b", "up", 0),
            ]
        foreign = await neighbour.v1("GET", "capacity")
        assert [each["calls"] for each in foreign["nodes"]] == [0, 0], "of another organization"
        await phone.hang_up()


async def test_what_nodes_tell_each_other_is_told_to_no_client(pair: Pair) -> None:
    async with pair.nodes.client("a") as client:
        for path in (
            "/nodes/events",
            "/nodes/live-calls?organization=x",
            "/nodes/refused-invites?organization=x",
            "/nodes/unknown-sources",
        ):
            assert (await client.get(path))[0] == 404
