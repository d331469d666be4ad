"""Handlers of `/calls/{id}/webhook-deliveries`: list and repeat the attempts of a call's webhook."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from api.routing.route import DataResponse, NoQuery, PageResponse, RequestContext, Route, ViewPage
from api.schemas.base import Id, IdView, Instant, NoBody, Paging, View
from config.errors import Conflict, FieldProblem, Invalid, NotFound
from storage.calls import calls
from storage.tables.agent_fields import WebhookEvent
from storage.webhooks import deliveries
from storage.webhooks.deliveries import Delivery, DeliveryAttempt, DeliveryStatus


class WebhookAttempt(View):
    """A delivery attempt of an event of a call, made or scheduled."""

    id: IdView
    event: WebhookEvent = Field(description="The event; call.turn is never in the list")
    endpoint_id: IdView | None = Field(description="Webhook endpoint that it is sent to; null: the agent's URL")
    delivery_id: IdView = Field(description="Id of the event, as in the header X-Service-Delivery")
    attempt: int = Field(description="Number of the attempt, as in the header X-Service-Attempt")
    status: DeliveryStatus = Field(description="pending: not sent yet; succeeded: the receiver responded with 200")
    response_status: int | None = Field(description="The receiver's HTTP status; null without a response")
    response_body: str | None = Field(
        description="The beginning of the receiver's response, at most 4096 bytes of UTF-8"
    )
    error: str | None = Field(description="Why there was no response")
    duration_ms: int | None = Field(description="Time from sending to the response or the failure, ms")
    manual: bool = Field(description="True if it was requested by POST; it is not retried")
    created_at: Instant = Field(description="When the attempt was sent; while it is pending, when it was scheduled")
    next_attempt_at: Instant | None = Field(
        description="When the next attempt is or was due, null if there is none; of a pending attempt, when it is due"
    )


def page(context: RequestContext[None, Paging]) -> ViewPage:
    """GET /calls/{id}/webhook-deliveries"""
    query, call = context.query, _call(context)
    found = deliveries.page(context.conn, call.id, limit=query.limit, offset=query.offset)
    return ViewPage((attempt_view(each.attempt, each.delivery) for each in found.items), found.total)


class SendAgain(NoBody):
    """Which event is sent again."""

    delivery_id: Id | None = Field(
        None, description="Id of an event in the list of attempts; null: call.completed to the agent's URL"
    )


def send_again(context: RequestContext[SendAgain, NoQuery]) -> WebhookAttempt:
    """POST /calls/{id}/webhook-deliveries: stores a pending attempt for the webhook sender."""
    call, services = _call(context), context.services
    if call.ended_at is None:
        raise Conflict("The call has not ended")
    wanted = context.body.delivery_id
    if wanted is None:
        delivery = deliveries.delivery_of_call(context.conn, call.id)
    else:
        events = deliveries.of_call(context.conn, call.id)
        delivery = next((each for each in events if each.id == str(wanted)), None)
        if delivery is None:
            raise Invalid([FieldProblem("deliveryId", "The call has no such event")])
    if delivery is None:
        reason = "its agent had no postCallWebhookUrl when it ended, or it is not kept any more"
        raise Conflict(f"The call has no event to send: {reason}")
    scheduled = 1 + len(services.settings.webhooks.retry_delays_s)
    attempt = deliveries.add_manual_attempt(context.conn, delivery, scheduled=scheduled)
    context.after_commit.append(services.webhook_queued)
    return attempt_view(attempt, delivery)


def attempt_view(attempt: DeliveryAttempt, delivery: Delivery) -> WebhookAttempt:
    """The view of an attempt to send an event."""
    return WebhookAttempt.model_validate(
        {**attempt.__dict__, "event": delivery.event, "endpoint_id": delivery.endpoint_id}
    )


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
        role="viewer",
        tag="Calls",
        summary="List the delivery attempts of a call's events, newest first",
        description="An attempt is in the list as soon as it is scheduled. The first is made when the event happens; "
        "after a failure the next one is scheduled, after a success none. A call without a webhook has no attempts.",
        handler=page,
        query=Paging,
        item="Call",
        response=PageResponse(WebhookAttempt),
    ),
    Route(
        method="POST",
        path="/calls/{id}/webhook-deliveries",
        name="sendWebhookAgain",
        action="call.send-webhook",
        role="owner",
        tag="Calls",
        summary="Send a call's webhook again",
        description="Returns the new, pending attempt, which is sent at once: the same bytes of call.completed to the "
        "postCallWebhookUrl that the agent had at the end of the call, signed with the secret of that time; with "
        "`deliveryId` those of another event or receiver. If it succeeds, no scheduled attempt follows; if "
        "it fails, the schedule stays. 409 before the end of the call, and for a call without this event.",
        handler=send_again,
        body=SendAgain,
        status=201,
        item="Call",
        response=DataResponse(WebhookAttempt),
        errors=(409,),
    ),
)
