"""Every operation below `/v1`."""

from __future__ import annotations

from functools import cache

from api.resources import (
    agent_versions,
    agents,
    capacity,
    events,
    knowledge,
    nodes,
    phone_numbers,
    statistics,
    tools,
    voices_and_models,
    webhook_deliveries,
    webhook_endpoints,
)
from api.resources.accounts import api_keys, audit, organization, users
from api.resources.calls import (
    calls,
    chats,
    export,
    list_export,
    replay,
    sip_trace,
    takeovers,
    timeline,
    waveform,
    web_calls,
    whispers,
)
from api.resources.models import local_models, remote_models
from api.resources.sounds import background_sounds
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
    *list_export.ROUTES,
    *chats.ROUTES,
    *export.ROUTES,
    *timeline.ROUTES,
    *waveform.ROUTES,
    *replay.ROUTES,
    *sip_trace.ROUTES,
    *statistics.ROUTES,
    *events.ROUTES,
    *capacity.ROUTES,
    *nodes.ROUTES,
    *whispers.ROUTES,
    *takeovers.ROUTES,
    *api_keys.ROUTES,
    *users.ROUTES,
    *organization.ROUTES,
    *audit.ROUTES,
    *webhook_deliveries.ROUTES,
    *webhook_endpoints.ROUTES,
    *voices_and_models.ROUTES,
    *local_models.ROUTES,
    *remote_models.ROUTES,
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
