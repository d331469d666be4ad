"""Lists of webhook events in bodies."""

from __future__ import annotations

from typing import Annotated, Final, get_args

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from storage.tables.agent_fields import WebhookEvent


def _distinct_events(events: list[WebhookEvent]) -> list[WebhookEvent]:
    """Reports each event that an earlier item names."""
    repeated = [index for index, event in enumerate(events) if event in events[:index]]
    if repeated:
        error = PydanticCustomError("distinct", "Each event at most once")
        problems = [InitErrorDetails(type=error, loc=(index,), input=None) for index in repeated]
        raise ValidationError.from_exception_data("events", problems)
    return events


WebhookEvents = Annotated[
    list[WebhookEvent],
    Field(max_length=len(get_args(WebhookEvent)), json_schema_extra={"uniqueItems": True}),
    AfterValidator(_distinct_events),
]
WEBHOOK_EVENTS: Final = (
    "Events that are sent to the webhook: call.started: the call was accepted for processing, or is dialled; "
    "call.answered; call.transferred: a transfer was connected, or the peer has taken the call by REFER; call.failed: "
    "the call has ended without an answer; call.completed: the call has ended, whether answered or not; call.turn: a "
    "finished turn, sent at once and not stored"
)
