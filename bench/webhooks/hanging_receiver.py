"""Time of `call.completed` at a receiver that hangs: how long after it was stored its first attempt arrives there,
while the call's other events go to the same receiver and get no response, or nothing gets one.
`python -m bench.webhooks.hanging_receiver` takes six minutes, in which it is idle most of the time."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from aiohttp import web
from cryptography.fernet import Fernet

from calls.http_egress.address_rules import HttpEgressRules
from calls.http_egress.client import HttpEgressClient, tls_context
from calls.webhooks import call_events
from calls.webhooks.delivery import WebhookSender
from calls.webhooks.event_request import DeliveryPolicy
from config import logging as logs
from config.clock import utc_now
from config.secrets import Secrets
from storage.accounts import organizations
from storage.agents import agents
from storage.agents.agents import Agent
from storage.calls import calls
from storage.calls.calls import Call
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumberFields
from storage.tables.agent_fields import AgentFields

CALLS_PER_MINUTE: Final = (20, 100)
CALLS_FOR_S: Final = 300.0
WATCHED_FOR_S: Final = 360.0
ANSWERED_AFTER_S: Final = 2.0
ENDED_AFTER_S: Final = 12.0
Row = dict[str, Any]


@dataclass
class HangingReceiver:
    """A receiver that responds to the `answered` events alone."""

    answered: Sequence[str]
    arrived_s: dict[str, float] = field(default_factory=dict)
    """Times of the first request of each event, by its name and call, of the system's monotonic clock."""
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.Response:
        """Records a request, and responds or hangs."""
        told = json.loads(await request.read())
        self.arrived_s.setdefault(f"{told['event']} {told['callId']}", time.monotonic())
        if told["event"] not in self.answered:
            await self.over.wait()
        return web.Response()


@dataclass
class CallLoad:
    """Calls that start, are answered and end, with their events stored as a server stores them."""

    database: Database
    agent: Agent
    number_id: str
    wake: Callable[[], None]
    stored_s: dict[str, float] = field(default_factory=dict)
    """When each event was stored, as `HangingReceiver.arrived_s`."""

    async def run(self, per_minute: float) -> None:
        """Runs calls for `CALLS_FOR_S`."""
        async with asyncio.TaskGroup() as group:
            for number in range(int(CALLS_FOR_S * per_minute / 60)):
                group.create_task(self._call(number, number * 60 / per_minute))

    async def _call(self, number: int, after_s: float) -> None:
        await asyncio.sleep(after_s)
        call = await self.database.write(partial(self._start, f"bench {number}"))
        self._on_stored(call, "call.started")
        await asyncio.sleep(ANSWERED_AFTER_S)
        await self._store(call, "call.answered")
        await asyncio.sleep(ENDED_AFTER_S - ANSWERED_AFTER_S)
        await self._store(call, "call.completed")

    def _start(self, call_sid: str, conn: sa.Connection) -> Call:
        call = calls.create_inbound(
            conn, organization_id=self.agent.organization_id, agent_id=self.agent.id, phone_number_id=self.number_id,
            provider="sip", call_sid=call_sid, customer_number="1",
        )  # fmt: skip
        call_events.add_started(conn, call, self.agent, call.created_at)
        return call

    async def _store(self, call: Call, event: str) -> None:
        await self.database.write(
            lambda conn: call_events.add_event(conn, call, self.agent, event, utc_now(), {})  # type: ignore[arg-type]
        )
        self._on_stored(call, event)

    def _on_stored(self, call: Call, event: str) -> None:
        self.stored_s[f"{event} {call.id}"] = time.monotonic()
        self.wake()


def _insert_seed_data(url: str, conn: sa.Connection) -> tuple[Agent, str]:
    organization = organizations.create(conn, "bench")
    fields = AgentFields(
        name="a", post_call_webhook_url=url,
        post_call_webhook_events=["call.started", "call.answered", "call.completed"],
    )  # fmt: skip
    number = phone_numbers.create(conn, organization.id, PhoneNumberFields(number="1", provider="sip"))
    return agents.create(conn, organization.id, fields), number.id


async def _measure(database: Database, per_minute: float, answered: Sequence[str]) -> Row:
    receiver = HangingReceiver(answered)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(database.close)
        app = web.Application()
        app.router.add_post("/hook", receiver.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.01)
        stack.push_async_callback(runner.cleanup)
        stack.callback(receiver.over.set)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
        agent, number_id = await database.write(partial(_insert_seed_data, url))
        client = HttpEgressClient(HttpEgressRules(["127.0.0.0/8"]), tls_context(None))
        stack.push_async_callback(client.close)
        sender = WebhookSender(database, client, Secrets([Fernet.generate_key()]), DeliveryPolicy(allow_http=True))
        load = CallLoad(database, agent, number_id, sender.wake)
        with suppress(TimeoutError):
            async with asyncio.timeout(WATCHED_FOR_S), asyncio.TaskGroup() as group:
                group.create_task(load.run(per_minute))
                group.create_task(sender.run())
        return {
            "calls_per_minute": per_minute,
            "answers": ", ".join(answered) or "nothing",
            **_waits("completed", load, receiver, lambda event: event == "call.completed"),
            **_waits("others", load, receiver, lambda event: event != "call.completed"),
        }


def _waits(name: str, load: CallLoad, receiver: HangingReceiver, is_counted: Callable[[str], bool]) -> Row:
    """Returns how long events waited for their first attempt; one that had none has waited until now."""
    stored = {key: at_s for key, at_s in load.stored_s.items() if is_counted(key.partition(" ")[0])}
    arrived, now_s = receiver.arrived_s, time.monotonic()
    waits = sorted(arrived.get(key, now_s) - at_s for key, at_s in stored.items())
    return {
        f"{name}_events": len(waits),
        f"{name}_not_sent": sum(key not in arrived for key in stored),
        f"{name}_p50_s": round(waits[len(waits) // 2], 1),
        f"{name}_p95_s": round(waits[len(waits) * 95 // 100], 1),
        f"{name}_max_s": round(waits[-1], 1),
    }


async def run() -> list[Row]:
    """Measures all rates, with a receiver that answers `call.completed` and with one that answers nothing, at once."""
    logs.configure("error", "console")
    with tempfile.TemporaryDirectory() as folder:
        measured = []
        for number, (rate, answered) in enumerate((r, a) for a in (["call.completed"], []) for r in CALLS_PER_MINUTE):
            database = Database(f"sqlite+aiosqlite:///{Path(folder, str(number))}")
            await database.open()
            measured.append(_measure(database, rate, answered))
        return await asyncio.gather(*measured)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for row in asyncio.run(run()):
        print(json.dumps(row))
