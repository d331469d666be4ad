"""Runs a route: check, prepare, transaction with the handler in it, response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import sqlalchemy as sa
from aiohttp import web
from pydantic import BaseModel
from pydantic_core import to_json

from api.fields import BodyContext, Paging
from api.gate import CALLER, OPENED
from api.idempotency import Repeats, key_of
from api.route import All, Asked, Deleted, Document, Exchange, File, Listed, Many, One, Results, Route, as_json
from api.services import Services
from api.validation import check_body, check_query, item_id, read_body
from storage import idempotent_answers
from storage.idempotent_answers import Answer, Scope

JSON: Final = "application/json"
LARGE_BODY: Final = 64 * 1024
"""A body of more bytes is checked on another thread, so that the event loop does not stand still."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def endpoint(route: Route, services: Services, repeats: Repeats) -> Handler:
    """The aiohttp handler of a route."""
    run = _Runner(route, services)

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

    def __init__(self, route: Route, services: Services) -> None:
        self._route = route
        self._services = services
        self._context = BodyContext(allow_http_webhooks=services.settings.webhooks.allow_http)
        self._transaction = services.database.write if route.writes else services.database.read

    async def __call__(self, request: web.Request, scope: Scope | None = None) -> web.StreamResponse:
        """The response; with a `scope`, stored under it in the transaction of the work."""
        route = self._route
        asked = await self._checked(request)
        prepared = None if route.prepare is None else await route.prepare(asked)
        database = self._services.database
        transaction = database.write if route.writes or scope is not None else database.read
        follow_ups: list[Callable[[], None]] = []

        def work(conn: sa.Connection) -> bytes | web.StreamResponse:
            exchange = Exchange(**asked.__dict__, conn=conn, prepared=prepared, after_commit=follow_ups)
            answer = _answer(route, exchange, route.handler(exchange))
            if scope is not None and isinstance(answer, bytes):
                idempotent_answers.keep(conn, asked.services.secrets, scope, Answer(route.status, answer))
            return answer

        try:
            answer = await transaction(work)
        except Exception:
            if route.undo is not None:
                await route.undo(asked, prepared)
            raise
        for follow_up in follow_ups:
            follow_up()
        return json_response(route.status, answer) if isinstance(answer, bytes) else answer

    async def _checked(self, request: web.Request) -> Asked[Any, Any]:
        route = self._route
        item = item_id(request, route.item)
        query = check_query(route.query, request)
        body = None if route.body is None else await self._body(request, route.body)
        caller = request.get(CALLER)
        owner = None if caller is None or request[OPENED] else caller.organization_id
        return Asked(self._services, request, owner, item, body, query)

    async def _body(self, request: web.Request, model: type[BaseModel]) -> BaseModel:
        given = await read_body(request, self._route.max_body)
        if len(given) > LARGE_BODY:
            return await asyncio.to_thread(check_body, model, given, self._context)
        return check_body(model, given, self._context)


def json_response(status: int, body: bytes) -> web.Response:
    """JSON bytes as a response."""
    return web.Response(body=body, status=status, content_type=JSON, charset="utf-8")


def _answer(route: Route, exchange: Exchange[Any, Any], result: Any) -> bytes | web.StreamResponse:
    """What the handler returned, in the envelope of the route."""
    match route.answer:
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


def _page(listed: Listed, paging: Paging) -> bytes:
    items = b",".join(each if isinstance(each, bytes) else as_json(each) for each in listed.items)
    pagination = to_json({"total": listed.total, "limit": paging.limit, "offset": paging.offset})
    return b'{"data":[' + items + b'],"pagination":' + pagination + b"}"
