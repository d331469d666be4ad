"""`Idempotency-Key`: a repeated POST gets the stored response of the first one and is not executed again."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Final

import sqlalchemy as sa
from aiohttp import web

from api.periodic_task import PeriodicTask
from api.serving.middleware import handle_errors
from config.clock import utc_now
from config.errors import FieldProblem, Invalid, QuotaExceeded
from config.secrets import Secrets
from storage.accounts import idempotency, quotas
from storage.accounts.idempotency import IdempotencyScope, StoredResponse
from storage.database.database import Database

HEADER: Final = "Idempotency-Key"
REPLAY_HEADER: Final = "Idempotent-Replay"
KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
PURGE_EVERY_S: Final = 600.0
PURGED_AT_ONCE: Final = 500
"""Expired responses deleted in one transaction."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def idempotency_key(request: web.Request) -> str | None:
    """Returns the client's idempotency key; None without one. Raises `Invalid` with the name of the header."""
    values = request.headers.getall(HEADER, [])
    if not values:
        return None
    if len(values) > 1 or KEY.fullmatch(values[0]) is None:
        raise Invalid([FieldProblem(HEADER, "Must be one text of 1 to 255 visible ASCII characters")])
    return values[0]


class IdempotencyStore:
    """Stored responses, and locks for the requests that run now."""

    def __init__(self, database: Database, secrets: Secrets, limits: Mapping[str, int]) -> None:
        """`limits` are the quotas of organizations without quotas of their own."""
        self._database = database
        self._limits = limits
        self._secrets = secrets
        self._locks: dict[IdempotencyScope, tuple[asyncio.Lock, int]] = {}
        """The lock of each scope, and the number of requests that hold it or wait for it."""

    async def run_once(self, scope: IdempotencyScope, request: web.Request, run: Handler) -> web.StreamResponse:
        """Returns the stored response of the scope, else the response of `run`. `run` stores a successful response
        itself; client errors are stored here. A request waits until a running one of the same scope has ended."""
        async with self._lock(scope):
            owner = scope.organization_id
            stored = await self._database.read(
                lambda conn: idempotency.find(conn, self._secrets, scope, utc_now()), owner=owner
            )
            if stored is not None:
                return replayed_response(stored)
            response_quota_errors: list[QuotaExceeded] = []

            async def collect_quota_errors(request: web.Request) -> web.StreamResponse:
                try:
                    return await run(request)
                except QuotaExceeded as error:
                    if error.quota == quotas.IDEMPOTENT_RESPONSES:
                        response_quota_errors.append(error)
                    raise

            response = await handle_errors(request, collect_quota_errors)
            if response_quota_errors:
                return response  # it cannot be stored, because the quota of stored responses is exceeded
            body = response.body if isinstance(response, web.Response) else None
            if isinstance(body, bytes) and _is_stored_error(response.status):
                own = StoredResponse(response.status, body)
                first = await self._database.write(partial(self._find_or_store, scope, own), owner=owner)
                return response if first is own else replayed_response(first)
            return response

    def _find_or_store(self, scope: IdempotencyScope, response: StoredResponse, conn: sa.Connection) -> StoredResponse:
        """Returns the stored response of the scope, else stores this one and returns it. Raises `QuotaExceeded`."""
        usage_before = quotas.usage(conn, scope.organization_id, self._limits)
        first = idempotency.find_or_store(conn, self._secrets, scope, response)
        usage = quotas.usage(conn, scope.organization_id, self._limits)
        quotas.require_within_quota(usage_before, usage, [quotas.IDEMPOTENT_RESPONSES])
        return first

    @asynccontextmanager
    async def _lock(self, scope: IdempotencyScope) -> AsyncIterator[None]:
        lock, users = self._locks.get(scope, (asyncio.Lock(), 0))
        self._locks[scope] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(scope)
            if users > 1:
                self._locks[scope] = lock, users - 1

    def purge_periodically(self) -> AbstractAsyncContextManager[None]:
        """Delete responses older than 24 hours while the block runs: at once, then every 600 s."""
        purge = PeriodicTask("idempotency.not_purged", PURGE_EVERY_S, self._purge)
        return purge.running("idempotency purge", at_once=True)

    async def _purge(self) -> None:
        while await self._database.write(_delete_expired, lock="idempotency"):
            pass


def _delete_expired(conn: sa.Connection) -> bool:
    """Delete a batch of expired responses. Returns True if there may be more."""
    return idempotency.delete_expired(conn, utc_now(), limit=PURGED_AT_ONCE) == PURGED_AT_ONCE


def _is_stored_error(status: int) -> bool:
    """True for client errors but 401 and 429, whose cause may be gone when the request is repeated."""
    return 400 <= status < 500 and status not in (401, 429)


def replayed_response(stored: StoredResponse) -> web.Response:
    """Returns a stored response with the replay header."""
    return web.Response(
        body=stored.body,
        status=stored.status,
        headers={REPLAY_HEADER: "true"},
        content_type="application/json",
        charset="utf-8",
    )
