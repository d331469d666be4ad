"""`/calls/{id}/webhook-deliveries`"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.routing.route import DataResponse, NoQuery, PageResponse, RequestContext, Route, ViewPage
from api.schemas.base import IdView, Instant, NoBody, Paging, View
from config.errors import Conflict, NotFound
from storage.calls import calls
from storage.webhooks import deliveries
from storage.webhooks.deliveries import DeliveryStatus


class WebhookAttempt(View):
    """A delivery attempt of a call's `call.completed` event, made or still to come."""

    id: IdView
    attempt: int = Field(description="Its number, as in the header X-Service-Attempt")
    status: DeliveryStatus = Field(description="pending until it has been made; succeeded: answered with status 200")
    response_status: int | None = Field(description="The receiver's HTTP status; null without an answer")
    response_body: str | None = Field(description="The beginning of the receiver's answer, at most 4096 bytes of UTF-8")
    error: str | None = Field(description="Why there was no answer")
    duration_ms: int | None = Field(description="From the sending to the answer or the failure, ms")
    manual: bool = Field(description="Asked for by POST; one that fails is not repeated")
    created_at: Instant = Field(description="While pending, when it was scheduled; then, when it was sent")
    next_attempt_at: Instant | None = Field(
        description="While pending, when it is due; then, when the attempt after it follows or followed, null when none"
    )


def page(context: RequestContext[None, Paging]) -> ViewPage:
    """GET /calls/{id}/webhook-deliveries"""
    query, call = context.query, _call(context)
    found = deliveries.page(context.conn, call.id, limit=query.limit, offset=query.offset)
    return ViewPage((WebhookAttempt.model_validate(each) for each in found.items), found.total)


def send_again(context: RequestContext[NoBody, NoQuery]) -> WebhookAttempt:
    """POST /calls/{id}/webhook-deliveries: stores a pending attempt, which the webhook sender makes."""
    call, services = _call(context), context.services
    if call.ended_at is None:
        raise Conflict("The call has not ended")
    delivery = deliveries.delivery_of_call(context.conn, call.id)
    if delivery is None:
        why = "its agent had no postCallWebhookUrl when it ended, or it is not kept any more"
        raise Conflict(f"The call has no event to send: {why}")
    scheduled = 1 + len(services.settings.webhooks.retry_delays_s)
    attempt = deliveries.add_manual_attempt(context.conn, delivery, scheduled=scheduled)
    context.after_commit.append(services.webhooks_waiting)
    return WebhookAttempt.model_validate(attempt)


def _call(context: RequestContext[Any, Any]) -> calls.Call:
    stored = calls.get(context.conn, context.owner, context.item)
    if stored is None:
        raise NotFound("Call not found")
    return stored


ROUTES = (
    Route(
        method="GET",
        path="/calls/{id}/webhook-deliveries",
        name="listWebhookDeliveries",
        tag="Calls",
        summary="List the attempts at sending a call's webhook, newest first",
        description="An attempt is listed from the moment it is scheduled. The first is made when the call ends; after "
        "a failure the next one is scheduled, after a success none. A call without an event has none.",
        handler=page,
        query=Paging,
        item="Call",
        response=PageResponse(WebhookAttempt),
    ),
    Route(
        method="POST",
        path="/calls/{id}/webhook-deliveries",
        name="sendWebhookAgain",
        tag="Calls",
        summary="Send a call's webhook again",
        description="Answers with the new, pending attempt, which is made at once: the same bytes to the address that "
        "the agent had when the call ended, signed with the secret of then. Its success ends the schedule; its failure "
        "changes nothing. 409 while the call goes on, and for a call without an event.",
        handler=send_again,
        body=NoBody,
        status=201,
        item="Call",
        response=DataResponse(WebhookAttempt),
        errors=(409,),
    ),
)
