"""Every operation below `/v1`."""

from __future__ import annotations

from functools import cache

from api.resources import (
    agent_versions,
    agents,
    api_keys,
    background_sounds,
    call_export,
    call_sip_trace,
    call_takeovers,
    call_timeline,
    call_waveform,
    call_whispers,
    calls,
    capacity,
    events,
    knowledge,
    organization,
    phone_numbers,
    statistics,
    tools,
    voices_and_models,
    web_calls,
    webhook_deliveries,
    webhook_endpoints,
)
from api.routing.openapi import openapi_document
from api.routing.route import JsonResponse, NoQuery, RequestContext, Route


def get_openapi(_context: RequestContext[None, NoQuery]) -> bytes:
    """GET /openapi.json"""
    return openapi_json()


@cache
def openapi_json() -> bytes:
    """The OpenAPI document of these routes, as JSON."""
    return openapi_document(ROUTES)


ROUTES: tuple[Route, ...] = (
    *agents.ROUTES,
    *agent_versions.ROUTES,
    *phone_numbers.ROUTES,
    *tools.ROUTES,
    *knowledge.ROUTES,
    *calls.ROUTES,
    *web_calls.ROUTES,
    *call_export.ROUTES,
    *call_timeline.ROUTES,
    *call_waveform.ROUTES,
    *call_sip_trace.ROUTES,
    *statistics.ROUTES,
    *events.ROUTES,
    *capacity.ROUTES,
    *call_whispers.ROUTES,
    *call_takeovers.ROUTES,
    *api_keys.ROUTES,
    *organization.ROUTES,
    *webhook_deliveries.ROUTES,
    *webhook_endpoints.ROUTES,
    *voices_and_models.ROUTES,
    *background_sounds.ROUTES,
    Route(
        method="GET",
        path="/openapi.json",
        name="getOpenApi",
        role="viewer",
        tag="Description",
        summary="Get this OpenAPI document",
        handler=get_openapi,
        access="open",
        response=JsonResponse(),
    ),
)
