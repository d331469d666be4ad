"""`Idempotency-Key`: a POST sent again gets the response of the first one, and does nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import sqlalchemy as sa
import structlog
from aiohttp import web

from api.serving.middleware import handle_errors
from config.clock import utc_now
from config.errors import FieldProblem, Invalid, QuotaExceeded
from config.secrets import Secrets
from storage.accounts import idempotency, quotas
from storage.accounts.idempotency import IdempotencyScope, StoredResponse
from storage.database.database import Database, StorageUnavailable

HEADER: Final = "Idempotency-Key"
REPLAY_HEADER: Final = "Idempotent-Replay"
KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")
PURGE_EVERY_S: Final = 600.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = structlog.get_logger()


def key_of(request: web.Request) -> str | None:
    """Returns the client's idempotency key; None without one. `Invalid` names the header."""
    given = request.headers.getall(HEADER, [])
    if not given:
        return None
    if len(given) > 1 or KEY.fullmatch(given[0]) is None:
        raise Invalid([FieldProblem(HEADER, "Must be one text of 1 to 255 visible ASCII characters")])
    return given[0]


class IdempotencyStore:
    """Stored responses, and locks for the requests that run now."""

    def __init__(self, database: Database, secrets: Secrets, limits: Mapping[str, int]) -> None:
        """`limits` are the quotas of organizations without quotas of their own."""
        self._database = database
        self._limits = limits
        self._secrets = secrets
        self._turns: dict[IdempotencyScope, tuple[asyncio.Lock, int]] = {}

    async def run_once(self, scope: IdempotencyScope, request: web.Request, run: Handler) -> web.StreamResponse:
        """Returns the stored response, or that of `run`, which stores it when it succeeds; client errors are stored
        here. A request waits for a running one of the same scope."""
        async with self._lock(scope):
            owner = scope.organization_id
            kept = await self._database.read(
                lambda conn: idempotency.find(conn, self._secrets, scope, utc_now()), owner=owner
            )
            if kept is not None:
                return stored_response(kept)
            no_room: list[QuotaExceeded] = []

            async def noted(again: web.Request) -> web.StreamResponse:
                try:
                    return await run(again)
                except QuotaExceeded as refusal:
                    if refusal.quota == quotas.IDEMPOTENT_RESPONSES:
                        no_room.append(refusal)
                    raise

            response = await handle_errors(request, noted)
            if no_room:
                return response  # that there is no room to keep an answer is not kept either
            body = response.body if isinstance(response, web.Response) else None
            if isinstance(body, bytes) and _is_stored_error(response.status):
                answer = StoredResponse(response.status, body)
                first = await self._database.write(partial(self._store_first, scope, answer), owner=owner)
                return response if first is answer else stored_response(first)
            return response

    def _store_first(self, scope: IdempotencyScope, answer: StoredResponse, conn: sa.Connection) -> StoredResponse:
        """The response that counts: the stored one, or this one, which is stored. Raises `QuotaExceeded`."""
        before = quotas.usage(conn, scope.organization_id, self._limits)
        first = idempotency.find_or_store(conn, self._secrets, scope, answer)
        quotas.require_within_quota(
            before, quotas.usage(conn, scope.organization_id, self._limits), [quotas.IDEMPOTENT_RESPONSES]
        )
        return first

    @asynccontextmanager
    async def _lock(self, scope: IdempotencyScope) -> AsyncIterator[None]:
        lock, users = self._turns.get(scope, (asyncio.Lock(), 0))
        self._turns[scope] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._turns.pop(scope)
            if users > 1:
                self._turns[scope] = lock, users - 1

    @asynccontextmanager
    async def purged_periodically(self) -> AsyncIterator[None]:
        """While the block runs, responses older than 24 hours are deleted, at once and then periodically."""
        task = asyncio.create_task(self._purge_forever(), name="idempotency purge")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait((task,))

    async def _purge_forever(self) -> None:
        while True:
            try:
                await self._database.write(lambda conn: idempotency.delete_expired(conn, utc_now()))
            except StorageUnavailable as trouble:
                log.warning("idempotency.not_purged", cause=trouble.cause)
            except Exception:  # the next one may do: the table must not grow for good
                log.exception("idempotency.not_purged")
            await asyncio.sleep(PURGE_EVERY_S)


def _is_stored_error(status: int) -> bool:
    """Client errors, without those that may differ when the request is sent again: 401 and 429."""
    return 400 <= status < 500 and status not in (401, 429)


def stored_response(kept: StoredResponse) -> web.Response:
    """Returns a stored response with the replay header."""
    return web.Response(
        body=kept.body,
        status=kept.status,
        headers={REPLAY_HEADER: "true"},
        content_type="application/json",
        charset="utf-8",
    )
