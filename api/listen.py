"""Opens the HTTP port."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from config.errors import StartupError
from config.settings import ApiSettings

SHUTDOWN_S = 5.0
"""How long running requests may take to end when the port closes, seconds."""


@asynccontextmanager
async def listen(app: web.Application, settings: ApiSettings) -> AsyncIterator[int]:
    """Serve until the block ends; gives the port (that of the system's choice for 0). `StartupError` when the port is
    taken or the certificate does not load."""
    certificate = _certificate(settings)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_S)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port, ssl_context=certificate)
        try:
            await site.start()
        except OSError as error:
            raise StartupError(
                f"API port {settings.port} on {settings.host} cannot be opened ({_reason(error)}): "
                "stop the program that uses it, or set [api] port or host (TRUNKLINE_API__PORT, TRUNKLINE_API__HOST)"
            ) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _reason(error: OSError) -> str:
    """In the system's words; asyncio puts its own around them, and around a name that is not found none."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def _certificate(settings: ApiSettings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:
        raise StartupError(f"api.tls_cert {settings.tls_cert} with api.tls_key: {error}") from error
    return context
