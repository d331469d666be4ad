"""Runs a route: validation, preparation, the transaction with the handler in it, the response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import sqlalchemy as sa
from aiohttp import web
from pydantic import BaseModel

from api.auth.authentication import KEY_REQUIRED
from api.auth.principal import PRINCIPAL
from api.auth.session_authentication import ORGANIZATION_PARAMETER
from api.http.client_connection import while_connected
from api.http.response_streaming import CHUNK, MemoryReservation, ResponseMemory, StreamedJsonResponse
from api.http.shielded_tasks import ShieldedTasks
from api.http.timeouts import DEADLINES
from api.routing.multipart import in_terms_of_form, read_form
from api.routing.route import CheckedRequest, FileResponse, PageResponse, RequestContext, Route
from api.routing.validation import SMALL_BODY, check_body, check_query, is_form, item_id, item_number, read_body
from api.schemas.base import BodyContext
from api.schemas.bounds import MIB
from api.schemas.file_upload import FileUpload
from api.services import Services
from api.serving import serialization
from api.serving.idempotency import IdempotencyStore, idempotency_key, replayed_response
from api.serving.operation import Operation
from api.serving.upload_slots import UploadSlots
from config.clock import utc_now
from config.errors import Invalid
from storage.accounts import idempotency, quotas
from storage.accounts.idempotency import IdempotencyScope, StoredResponse

JSON: Final = "application/json"
LARGE_BODY: Final = 64 * 1024
"""Bytes; a larger body is validated on another thread, so that it does not block the event loop."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Response = bytes | list[bytes] | web.StreamResponse | StoredResponse


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
        principal = request.get(PRINCIPAL)
        key = idempotency_key(request) if route.method == "POST" and principal is not None else None
        if principal is None or key is None:
            return await run(request)
        scope = IdempotencyScope(principal.organization_id, request.method, request.path, key)
        return await idempotency_store.run_once(scope, request, lambda request: run(request, scope))

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
        self._operation = Operation(route, services)
        self._shielded_tasks = shielded_tasks
        self._upload_slots = upload_slots
        self._response_memory = response_memory
        self._body_context = BodyContext.of(services.settings)

    async def __call__(self, request: web.Request, scope: IdempotencyScope | None = None) -> web.StreamResponse:
        """Returns the response; with a `scope`, the transaction of the handler stores it for idempotency."""
        await self._check_disk_reserve(request, scope)
        if self._route.max_body > SMALL_BODY:
            try:
                return await self._run_upload(request, scope)
            except Invalid as error:
                raise (in_terms_of_form(error) if is_form(request) else error) from error.__cause__
        work = self._respond(await self._validate(request), scope)
        if self._route.ends_with_client:
            with request.app[DEADLINES].paused():
                return await while_connected(request, work)
        if not self._route.has_deadline:
            with request.app[DEADLINES].paused():
                return await work
        only_reads = not self._route.writes and scope is None and self._route.prepare is None
        return await (work if only_reads else self._shielded_tasks.run_to_completion(work))

    async def _run_upload(self, request: web.Request, scope: IdempotencyScope | None) -> web.StreamResponse:
        """Runs a request whose body may be large. It occupies an upload slot until the end of the work on it."""
        release_slot = await self._upload_slots.acquire(request, self._route.max_body)
        try:
            checked = await self._validate(request)
        except BaseException:
            release_slot()
            raise
        work = self._respond(checked, scope)
        return await self._shielded_tasks.run_to_completion(work, release_slot)

    async def _check_disk_reserve(self, request: web.Request, scope: IdempotencyScope | None) -> None:
        """Raises `InsufficientStorage` if the request would store something in the disk's reserve."""
        route, disk = self._route, self._services.disk
        if disk is not None and route.leaves_disk_reserve and (route.writes or scope is not None):
            await disk.check_reserve(min(request.content_length or 0, route.max_body))

    async def _respond(self, checked: CheckedRequest[Any, Any], scope: IdempotencyScope | None) -> web.StreamResponse:
        """Returns the response as soon as there is memory for it. Only reads wait for memory, so that a client that
        does not read its lists can still hang up its calls."""
        route, owner = self._route, checked.organization_id
        if route.writes or isinstance(route.response, FileResponse):
            reservation = self._response_memory.reserve_now(owner, 0)
        else:
            items = checked.query.limit if isinstance(route.response, PageResponse) else 1
            reservation = await self._response_memory.reserve(owner, min(items * MIB, serialization.MAX_PAGE))
        try:
            response = await self._run(checked, scope)
        except BaseException:
            reservation.release()
            raise
        if isinstance(response, web.StreamResponse):
            reservation.release()
            return response
        return streamed_json_response(route.status, response, reservation)

    async def _run(
        self, checked: CheckedRequest[Any, Any], scope: IdempotencyScope | None
    ) -> bytes | list[bytes] | web.StreamResponse:
        """The operation. With a `scope`, its transaction stores the response for idempotency, or finds the one that a
        request of the same scope has stored since the first look: one that was cut off, or that another server
        handled."""
        route, secrets = self._route, self._services.secrets

        def find_stored(conn: sa.Connection) -> StoredResponse | None:
            return None if scope is None else idempotency.find(conn, secrets, scope, utc_now())

        def serialize(context: RequestContext[Any, Any], result: Any) -> _Response:
            body = serialization.serialized(route, context, result)
            if scope is not None and isinstance(body, bytes):
                idempotency.store(context.conn, secrets, scope, StoredResponse(route.status, body))
            return body

        response = await self._operation.run(
            checked,
            serialize,
            find_earlier=find_stored,
            writes=scope is not None,
            more_quotas=() if scope is None else (quotas.IDEMPOTENT_RESPONSES,),
        )
        return replayed_response(response) if isinstance(response, StoredResponse) else response

    async def _validate(self, request: web.Request) -> CheckedRequest[Any, Any]:
        route = self._route
        principal = request.get(PRINCIPAL)
        has_session = principal is not None and principal.session is not None
        query = check_query(route.query, request, ignored=(ORGANIZATION_PARAMETER,) if has_session else ())
        body = None if route.body is None else await self._validate_body(request, route.body)
        item = item_id(request, route.item)  # last: a malformed id gets the response of an unknown one
        number = item_number(request, route.numbered)
        owner = principal.organization_id if principal is not None and request[KEY_REQUIRED] else None
        return CheckedRequest(self._services, request, owner, item, number, body, query)

    async def _validate_body(self, request: web.Request, model: type[BaseModel]) -> BaseModel:
        takes_forms = issubclass(model, FileUpload)
        body = await read_body(request, self._route.max_body, form=takes_forms)
        try:
            if issubclass(model, FileUpload) and is_form(request):
                return await asyncio.to_thread(self._check_form, model, request.headers["Content-Type"], body)
            if len(body) > LARGE_BODY:
                return await asyncio.to_thread(check_body, model, body, self._body_context)
            return check_body(model, body, self._body_context)
        except Invalid as error:
            await self._audit_malformed(request, body, error)
            raise

    def _check_form(self, model: type[FileUpload], content_type: str, body: bytes) -> FileUpload:
        form = read_form(content_type, body, model.types_of_suffixes)
        return check_body(model, form.fields, replace(self._body_context, file=form.content))

    async def _audit_malformed(self, request: web.Request, body: bytes, error: Invalid) -> None:
        if self._route.audit_malformed is not None:
            write = await asyncio.to_thread(self._route.audit_malformed, request, body, error)
            principal = request.get(PRINCIPAL)
            owner = None if principal is None else principal.organization_id
            await self._operation.write_audit([] if write is None else [write], owner)


def json_response(status: int, body: bytes) -> web.Response:
    """Returns a response with a JSON body."""
    return web.Response(body=body, status=status, content_type=JSON, charset="utf-8")


def streamed_json_response(
    status: int, body: bytes | list[bytes], reservation: MemoryReservation
) -> web.StreamResponse:
    """Returns a response with this JSON body; a large body is streamed, and released from memory as it is sent."""
    parts = [body] if isinstance(body, bytes) else body
    size = sum(map(len, parts))
    if size <= CHUNK:
        reservation.release()
        return json_response(status, body if isinstance(body, bytes) else b"".join(body))
    reservation.resize(size)
    return StreamedJsonResponse(status, parts, reservation)
