"""Runs a route: check, prepare, transaction with the handler in it, response."""

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

from api.auth.authentication import CALLER, OPENED
from api.http.response_streaming import PIECE, AnswerRoom, PiecesResponse, Room
from api.http.shielded_tasks import Works
from api.routing.route import All, Asked, Deleted, Document, Exchange, File, Listed, Many, One, Results, Route, as_json
from api.routing.validation import SMALL_BODY, check_body, check_query, item_id, read_body
from api.schemas.base import BodyContext, Paging
from api.schemas.bounds import MIB
from api.services import Services
from api.serving.idempotency import Repeats, key_of, replay
from api.serving.upload_slots import Uploads
from config.clock import utc_now
from config.errors import Invalid
from storage.accounts import idempotency, quotas
from storage.accounts.idempotency import Answer, Scope

JSON: Final = "application/json"
LARGE_BODY: Final = 64 * 1024
"""A body of more bytes is checked on another thread, so that the event loop does not stand still."""
MOST_PAGE: Final = 4 * MIB
"""Bytes of a page; the items that there is no room for come with the next one."""
PAGE_ENDS: Final = 256
"""Bytes of a page that are no items."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = structlog.get_logger()


def endpoint(
    route: Route, services: Services, repeats: Repeats, works: Works, uploads: Uploads, answers: AnswerRoom
) -> Handler:
    """The aiohttp handler of a route."""
    run = _Runner(route, services, works, uploads, answers)

    async def handle(request: web.Request) -> web.StreamResponse:
        caller = request.get(CALLER)
        key = key_of(request) if route.method == "POST" and caller is not None else None
        if caller is None or key is None:
            return await run(request)
        scope = Scope(caller.organization_id, request.method, request.path, key)
        return await repeats.once(scope, request, lambda again: run(again, scope))

    return handle


class _Runner:
    """One route at work."""

    def __init__(self, route: Route, services: Services, works: Works, uploads: Uploads, answers: AnswerRoom) -> None:
        self._route = route
        self._services = services
        self._works = works
        self._uploads = uploads
        self._answers = answers
        self._context = BodyContext(allow_http_webhooks=services.settings.webhooks.allow_http)

    async def __call__(self, request: web.Request, scope: Scope | None = None) -> web.StreamResponse:
        """The response; with a `scope`, stored under it in the transaction of the work."""
        await self._check_disk(request, scope)
        if self._route.max_body > SMALL_BODY:
            return await self._upload(request, scope)
        work = self._done(await self._checked(request), scope)
        only_reads = not self._route.writes and scope is None and self._route.prepare is None
        return await (work if only_reads else self._works.whole(work))

    async def _upload(self, request: web.Request, scope: Scope | None) -> web.StreamResponse:
        """The same for a body that may be large: its place is taken until the work on it has ended."""
        leave = await self._uploads.place(request, self._route.max_body)
        try:
            asked = await self._checked(request)
        except BaseException:
            leave()
            raise
        return await self._works.whole(self._done(asked, scope), leave)

    async def _check_disk(self, request: web.Request, scope: Scope | None) -> None:
        """Whether what this is going to store leaves the disk's reserve untouched. Raises `InsufficientStorage`."""
        route, disk = self._route, self._services.disk
        if disk is not None and route.leaves_reserve and (route.writes or scope is not None):
            await disk.check_reserve(min(request.content_length or 0, route.max_body))

    async def _done(self, asked: Asked[Any, Any], scope: Scope | None) -> web.StreamResponse:
        """The response, once there is room for it. Only what reads waits for that: a client that takes nothing of its
        lists can still hang up its calls."""
        route, owner = self._route, asked.organization_id
        if route.writes or isinstance(route.answer, File):
            room = self._answers.take(owner, 0)
        else:
            items = asked.query.limit if isinstance(route.answer, Many) else 1
            room = await self._answers.wait_for(owner, min(items * MIB, MOST_PAGE))
        try:
            answer = await self._worked(asked, scope)
        except BaseException:
            room.free()
            raise
        if isinstance(answer, web.StreamResponse):
            room.free()
            return answer
        return json_answer(route.status, answer, room)

    async def _worked(self, asked: Asked[Any, Any], scope: Scope | None) -> bytes | list[bytes] | web.StreamResponse:
        """Prepare, transaction, and what follows it: all of it or, when the transaction fails, nothing."""
        route, database, secrets = self._route, self._services.database, self._services.secrets
        prepared = None if route.prepare is None else await self._prepared(asked)
        limits = self._services.settings.quotas.model_dump()
        kept_to = route.quotas if scope is None else (*route.quotas, quotas.ANSWERS)
        follow_ups: list[Callable[[], None]] = []
        notes: list[Callable[[sa.Connection], None]] = []

        def work(conn: sa.Connection) -> bytes | list[bytes] | web.StreamResponse | Answer:
            # One that was cut off, or came to another server, may have been stored since the first look.
            kept = None if scope is None else idempotency.find(conn, secrets, scope, utc_now())
            if kept is not None:
                return kept
            before = quotas.usage(conn, asked.owner, limits) if kept_to else {}
            exchange = Exchange(
                **asked.__dict__, conn=conn, prepared=prepared, after_commit=follow_ups, after_refusal=notes
            )
            answer = _answer(route, exchange, route.handler(exchange))
            if scope is not None and isinstance(answer, bytes):
                idempotency.keep(conn, secrets, scope, Answer(route.status, answer))
            if kept_to:
                quotas.check(before, quotas.usage(conn, asked.owner, limits), kept_to)
            return answer

        try:
            transaction = database.write if route.writes or scope is not None else database.read
            answer = await transaction(work, owner=asked.organization_id)
        except Exception:
            await self._undo(asked, prepared)
            await self._note_refusal(notes, asked.organization_id)
            raise
        if isinstance(answer, Answer):
            await self._undo(asked, prepared)
            return replay(answer)
        self._follow_up(follow_ups)
        return answer

    async def _prepared(self, asked: Asked[Any, Any]) -> Any:
        """What the route prepares, unless a quota is used up already."""
        route, limits = self._route, self._services.settings.quotas.model_dump()
        if route.quotas:
            look = partial(quotas.usage, organization_id=asked.owner, defaults=limits)
            quotas.check_room(await self._services.database.read(look, owner=asked.owner), route.quotas)
        assert route.prepare is not None
        return await route.prepare(asked)

    async def _undo(self, asked: Asked[Any, Any], prepared: Any) -> None:
        if self._route.undo is None:
            return
        try:
            await self._route.undo(asked, prepared)
        except Exception:  # the client is told what came of the request, not this
            log.exception("api.undo_failed", route=self._route.name)

    async def _note_refusal(self, notes: Sequence[Callable[[sa.Connection], None]], owner: str | None) -> None:
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

    async def _checked(self, request: web.Request) -> Asked[Any, Any]:
        route = self._route
        query = check_query(route.query, request)
        body = None if route.body is None else await self._body(request, route.body)
        # Not earlier: an id that is none is answered like one that names nothing.
        item = item_id(request, route.item)
        caller = request.get(CALLER)
        owner = None if caller is None or request[OPENED] else caller.organization_id
        return Asked(self._services, request, owner, item, body, query)

    async def _body(self, request: web.Request, model: type[BaseModel]) -> BaseModel:
        given = await read_body(request, self._route.max_body)
        try:
            if len(given) > LARGE_BODY:
                return await asyncio.to_thread(check_body, model, given, self._context)
            return check_body(model, given, self._context)
        except Invalid as error:
            await self._note_malformed(request, given, error)
            raise

    async def _note_malformed(self, request: web.Request, given: bytes, error: Invalid) -> None:
        if self._route.note_malformed is not None:
            note = await asyncio.to_thread(self._route.note_malformed, request, given, error)
            caller = request.get(CALLER)
            owner = None if caller is None else caller.organization_id
            await self._note_refusal([] if note is None else [note], owner)


def json_response(status: int, body: bytes) -> web.Response:
    """JSON bytes as a response."""
    return web.Response(body=body, status=status, content_type=JSON, charset="utf-8")


def json_answer(status: int, body: bytes | list[bytes], room: Room) -> web.StreamResponse:
    """JSON bytes, or the parts that they come in, as a response; a large one goes out in pieces."""
    parts = [body] if isinstance(body, bytes) else body
    size = sum(map(len, parts))
    if size <= PIECE:
        room.free()
        return json_response(status, body if isinstance(body, bytes) else b"".join(body))
    room.becomes(size)
    return PiecesResponse(status, parts, room)


def _answer(route: Route, exchange: Exchange[Any, Any], result: Any) -> bytes | list[bytes] | web.StreamResponse:
    """What the handler returned, in the envelope of the route; a page in parts."""
    match route.answer:
        case One(or_text=True) if isinstance(result, web.StreamResponse):
            return result
        case One():
            return b'{"data":' + as_json(result) + b"}"
        case Many():
            return _page(result, exchange.query)
        case All():
            return b'{"data":[' + b",".join(map(as_json, result)) + b"]}"
        case Results():
            return b'{"results":[' + b",".join(map(as_json, result)) + b"]}"
        case Deleted():
            return to_json({"data": {"id": exchange.item, "deleted": True}})
        case Document():
            document: bytes = result
            return document
        case File():
            response: web.StreamResponse = result
            return response


def _page(listed: Listed, paging: Paging) -> list[bytes]:
    """As many items as there is room for, and one at least. They may still have to be read: no further one is."""
    parts = [b'{"data":[']
    room = MOST_PAGE - PAGE_ENDS
    for item in listed.items:
        part = item if isinstance(item, bytes) else as_json(item)
        room -= len(part) + 1
        if room < 0 and len(parts) > 1:
            break
        parts += (b",", part) if len(parts) > 1 else (part,)
    pagination = to_json({"total": listed.total, "limit": paging.limit, "offset": paging.offset})
    return [*parts, b'],"pagination":' + pagination + b"}"]
