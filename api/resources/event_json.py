"""What the events tell, as JSON: the same as the API shows it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_core import to_json

from api.resources.calls.timeline import TurnTimes
from api.routing.route import as_json
from api.schemas.base import IdView, View
from api.schemas.calls import CallListItem, TransferCall
from api.schemas.capacity import Capacity
from api.schemas.knowledge import KnowledgeDocument
from api.schemas.phone_numbers import PhoneNumber, RefusedCall
from api.schemas.transcripts import TranscriptItem
from api.services import Services
from calls.admission.refused_invites import RefusedInvite
from calls.call_record.transfer_calls import transfer_call_json
from calls.live.capacity import Capacity as CapacityNow
from calls.live.document_feed import DeletedDocument
from calls.live.events import EventName
from calls.live.live_call import CallNews, TransferNews, TurnNews
from calls.live.number_feed import DeletedNumber, NumberNews
from config.clock import utc_now
from config.signed_links import recording_path, signed_url
from storage.knowledge.documents import Document


class LiveTurn(TranscriptItem):
    """A turn that is over: its item of the transcript, and the times of the timeline's newest entry."""

    call_id: IdView
    sequence: int = Field(description="Number of the turn in its call, of either side, from 1")
    interrupted: bool = Field(description="The other side has cut it")
    turn: TurnTimes


class LiveTransfer(TransferCall):
    """A transfer, with its call."""

    call_id: IdView


class NumberDeleted(View):
    """A phone number that was deleted."""

    id: IdView
    deleted: Literal[True] = True


class DocumentDeleted(View):
    """A knowledge document that was deleted."""

    id: IdView
    deleted: Literal[True] = True


class EventJson:
    """Turns the subjects of events into JSON. Links have the origin of `[api] public_url`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def __call__(self, name: EventName, subject: object) -> bytes:
        """Returns the data of an event."""
        return as_json(self._view(subject))

    def _view(self, subject: object) -> View:
        match subject:
            case CallNews(call, details):
                recording = self._link(recording_path(call.id)) if call.recorded else None
                return CallListItem.of_row(call, recording, details)
            case TurnNews():
                return _turn(subject)
            case RefusedInvite():
                return RefusedCall.of(subject)
            case TransferNews(transfer, child):
                values = transfer_call_json(transfer, child, self._link)
                return LiveTransfer.model_validate({**values, "callId": transfer.parent_call_id})
            case NumberNews(number, status):
                return PhoneNumber.of(number, status)
            case DeletedNumber(number_id):
                return NumberDeleted.model_validate({"id": number_id})
            case Document():
                return KnowledgeDocument.of(subject)
            case DeletedDocument(document_id):
                return DocumentDeleted.model_validate({"id": document_id})
            case CapacityNow():
                return Capacity.of(subject)
            case _:
                raise TypeError(f"no event tells of a {type(subject).__name__}")

    def _link(self, path: str) -> str:
        return signed_url(self._services.secrets, self._services.settings.public_origin, path, utc_now())


def _turn(news: TurnNews) -> LiveTurn:
    turn = news.turn
    return LiveTurn.model_validate(
        {
            "call_id": news.call_id,
            "sequence": news.sequence,
            "role": turn.role,
            "content": turn.text,
            "start_ms": turn.start_ms,
            "end_ms": turn.end_ms,
            "speaker": turn.speaker,
            "interrupted": turn.interrupted,
            "turn": TurnTimes.model_validate(news.times),
        }
    )


def resync_json() -> bytes:
    """Returns the data of a `resync` event."""
    return to_json({"reason": "The events since Last-Event-ID are not known any more: load again what you show"})
