"""An outbox, its sender, and a real receiver."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import sqlalchemy as sa
from aiohttp import web

from calls.http_egress.address_rules import HttpEgressRules
from calls.http_egress.client import HttpEgressClient, tls_context
from calls.webhooks.delivery import NodeMembership, WebhookSender
from calls.webhooks.event_request import DeliveryPolicy
from config.secrets import Secrets
from storage.accounts import organizations
from storage.agents import agents
from storage.calls import calls
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.tables.agent_fields import CALL_COMPLETED, AgentFields, WebhookEvent
from storage.webhooks import attempt_claims, deliveries
from storage.webhooks.deliveries import Delivery, DeliveryAttempt
from tests.calls.http_server import system_tls

BODY = '{"event":"call.completed","customerNumber":"+49 · 30"}'.encode()
SECRET = "s3cret"


@dataclass
class Receiver:
    """A receiver that records requests and responds with the next status, repeating the last one."""

    statuses: list[int] = field(default_factory=lambda: [200])
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    text: str | bytes = "thanks"
    hold: asyncio.Event | None = None
    hangs_for: str | None = None
    """Requests with this event get no response."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    origin: str = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.got.append((dict(request.headers), await request.read()))
        self.arrived.set()
        if self.hangs_for is not None and request.headers.get("X-Service-Event") == self.hangs_for:
            await asyncio.Event().wait()
        if self.hold is not None:
            await self.hold.wait()
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        body = self.text.encode() if isinstance(self.text, str) else self.text
        return web.Response(status=status, body=body, headers={"Location": "/x"} if status == 302 else {})


@asynccontextmanager
async def listening(receiver: Receiver, tls: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    app = web.Application()
    app.router.add_post("/hook", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    receiver.origin = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield receiver
    finally:
        await runner.cleanup()


async def put(database: Database, url: str, secret_encrypted: str | None = None, *, body: bytes = BODY) -> Delivery:
    """Put an ended call's webhook into the outbox."""
    return (await put_many(database, url, 1, secret_encrypted, body=body))[0]


async def put_many(
    database: Database,
    url: str | Sequence[str],
    count: int,
    secret_encrypted: str | None = None,
    *,
    body: bytes = BODY,
    events: Sequence[WebhookEvent] = (CALL_COMPLETED,),
) -> list[Delivery]:
    """Put the webhooks of `count` calls of a new organization into the outbox for each of these URLs. Each call has
    these events."""
    urls = [url] if isinstance(url, str) else url

    def create(conn: sa.Connection) -> list[Delivery]:
        name = str(time.monotonic_ns())
        organization = organizations.create(conn, name)
        agent = agents.create(conn, organization.id, AgentFields(name="a"))
        fields = phone_numbers.PhoneNumberFields(number="+1", provider="sip")
        number = phone_numbers.create(conn, organization.id, fields)
        made = []
        for each, each_url in enumerate(url for url in urls for _ in range(count)):
            call = calls.create_inbound(
                conn,
                organization_id=organization.id,
                agent_id=agent.id,
                phone_number_id=number.id,
                provider="sip",
                call_sid=f"{name}-{each}",
                customer_number="+2",
            )
            made += [
                deliveries.add(
                    conn,
                    organization_id=organization.id,
                    call_id=call.id,
                    url=each_url,
                    body=body,
                    secret_encrypted=secret_encrypted,
                    event=event,
                )
                for event in events
            ]
        return made

    return await database.write(create)


@asynccontextmanager
async def running_sender(
    database: Database,
    secrets: Secrets,
    *,
    allow_http: bool = True,
    delays: Sequence[float] = (),
    timeout_s: float = 10,
    rules: HttpEgressRules | None = None,
    ca_file: str | None = None,
    beside_others: bool = False,
    membership: NodeMembership | None = None,
) -> AsyncIterator[WebhookSender]:
    """A running sender, as after a start of the server; `beside_others`: as a second process, or with `membership` as
    one of several nodes."""
    if not beside_others:
        await database.write(attempt_claims.release_all)
    tls = await asyncio.to_thread(lambda: tls_context(ca_file) if ca_file else system_tls())
    client = HttpEgressClient(rules or HttpEgressRules(allow=["127.0.0.0/8"]), tls)
    sender = WebhookSender(database, client, secrets, DeliveryPolicy(allow_http, timeout_s, delays), membership)
    task = asyncio.ensure_future(sender.run())
    try:
        yield sender
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await client.close()


async def stored(database: Database, delivery: Delivery) -> tuple[Delivery, list[DeliveryAttempt]]:
    """Returns the delivery and its attempts, in the order of their numbers."""

    def look(conn: sa.Connection) -> tuple[Delivery, list[DeliveryAttempt]]:
        row = deliveries.delivery_of_call(conn, delivery.call_id)
        assert row is not None
        found = deliveries.page(conn, delivery.call_id, limit=100, offset=0).items
        attempts = [each.attempt for each in found if each.delivery.id == delivery.id]
        return row, sorted(attempts, key=lambda each: each.attempt)

    return await database.read(look)


async def request_manual_attempt(database: Database, delivery: Delivery) -> DeliveryAttempt:
    """Somebody wants it to be sent once more."""
    return await database.write(lambda conn: deliveries.add_manual_attempt(conn, delivery, scheduled=5))
