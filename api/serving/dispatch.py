"""Runs a route: validation, preparation, a transaction with the handler in it, the response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import sqlalchemy as sa
import structlog
from aiohttp import web
from pydantic import BaseModel
from pydantic_core import to_json

from api.auth.authentication import API_KEY, WITHOUT_KEY
from api.http.response_streaming import CHUNK, MemoryReservation, ResponseMemory, StreamedJsonResponse
from api.http.shielded_tasks import ShieldedTasks
from api.routing.route import (
    CheckedRequest,
    DataResponse,
    DeletedResponse,
    FileResponse,
    JsonResponse,
    ListResponse,
    PageResponse,
    RequestContext,
    ResultsResponse,
    Route,
    ViewPage,
    as_json,
)
from api.routing.validation import SMALL_BODY, check_body, check_query, item_id, read_body
from api.schemas.base import BodyContext, Paging
from api.schemas.bounds import MIB
from api.services import Services
from api.serving.idempotency import IdempotencyStore, key_of, stored_response
from api.serving.upload_slots import UploadSlots
from config.clock import utc_now
from config.errors import Invalid
from storage.accounts import idempotency, quotas
from storage.accounts.idempotency import IdempotencyScope, StoredResponse

JSON: Final = "application/json"
LARGE_BODY: Final = 64 * 1024
"""A body of more bytes is validated on another thread, so that it does not hold up the event loop."""
MAX_PAGE: Final = 4 * MIB
"""Bytes of a page; items beyond it come with the next page."""
PAGE_ENVELOPE: Final = 256
"""Bytes of a page that are not items."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = structlog.get_logger()


def route_handler(
    route: Route,
    services: Services,
    idempotency_store: IdempotencyStore,
    shielded_tasks: ShieldedTasks,
    upload_slots: UploadSlots,
    response_memory: ResponseMemory,
) -> Handler:
    """Returns the aiohttp handler of a route."""
    run = _RouteRunner(route, services, shielded_tasks, upload_slots, response_memory)

    async def handle(request: web.Request) -> web.StreamResponse:
        caller = request.get(API_KEY)
        key = key_of(request) if route.method == "POST" and caller is not None else None
        if caller is None or key is None:
            return await run(request)
        scope = IdempotencyScope(caller.organization_id, request.method, request.path, key)
        return await idempotency_store.run_once(scope, request, lambda again: run(again, scope))

    return handle


class _RouteRunner:
    """Runs the requests of one route."""

    def __init__(
        self,
        route: Route,
        services: Services,
        shielded_tasks: ShieldedTasks,
        upload_slots: UploadSlots,
        response_memory: ResponseMemory,
    ) -> None:
        self._route = route
        self._services = services
        self._shielded_tasks = shielded_tasks
        self._upload_slots = upload_slots
        self._response_memory = response_memory
        self._body_context = BodyContext(allow_http_webhooks=services.settings.webhooks.allow_http)

    async def __call__(self, request: web.Request, scope: IdempotencyScope | None = None) -> web.StreamResponse:
        """Returns the response; with a `scope`, it is stored under it in the transaction of the handler."""
        await self._check_disk(request, scope)
        if self._route.max_body > SMALL_BODY:
            return await self._upload(request, scope)
        work = self._respond(await self._checked(request), scope)
        only_reads = not self._route.writes and scope is None and self._route.prepare is None
        return await (work if only_reads else self._shielded_tasks.run_to_completion(work))

    async def _upload(self, request: web.Request, scope: IdempotencyScope | None) -> web.StreamResponse:
        """The same for a body that may be large: its upload slot is taken until the work on it has ended."""
        leave = await self._upload_slots.take(request, self._route.max_body)
        try:
            checked = await self._checked(request)
        except BaseException:
            leave()
            raise
        return await self._shielded_tasks.run_to_completion(self._respond(checked, scope), leave)

    async def _check_disk(self, request: web.Request, scope: IdempotencyScope | None) -> None:
        """Raises `InsufficientStorage` when what the request stores would use the disk's reserve."""
        route, disk = self._route, self._services.disk
        if disk is not None and route.leaves_reserve and (route.writes or scope is not None):
            await disk.check_reserve(min(request.content_length or 0, route.max_body))

    async def _respond(self, checked: CheckedRequest[Any, Any], scope: IdempotencyScope | None) -> web.StreamResponse:
        """Returns the response, once there is memory for it. Only reads wait for memory, so that a client that does not
        read its lists can still hang up its calls."""
        route, owner = self._route, checked.organization_id
        if route.writes or isinstance(route.response, FileResponse):
            room = self._response_memory.reserve_now(owner, 0)
        else:
            items = checked.query.limit if isinstance(route.response, PageResponse) else 1
            room = await self._response_memory.reserve(owner, min(items * MIB, MAX_PAGE))
        try:
            answer = await self._run(checked, scope)
        except BaseException:
            room.release()
            raise
        if isinstance(answer, web.StreamResponse):
            room.release()
            return answer
        return streamed_json_response(route.status, answer, room)

    async def _run(
        self, checked: CheckedRequest[Any, Any], scope: IdempotencyScope | None
    ) -> bytes | list[bytes] | web.StreamResponse:
        """Preparation, transaction, and what follows it: all of it or, when the transaction fails, nothing."""
        route, database, secrets = self._route, self._services.database, self._services.secrets
        prepared = None if route.prepare is None else await self._prepare(checked)
        limits = self._services.settings.quotas.model_dump()
        kept_to = route.quotas if scope is None else (*route.quotas, quotas.IDEMPOTENT_RESPONSES)
        follow_ups: list[Callable[[], None]] = []
        notes: list[Callable[[sa.Connection], None]] = []

        def work(conn: sa.Connection) -> bytes | list[bytes] | web.StreamResponse | StoredResponse:
            # One that was cut off, or came to another server, may have been stored since the first look.
            kept = None if scope is None else idempotency.find(conn, secrets, scope, utc_now())
            if kept is not None:
                return kept
            before = quotas.usage(conn, checked.owner, limits) if kept_to else {}
            context = RequestContext(
                **checked.__dict__, conn=conn, prepared=prepared, after_commit=follow_ups, after_rejection=notes
            )
            answer = _serialized(route, context, route.handler(context))
            if scope is not None and isinstance(answer, bytes):
                idempotency.store(conn, secrets, scope, StoredResponse(route.status, answer))
            if kept_to:
                quotas.require_within_quota(before, quotas.usage(conn, checked.owner, limits), kept_to)
            return answer

        try:
            transaction = database.write if route.writes or scope is not None else database.read
            answer = await transaction(work, owner=checked.organization_id)
        except Exception:
            await self._undo(checked, prepared)
            await self._store_audit(notes, checked.organization_id)
            raise
        if isinstance(answer, StoredResponse):
            await self._undo(checked, prepared)
            return stored_response(answer)
        self._follow_up(follow_ups)
        return answer

    async def _prepare(self, checked: CheckedRequest[Any, Any]) -> Any:
        """What the route's `prepare` returns, unless a quota is used up already."""
        route, limits = self._route, self._services.settings.quotas.model_dump()
        if route.quotas:
            look = partial(quotas.usage, organization_id=checked.owner, defaults=limits)
            quotas.require_available(await self._services.database.read(look, owner=checked.owner), route.quotas)
        assert route.prepare is not None
        return await route.prepare(checked)

    async def _undo(self, checked: CheckedRequest[Any, Any], prepared: Any) -> None:
        if self._route.undo is None:
            return
        try:
            await self._route.undo(checked, prepared)
        except Exception:  # the client is told what came of the request, not this
            log.exception("api.undo_failed", route=self._route.name)

    async def _store_audit(self, notes: Sequence[Callable[[sa.Connection], None]], owner: str | None) -> None:
        for note in notes:
            try:
                await self._services.database.write(note, owner=owner)
            except Exception:  # the client is refused all the same
                log.exception("api.refusal_not_noted", route=self._route.name)

    def _follow_up(self, follow_ups: list[Callable[[], None]]) -> None:
        for follow_up in follow_ups:
            try:
                follow_up()
            except Exception:  # the work is stored: that is what the client has to know
                log.exception("api.follow_up_failed", route=self._route.name)

    async def _checked(self, request: web.Request) -> CheckedRequest[Any, Any]:
        route = self._route
        query = check_query(route.query, request)
        body = None if route.body is None else await self._body(request, route.body)
        # Not earlier: an id that is none is answered like one that names nothing.
        item = item_id(request, route.item)
        caller = request.get(API_KEY)
        owner = None if caller is None or request[WITHOUT_KEY] else caller.organization_id
        return CheckedRequest(self._services, request, owner, item, body, query)

    async def _body(self, request: web.Request, model: type[BaseModel]) -> BaseModel:
        given = await read_body(request, self._route.max_body)
        try:
            if len(given) > LARGE_BODY:
                return await asyncio.to_thread(check_body, model, given, self._body_context)
            return check_body(model, given, self._body_context)
        except Invalid as error:
            await self._note_malformed(request, given, error)
            raise

    async def _note_malformed(self, request: web.Request, given: bytes, error: Invalid) -> None:
        if self._route.audit_malformed is not None:
            note = await asyncio.to_thread(self._route.audit_malformed, request, given, error)
            caller = request.get(API_KEY)
            owner = None if caller is None else caller.organization_id
            await self._store_audit([] if note is None else [note], owner)


def json_response(status: int, body: bytes) -> web.Response:
    """Returns a response with a JSON body."""
    return web.Response(body=body, status=status, content_type=JSON, charset="utf-8")


def streamed_json_response(status: int, body: bytes | list[bytes], room: MemoryReservation) -> web.StreamResponse:
    """Returns a response with a JSON body, given whole or in parts; a large one is streamed."""
    parts = [body] if isinstance(body, bytes) else body
    size = sum(map(len, parts))
    if size <= CHUNK:
        room.release()
        return json_response(status, body if isinstance(body, bytes) else b"".join(body))
    room.resize(size)
    return StreamedJsonResponse(status, parts, room)


def _serialized(
    route: Route, context: RequestContext[Any, Any], result: Any
) -> bytes | list[bytes] | web.StreamResponse:
    """What the handler returned, in the envelope of the route; a page in parts."""
    match route.response:
        case DataResponse(or_text=True) if isinstance(result, web.StreamResponse):
            return result
        case DataResponse():
            return b'{"data":' + as_json(result) + b"}"
        case PageResponse():
            return _page(result, context.query)
        case ListResponse():
            return b'{"data":[' + b",".join(map(as_json, result)) + b"]}"
        case ResultsResponse():
            return b'{"results":[' + b",".join(map(as_json, result)) + b"]}"
        case DeletedResponse():
            return to_json({"data": {"id": context.item, "deleted": True}})
        case JsonResponse():
            document: bytes = result
            return document
        case FileResponse():
            response: web.StreamResponse = result
            return response


def _page(listed: ViewPage, paging: Paging) -> list[bytes]:
    """As many items as fit into a page, and at least one. Items are read lazily: none beyond those is read."""
    parts = [b'{"data":[']
    room = MAX_PAGE - PAGE_ENVELOPE
    for item in listed.items:
        part = item if isinstance(item, bytes) else as_json(item)
        room -= len(part) + 1
        if room < 0 and len(parts) > 1:
            break
        parts += (b",", part) if len(parts) > 1 else (part,)
    pagination = to_json({"total": listed.total, "limit": paging.limit, "offset": paging.offset})
    return [*parts, b'],"pagination":' + pagination + b"}"]
