"""An HTTP server on loopback, and a client that may connect to it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache

from aiohttp import web

from calls.http_egress.address_rules import HttpEgressRules
from calls.http_egress.client import HttpEgressClient, tls_context

LOOPBACK = HttpEgressRules(allow=["127.0.0.0/8", "::1/128"])
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@cache
def system_tls() -> ssl.SSLContext:
    """The system's certificate authorities, read once for all tests, because that is slow. Blocks."""
    return tls_context(None)


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[str]:
    """A server on loopback; yields its origin."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client_with(rules: HttpEgressRules) -> AsyncIterator[HttpEgressClient]:
    client = HttpEgressClient(rules, await asyncio.to_thread(system_tls))
    try:
        yield client
    finally:
        await client.close()
