"""A start while the database is away: the server waits for it, and tells everyone who asks that it is not ready."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import structlog
from aiohttp import web

from api.serving.listener import listen
from calls.admission.rejection import RETRY_AFTER_S
from config.settings import Settings
from sipcore.dialogs.leg import Leg
from sipcore.endpoint import Endpoint
from storage.database.errors import DatabaseAway
from trunkline.wiring.sip import endpoint_settings

RETRY_S: Final = (0.5, 2.0)
"""Range of the time between two attempts, seconds: nodes that wait for the same database do not come all at once."""

log = structlog.get_logger()


class StoppedWhileWaiting(Exception):
    """The server was stopped before the database could be reached."""


async def wait_for_database(
    settings: Settings,
    open_database: Callable[[], Coroutine[Any, Any, None]],
    stopped: asyncio.Event,
    retry_s: tuple[float, float] = RETRY_S,
) -> None:
    """Open the database, again until that does not raise `DatabaseAway`. Meanwhile `/healthz` is 200, everything else
    of the API 503, and SIP of `[sip] probes` gets 503. Raises `StoppedWhileWaiting`, and what `open_database` raises
    else, for wrong settings."""
    async with AsyncExitStack() as waiting:
        is_waiting = False
        while True:
            try:
                await open_database()
                break
            except DatabaseAway as error:
                if not is_waiting:
                    why = str(error).partition("\n")[0]
                    await waiting.enter_async_context(_unavailable(settings, why))
                    log.warning("database.awaited", why=why)
                    is_waiting = True
            try:
                async with asyncio.timeout(random.uniform(*retry_s)):
                    await stopped.wait()
                raise StoppedWhileWaiting
            except TimeoutError:
                continue
        if is_waiting:
            log.info("database.reached")


@asynccontextmanager
async def _unavailable(settings: Settings, why: str) -> AsyncIterator[None]:
    """Respond that the server is not ready while the block runs."""
    app = web.Application()
    app.router.add_get("/healthz", _healthz)
    app.router.add_route("*", "/{path:.*}", lambda _: _refused(why))
    endpoint = Endpoint(endpoint_settings(settings), _ignore)
    await endpoint.start()
    try:
        endpoint.set_accepting(False, RETRY_AFTER_S)
        endpoint.set_sources(map(str, settings.sip.probes))
        async with listen(app, settings.api):
            yield
    finally:
        await endpoint.close()


async def _healthz(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _refused(why: str) -> web.Response:
    checks = {"database": why}
    body = {"status": "unavailable", "checks": checks, "error": "Service temporarily unavailable"}
    return web.json_response(body, status=503, headers={"Retry-After": str(RETRY_AFTER_S)})


def _ignore(_leg: Leg) -> None:
    """No leg comes while the endpoint accepts none."""
