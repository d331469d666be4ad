"""The smallest process that ends calls and sends their webhooks: database, `CallFinalizer` and `WebhookSender`. It
takes orders; a call that is ordered again after a kill is not made again."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bench.worker_process import obey
from calls.call_record.outcome import CallOutcome
from calls.egress.address_rules import EgressRules
from calls.egress.client import EgressClient, tls_context
from calls.post_call.finalizer import CallFinalizer
from calls.webhooks.delivery import DeliveryPolicy, WebhookSender
from config import logging as logs
from config import secrets
from config.clock import utc_now
from config.settings import Settings
from storage import tables
from storage.calls import calls
from storage.database import server_lock
from storage.database.database import Database
from storage.webhooks import attempt_claims


def _called(conn: sa.Connection, sid: str, call: dict[str, str]) -> str | None:
    """The id of a new call; None when it is there."""
    if conn.execute(sa.select(tables.calls.c.id).where(tables.calls.c.call_sid == sid)).first() is not None:
        return None
    return calls.create_inbound(conn, provider="sip", call_sid=sid, customer_number="1", **call).id


async def main() -> None:
    """Begin, take orders, drain."""
    logs.configure("error", "console")
    settings = Settings.load(None, dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True)))
    async with AsyncExitStack() as stack:
        key = await asyncio.to_thread(secrets.load_or_create, settings.secret_key_path)
        database = Database(settings.database_url)
        stack.enter_context(server_lock.lock_database(database.path))
        stack.push_async_callback(database.close)
        await database.open()
        await database.write(attempt_claims.release_all)  # we hold the lock: who had them is dead
        client = EgressClient(EgressRules(settings.egress.allow), tls_context(None))
        stack.push_async_callback(client.close)
        webhooks = settings.webhooks
        policy = DeliveryPolicy(webhooks.allow_http, webhooks.timeout_s, webhooks.retry_delays_s)
        deliverer = WebhookSender(database, client, key, policy)
        after_call = CallFinalizer(database, key, "http://127.0.0.1", deliverer.wake)
        await after_call.recover(Path(settings.data_dir))
        sending = asyncio.create_task(deliverer.run())

        async def end(sid: str, call: dict[str, str]) -> dict[str, Any]:
            made = await database.write(partial(_called, sid=sid, call=call))
            if made is not None:
                await after_call.finish(made, CallOutcome("failed", "busy", utc_now()), None)
            return {}

        async def nothing() -> dict[str, Any]:
            return {}

        await obey({"end": end, "nothing": nothing})
        await deliverer.drain(1)
        sending.cancel()


if __name__ == "__main__":
    asyncio.run(main())
