"""A minimal process that ends calls and sends their webhooks: database, `CallFinalizer` and `WebhookSender` (a worker
process). A command that is repeated after a kill does not create a second call."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

import sqlalchemy as sa

from bench.worker_process import serve_commands
from calls.call_record.outcome import CallOutcome
from calls.http_egress.address_rules import HttpEgressRules
from calls.http_egress.client import HttpEgressClient, tls_context
from calls.post_call.finalizer import CallFinalizer
from calls.webhooks.delivery import WebhookSender
from calls.webhooks.event_request import DeliveryPolicy
from config import logging as logs
from config import secrets
from config.clock import utc_now
from config.settings import Settings
from storage import tables
from storage.calls import calls
from storage.database import server_lock
from storage.database.database import Database
from storage.webhooks import attempt_claims


class CallIds(TypedDict):
    """The ids of a call's organization, agent and phone number."""

    organization_id: str
    agent_id: str
    phone_number_id: str


def _create_call(conn: sa.Connection, sid: str, call: CallIds) -> str | None:
    """Creates a call unless there is one with this SIP Call-ID. Returns the id of a new call, else None."""
    if conn.execute(sa.select(tables.calls.c.id).where(tables.calls.c.call_sid == sid)).first() is not None:
        return None
    return calls.create_inbound(conn, provider="sip", call_sid=sid, customer_number="1", **call).id


async def main() -> None:
    """Starts the sender, serves commands from stdin, and drains the sender."""
    logs.configure("error", "console")
    settings = Settings.load(None, dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True)))
    async with AsyncExitStack() as stack:
        key = await asyncio.to_thread(secrets.load_or_create, settings.secret_key_path)
        database = Database(settings.database_url)
        stack.enter_context(server_lock.lock_database(database.path))
        stack.push_async_callback(database.close)
        await database.open()
        await database.write(attempt_claims.release_all)  # the lock proves that their owner has ended
        client = HttpEgressClient(HttpEgressRules([str(each) for each in settings.egress.allow]), tls_context(None))
        stack.push_async_callback(client.close)
        webhooks = settings.webhooks
        policy = DeliveryPolicy(webhooks.allow_http, webhooks.timeout_s, webhooks.retry_delays_s)
        sender = WebhookSender(database, client, key, policy)
        finalizer = CallFinalizer(database, key, "http://127.0.0.1", sender.wake)
        await finalizer.recover(Path(settings.data_dir))
        sending = asyncio.create_task(sender.run())

        async def end(sid: str, call: CallIds) -> dict[str, Any]:
            call_id = await database.write(partial(_create_call, sid=sid, call=call))
            if call_id is not None:
                await finalizer.finish(call_id, CallOutcome("failed", "busy", utc_now()), None)
            return {}

        async def ping() -> dict[str, Any]:
            return {}

        await serve_commands({"end": end, "ping": ping})
        await sender.drain(1)
        sending.cancel()


if __name__ == "__main__":
    asyncio.run(main())
