"""Handler of `/calls/{id}/whisper`: notes to the agent of a live call."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from api.resources.accounts.author import author_of
from api.routing.route import CheckedRequest, DataResponse, NoQuery, RequestContext, Route
from api.schemas.base import Body, IdView, Instant, View
from config.clock import utc_now
from config.errors import NotFound
from storage.calls import calls

MAX_CONTENT: Final = 2000
"""Characters of a note."""


class WhisperRequest(Body):
    """A note to the agent of a call."""

    content: Annotated[str, Field(min_length=1, max_length=MAX_CONTENT)] = Field(
        description="What the agent should know or do"
    )


class Whisper(View):
    """A note that the agent has from its next response on."""

    call_id: IdView
    content: str
    author: str = Field(description="Name of the API key, or its prefix; or of the user")
    created_at: Instant


async def give_note(checked: CheckedRequest[WhisperRequest, NoQuery]) -> str:
    """Give the agent the note, before the transaction of POST /calls/{id}/whisper. Returns its author."""
    owner, services = checked.owner, checked.services
    stored = await services.database.read(lambda conn: calls.get(conn, owner, checked.item), owner=owner)
    if stored is None:
        raise NotFound("Call not found")
    author = author_of(checked)
    services.whisper(stored.id, checked.body.content, author)
    return author


def whisper(context: RequestContext[WhisperRequest, NoQuery]) -> Whisper:
    """POST /calls/{id}/whisper"""
    author: str = context.prepared
    return Whisper(call_id=context.item, content=context.body.content, author=author, created_at=utc_now())


ROUTES = (
    Route(
        method="POST",
        path="/calls/{id}/whisper",
        name="whisperToAgent",
        action="whisper",
        role="editor",
        tag="Calls",
        summary="Give the agent of a call in progress a note that the caller does not hear",
        description=(
            "The language model has the note from its next response on, and is told not to mention it; what it makes "
            "of it depends on the model, and the built-in rules ignore it. The note is not spoken, not in the "
            "transcript and not in the summary; the timeline and the audit log have it. 409: the call is not in "
            "progress, or not with the agent any more."
        ),
        prepare=give_note,
        handler=whisper,
        uses_disk_reserve=True,
        body=WhisperRequest,
        example={"content": "Offer her the berth at the south pier at half price."},
        item="Call",
        response=DataResponse(Whisper),
        status=201,
        errors=(409,),
    ),
)
