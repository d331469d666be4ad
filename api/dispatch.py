"""Runs a route: check, transaction, handler, response."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from pydantic_core import to_json

from api.fields import BodyContext, Paging
from api.gate import CALLER
from api.route import Deleted, Document, Exchange, File, Listed, Many, One, Route
from api.services import Services
from api.validation import check_body, check_query, item_id, read_body

JSON = "application/json"


def endpoint(route: Route, services: Services) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The aiohttp handler of a route."""
    context = BodyContext(allow_http_webhooks=services.settings.webhooks.allow_http)
    transaction = services.database.write if route.writes else services.database.read

    async def handle(request: web.Request) -> web.StreamResponse:
        item = item_id(request, route.item)
        query = check_query(route.query, request)
        body = None
        if route.body is not None:
            body = check_body(route.body, await read_body(request, route.max_body), context)
        caller = request.get(CALLER)
        owner = None if caller is None else caller.organization_id
        async with transaction() as conn:
            exchange = Exchange(services, request, conn, owner, item, body, query)
            response = _response(route, exchange, await route.handler(exchange))
        for follow_up in exchange.after_commit:
            follow_up()
        return response

    return handle


def _response(route: Route, exchange: Exchange[Any, Any], result: Any) -> web.StreamResponse:
    """What the handler returned, in the envelope of the route."""
    match route.answer:
        case One():
            body = b'{"data":' + result.__pydantic_serializer__.to_json(result, by_alias=True) + b"}"
        case Many():
            body = _page(result, exchange.query)
        case Deleted():
            body = to_json({"data": {"id": exchange.item, "deleted": True}})
        case Document():
            body = result
        case File():
            response: web.StreamResponse = result
            return response
    return web.Response(body=body, status=route.status, content_type=JSON, charset="utf-8")


def _page(listed: Listed, paging: Paging) -> bytes:
    items = b",".join(each.__pydantic_serializer__.to_json(each, by_alias=True) for each in listed.items)
    pagination = to_json({"total": listed.total, "limit": paging.limit, "offset": paging.offset})
    return b'{"data":[' + items + b'],"pagination":' + pagination + b"}"
