"""Handler of `/capacity`."""

from __future__ import annotations

from api.routing.route import DataResponse, NoQuery, RequestContext, Route
from api.schemas.capacity import Capacity


def get(context: RequestContext[None, NoQuery]) -> Capacity:
    """GET /capacity"""
    return Capacity.of(context.services.capacity(context.conn, context.owner))


ROUTES = (
    Route(
        method="GET",
        path="/capacity",
        name="getCapacity",
        role="viewer",
        tag="Live",
        summary="Get how many calls there are and may be, how busy the models are, and what is wrong",
        handler=get,
        response=DataResponse(Capacity),
    ),
)
