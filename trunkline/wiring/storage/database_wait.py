"""A start while the database is away: the server waits for it, and tells everyone who asks that it is not ready."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, Self, TypeVar

import structlog
from aiohttp import web

from api.serving.listener import listen
from calls.admission.rejection import RETRY_AFTER_S
from config.settings import Settings
from sipcore.dialogs.leg import Leg
from sipcore.endpoint import Endpoint
from storage.database.errors import DatabaseAway, StorageUnavailable
from trunkline.wiring.endpoint_settings import endpoint_settings

RETRY_S: Final = (0.5, 2.0)
"""Range of the time between two attempts, seconds: nodes that wait for the same database do not come all at once."""

log = structlog.get_logger()
T = TypeVar("T")


class StoppedWhileWaiting(BaseException):
    """The server was stopped while it waited for the database. No step of a start handles it as its own error."""


class DatabaseWait:
    """Waits for the database while the server starts, until `end`, or until this context is left. `has_endpoint` and
    `has_api` are set once the server itself responds to SIP and to HTTP."""

    def __init__(self, settings: Settings, stopped: asyncio.Event, retry_s: tuple[float, float] = RETRY_S) -> None:
        """`stopped` is set when the server is to stop."""
        self._settings: Final = settings
        self._stopped: Final = stopped
        self._retry_s: Final = retry_s
        self._has_ended = False
        self.has_endpoint = False
        self.has_api = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Wait no more: from now on an outage is an error of the transaction that meets it."""
        self._has_ended = True

    async def until_reachable(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Returns the result of `attempt`, which is made again while the database is away. Meanwhile `/healthz` is 200,
        everything else of the API 503, and SIP of `[sip] probes` gets 503. Raises `StoppedWhileWaiting`, and what
        `attempt` raises else, for wrong settings."""
        if self._has_ended:
            return await attempt()
        async with AsyncExitStack() as waiting:
            reported = ""
            while True:
                try:
                    result = await attempt()
                    break
                except (DatabaseAway, StorageUnavailable) as error:
                    if isinstance(error, StorageUnavailable) and (not error.is_outage or error.disk_full):
                        raise
                    why = str(error).partition("\n")[0]
                if not reported:
                    await waiting.enter_async_context(self._unavailable(why))
                if why != reported:
                    log.warning("database.awaited", why=why)
                    reported = why
                await self._pause()
        if reported:
            log.info("database.reached")
        return result

    async def _pause(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(random.uniform(*self._retry_s)):
                await self._stopped.wait()
        if self._stopped.is_set():
            raise StoppedWhileWaiting

    @asynccontextmanager
    async def _unavailable(self, why: str) -> AsyncIterator[None]:
        """Respond that the server is not ready while the block runs, where it does not respond itself."""
        async with AsyncExitStack() as stack:
            if not self.has_endpoint:
                await stack.enter_async_context(_unavailable_sip(self._settings))
            if not self.has_api:
                await stack.enter_async_context(_unavailable_api(self._settings, why))
            yield


@asynccontextmanager
async def _unavailable_sip(settings: Settings) -> AsyncIterator[None]:
    endpoint = Endpoint(endpoint_settings(settings), _ignore)
    await endpoint.start()
    try:
        endpoint.set_accepting(False, RETRY_AFTER_S)
        endpoint.set_sources(map(str, settings.sip.probes))
        yield
    finally:
        await endpoint.close()


@asynccontextmanager
async def _unavailable_api(settings: Settings, why: str) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_get("/healthz", _healthz)
    app.router.add_route("*", "/{path:.*}", lambda _: _refused(why))
    async with listen(app, settings.api):
        yield


async def _healthz(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def _refused(why: str) -> web.Response:
    checks = {"database": why}
    body = {"status": "unavailable", "checks": checks, "error": "Service temporarily unavailable"}
    return web.json_response(body, status=503, headers={"Retry-After": str(RETRY_AFTER_S)})


def _ignore(_leg: Leg) -> None:
    """No leg comes while the endpoint accepts none."""
