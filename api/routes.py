"""Every operation below `/v1`."""

from __future__ import annotations

from functools import cache

from api import (
    agents,
    background_sounds,
    call_export,
    call_sip,
    calls,
    choices,
    knowledge,
    phone_numbers,
    timeline,
    tools,
    webhook_deliveries,
)
from api.openapi import describe
from api.route import Document, Exchange, NoQuery, Route


def openapi(_exchange: Exchange[None, NoQuery]) -> bytes:
    """GET /openapi.json"""
    return description()


@cache
def description() -> bytes:
    """The OpenAPI document as JSON."""
    return describe(ROUTES)


ROUTES: tuple[Route, ...] = (
    *agents.ROUTES,
    *phone_numbers.ROUTES,
    *tools.ROUTES,
    *knowledge.ROUTES,
    *calls.ROUTES,
    *call_export.ROUTES,
    *timeline.ROUTES,
    *call_sip.ROUTES,
    *webhook_deliveries.ROUTES,
    *choices.ROUTES,
    *background_sounds.ROUTES,
    Route(
        method="GET",
        path="/openapi.json",
        name="getOpenApi",
        tag="Description",
        summary="This description",
        handler=openapi,
        access="open",
        answer=Document(),
    ),
)
