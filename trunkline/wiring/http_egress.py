"""Outgoing HTTP: the clients of webhooks, HTTP tools, hold music and remote models, by the settings `[egress]` and
`[webhooks]`."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass

from calls.http_egress.address_rules import HttpEgressRules
from calls.http_egress.client import KEEP_ALIVE_S, HttpEgressClient, tls_context
from calls.http_egress.concurrency import HttpEgressConcurrency
from calls.tools.http_tool import ToolHttpAccess
from calls.webhooks.delivery import WebhookSender
from calls.webhooks.event_request import DeliveryPolicy
from calls.webhooks.live_turns import LiveTurnSender
from config.errors import StartupError
from config.secrets import Secrets
from config.settings import Settings
from storage.database.database import Database
from storage.nodes.membership import Membership
from storage.webhooks import attempt_claims


def http_egress_rules(settings: Settings) -> HttpEgressRules:
    """The addresses that HTTP clients may connect to (`[egress]`)."""
    return HttpEgressRules.of(settings.egress)


async def http_egress_tls(settings: Settings) -> ssl.SSLContext:
    """The TLS context with the trusted certificate authorities. Raises `StartupError`."""
    ca_file = settings.webhooks.ca_file
    try:
        return await asyncio.to_thread(tls_context, str(ca_file) if ca_file else None)
    except OSError as error:
        raise StartupError(f"webhooks.ca_file {ca_file} cannot be used: {error}") from error


async def http_egress_client(settings: Settings) -> HttpEgressClient:
    """A new HTTP client, which the caller closes. Raises `StartupError`."""
    return HttpEgressClient(http_egress_rules(settings), await http_egress_tls(settings))


async def remote_model_client(settings: Settings) -> HttpEgressClient:
    """A new HTTP client for remote models, which keeps idle connections; the caller closes it. Raises
    `StartupError`."""
    tls = await http_egress_tls(settings)
    return HttpEgressClient(http_egress_rules(settings), tls, keep_alive_s=KEEP_ALIVE_S)


@dataclass(frozen=True)
class HttpEgress:
    """What uses outgoing HTTP. Each has a client of its own, so that none waits for another's slow name servers."""

    webhook_sender: WebhookSender
    live_turns: LiveTurnSender
    tool_http: ToolHttpAccess
    api_client: HttpEgressClient


async def open_http_egress(
    settings: Settings, database: Database, key: Secrets, membership: Membership, stack: AsyncExitStack
) -> HttpEgress:
    """Open it all until `stack` is closed. A server that holds the lock of a database file releases the stored claims
    of webhooks, which are those of dead processes; those of dead nodes are free for all."""
    if database.is_sqlite:
        await database.write(attempt_claims.release_all)
    tls, rules = await http_egress_tls(settings), http_egress_rules(settings)
    webhook_client, turn_client, tool_client, api_client = clients = [HttpEgressClient(rules, tls) for _ in range(4)]
    for client in clients:
        stack.push_async_callback(client.close)
    webhooks = settings.webhooks
    policy = DeliveryPolicy(webhooks.allow_http, webhooks.timeout_s, webhooks.retry_delays_s)
    live_turns = LiveTurnSender(None if settings.standby else turn_client, key, policy)
    stack.push_async_callback(live_turns.close)
    return HttpEgress(
        WebhookSender(database, webhook_client, key, policy, membership),
        live_turns,
        ToolHttpAccess(tool_client, HttpEgressConcurrency(), key),
        api_client,
    )
