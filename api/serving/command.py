"""Runs operations of the API for the operator's commands: the same validation, handlers and quotas, without HTTP."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from api.routes import ROUTES
from api.routing.route import CheckedRequest
from api.routing.validation import check_body, check_parameters
from api.schemas.base import BodyContext
from api.services import Services
from api.serving.operation import Operation
from api.serving.serialization import serialized
from config.errors import NotFound

_ROUTES: Final = {route.name: route for route in ROUTES}


async def run_command(
    services: Services,
    organization_id: str,
    name: str,
    *,
    item: str = "",
    number: int = 0,
    body: bytes = b"{}",
    query: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run the operation `name` (its `operationId`) for an organization; returns the JSON of the response. `item` is the
    id in the path, `number` the number after it. Raises what a request would be rejected with, and `NotFound` for the
    name of no operation that returns JSON."""
    route = _ROUTES.get(name)
    if route is None:
        raise NotFound(f"there is no operation {name}")
    context = BodyContext.of(services.settings)
    checked = CheckedRequest(
        services=services,
        http=None,
        organization_id=organization_id,
        item=item,
        number=number,
        body=None if route.body is None else check_body(route.body, body, context),
        query=check_parameters(route.query, query or {}),
    )
    response = await Operation(route, services).run(checked, lambda context, result: serialized(route, context, result))
    if isinstance(response, web.StreamResponse):
        raise NotFound(f"the operation {name} returns no JSON")
    document: dict[str, Any] = json.loads(response if isinstance(response, bytes) else b"".join(response))
    return document
