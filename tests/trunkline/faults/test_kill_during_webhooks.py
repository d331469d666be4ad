"""`kill -9` of a server between an attempt of an event and its record, and right after events were stored: after the
next start each event of the call arrives at least once, in order, under its one id."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from storage.webhooks import deliveries
from storage.webhooks.deliveries import Delivery
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.api_client import Client
from tests.trunkline.server_process import Receiver, Server
from tests.trunkline.sip_phone import calling, dialled, known

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(120)]
EVENTS = ["call.started", "call.answered", "call.transferred", "call.failed", "call.completed"]


class KillingReceiver(Receiver):
    """A receiver that kills the server when the event `kills_at` arrives, before it responds."""

    server: Server
    kills_at = ""

    async def _take(self, request: web.Request) -> web.Response:
        if self.kills_at == request.headers["X-Service-Event"]:
            self.server.signal(signal.SIGKILL)
            self.kills_at = ""
        return await super()._take(request)

    def events(self, since: int = 0) -> list[str]:
        """The events of the requests from that one on."""
        return [headers["X-Service-Event"] for headers, _ in self.received[since:]]


@asynccontextmanager
async def office(folder: Path) -> AsyncIterator[tuple[Server, KillingReceiver]]:
    """A server with a number, whose agent has a webhook for all events."""
    server, receiver = Server(folder), KillingReceiver()
    receiver.server = server
    key = await server.key()
    async with receiver, server, Client(server.origin, key, server.secrets) as client:
        agent_id = await client.agent(postCallWebhookUrl=receiver.url, postCallWebhookEvents=EVENTS)
        await client.number("100", agent_id)
        await known(server.target)
        yield server, receiver


async def stored_until_sent(server: Server, call_id: str) -> list[Delivery]:
    """The events of a call, once all of them were delivered."""
    async with server.database() as database, asyncio.timeout(20):
        while True:
            stored = await database.read(lambda conn: deliveries.of_call(conn, call_id))
            if stored[-1].event == "call.completed" and all(each.status == "succeeded" for each in stored):
                return stored
            await asyncio.sleep(0.02)  # another process writes them


async def restarted(server: Server, receiver: KillingReceiver, call_id: str) -> list[str]:
    """Start the killed server again. Asserts that all events of the call arrive, and how; returns them."""
    await server.ended()
    sent_before = len(receiver.received)
    receiver.answers.set()
    await server.start()
    stored = await stored_until_sent(server, call_id)
    order: list[str] = [each.event for each in stored]
    again = receiver.events(sent_before)
    assert again == [each for each in order if each in again], "in order, once each after the start"
    assert set(receiver.events()) == set(order)
    for headers, body in receiver.received:
        (event,) = [each for each in stored if each.event == headers["X-Service-Event"]]
        assert (headers["X-Service-Delivery"], body) == (event.id, event.body)
        assert headers["X-Service-Attempt"] == "1"
        assert json.loads(body)["callId"] == call_id
    return order


async def test_an_attempt_that_a_kill_leaves_without_a_record_is_made_again(tmp_path: Path) -> None:
    async with office(tmp_path) as (server, receiver):
        receiver.kills_at = "call.started"
        async with RawPhone(server.target) as phone:
            phone.invite(dialled(phone, "100"), phone.offer())
            call_id = (await server.event("call.incoming"))["call_id"]
            order = await restarted(server, receiver, call_id)
        assert (order[0], order[-1]) == ("call.started", "call.completed")
        assert receiver.events().count("call.started") == 2
        receiver.received.clear()

        since, receiver.kills_at = server.log.mark(), "call.completed"
        async with calling(server.target) as call:
            call_id = (await server.event("call.answered", since=since))["call_id"]
            await call.hang_up()
        assert await restarted(server, receiver, call_id) == ["call.started", "call.answered", "call.completed"]
        assert receiver.events() == ["call.started", "call.answered", "call.completed", "call.completed"]


async def test_events_that_were_only_stored_before_a_kill_are_sent_in_order(tmp_path: Path) -> None:
    async with office(tmp_path) as (server, receiver):
        receiver.answers.clear()
        async with calling(server.target) as call:
            call_id = (await server.event("call.answered"))["call_id"]
            await receiver.about(call_id)
            await call.hang_up()
            await server.event("call.ended", call_id=call_id)
        server.signal(signal.SIGKILL)
        assert receiver.events() == ["call.started"]
        assert await restarted(server, receiver, call_id) == ["call.started", "call.answered", "call.completed"]
        assert receiver.events() == ["call.started", "call.started", "call.answered", "call.completed"]
