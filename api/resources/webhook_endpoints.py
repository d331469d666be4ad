"""Handlers of `/webhook-endpoints`."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from api.routing.route import (
    CheckedRequest,
    DataResponse,
    DeletedResponse,
    NoQuery,
    PageResponse,
    RequestContext,
    Route,
    ViewPage,
)
from api.schemas.base import Paging
from api.schemas.webhook_endpoints import WebhookEndpoint, WebhookEndpointCreate, WebhookEndpointUpdate
from config.errors import NotFound, QuotaExceeded
from storage.tables.webhooks import WebhookEndpointFields
from storage.webhooks import endpoints

DELIVERIES_PER_TRANSACTION: Final = 200


def create(context: RequestContext[WebhookEndpointCreate, NoQuery]) -> WebhookEndpoint:
    """POST /webhook-endpoints"""
    conn, owner, services = context.conn, context.owner, context.services
    used, allowed = endpoints.count(conn, owner), services.settings.webhooks.max_endpoints
    if used >= allowed:
        raise QuotaExceeded("webhook_endpoints", used, allowed)
    values = context.body.to_store(services.secrets, only_given=False)
    return WebhookEndpoint.of(endpoints.create(conn, owner, WebhookEndpointFields(**values)))


def page(context: RequestContext[None, Paging]) -> ViewPage:
    """GET /webhook-endpoints"""
    query = context.query
    found = endpoints.page(context.conn, context.owner, limit=query.limit, offset=query.offset)
    return ViewPage((WebhookEndpoint.of(each) for each in found.items), found.total)


def get(context: RequestContext[None, NoQuery]) -> WebhookEndpoint:
    """GET /webhook-endpoints/{id}"""
    return _view(endpoints.get(context.conn, context.owner, context.item))


def update(context: RequestContext[WebhookEndpointUpdate, NoQuery]) -> WebhookEndpoint:
    """PATCH /webhook-endpoints/{id}"""
    changes = context.body.to_store(context.services.secrets, only_given=True)
    return _view(endpoints.update(context.conn, context.owner, context.item, changes))


async def delete_deliveries(request: CheckedRequest[None, NoQuery]) -> None:
    """Disables the endpoint and deletes its deliveries, in transactions of milliseconds: calls wait for each."""
    database, owner, item = request.services.database, request.owner, request.item
    disable = partial(endpoints.update, organization_id=owner, endpoint_id=item, changes={"enabled": False})
    if await database.write(disable, owner=owner) is None:
        return
    batch = partial(
        endpoints.delete_deliveries, organization_id=owner, endpoint_id=item, limit=DELIVERIES_PER_TRANSACTION
    )
    while await database.write(batch, owner=owner, deferrable=True) == DELIVERIES_PER_TRANSACTION:
        continue


def delete(context: RequestContext[None, NoQuery]) -> None:
    """DELETE /webhook-endpoints/{id}"""
    if not endpoints.delete(context.conn, context.owner, context.item):
        raise NotFound("Webhook endpoint not found")


def _view(stored: endpoints.WebhookEndpoint | None) -> WebhookEndpoint:
    if stored is None:
        raise NotFound("Webhook endpoint not found")
    return WebhookEndpoint.of(stored)


_EXAMPLE: dict[str, Any] = {
    "url": "https://crm.example/calls",
    "secret": "a-long-random-secret",
    "events": ["call.started", "call.completed"],
    "description": "Calls in the CRM",
}
ROUTES = (
    Route(
        method="POST",
        path="/webhook-endpoints",
        name="createWebhookEndpoint",
        role="owner",
        tag="Webhooks",
        summary="Create a webhook endpoint",
        description="It gets the events of all calls of the organization that happen from now on, beside the URLs of "
        "agents, delivered in the same way. An organization may have 20 (a setting of the server): then 403.",
        handler=create,
        body=WebhookEndpointCreate,
        example=_EXAMPLE,
        response=DataResponse(WebhookEndpoint),
        status=201,
        errors=(403,),
    ),
    Route(
        method="GET",
        path="/webhook-endpoints",
        name="listWebhookEndpoints",
        role="viewer",
        tag="Webhooks",
        summary="List webhook endpoints, newest first",
        handler=page,
        query=Paging,
        response=PageResponse(WebhookEndpoint),
    ),
    Route(
        method="GET",
        path="/webhook-endpoints/{id}",
        name="getWebhookEndpoint",
        role="viewer",
        tag="Webhooks",
        summary="Get a webhook endpoint",
        handler=get,
        item="Webhook endpoint",
        response=DataResponse(WebhookEndpoint),
    ),
    Route(
        method="PATCH",
        path="/webhook-endpoints/{id}",
        name="updateWebhookEndpoint",
        role="owner",
        tag="Webhooks",
        summary="Change a webhook endpoint",
        description="An absent field stays as it is. Events that happened before are still sent to the former URL.",
        handler=update,
        body=WebhookEndpointUpdate,
        example={"enabled": False},
        item="Webhook endpoint",
        response=DataResponse(WebhookEndpoint),
    ),
    Route(
        method="DELETE",
        path="/webhook-endpoints/{id}",
        name="deleteWebhookEndpoint",
        role="owner",
        tag="Webhooks",
        summary="Delete a webhook endpoint",
        description="Its deliveries are deleted with it: what was not sent yet is not sent, and the list of a call's "
        "attempts has them no more. An error may leave it disabled.",
        prepare=delete_deliveries,
        handler=delete,
        item="Webhook endpoint",
        response=DeletedResponse(),
    ),
)
