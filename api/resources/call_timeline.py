"""`/calls/{id}/timeline`"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from api.routing.route import DataResponse, NoQuery, RequestContext, Route
from api.schemas.base import IdView, Instant, View
from config.errors import NotFound
from storage.calls import calls
from storage.calls.calls import Status

NOT_STORED_ONCE: Final[Mapping[str, Any]] = {
    "eot_probability": None,
    "interrupted_ms": None,
    "played_ms": 0,
    "speculated": False,
    "tools": [],
    "sources": [],
}
"""Fields that the turns of older calls lack."""


class ToolTimes(View):
    """A tool call. Times are ms since the call's startedAt."""

    name: str = Field(description="As the language model knows it")
    start_ms: int = Field(description="It was called, ms")
    end_ms: int = Field(description="Its result was there, ms")
    ok: bool = Field(description="It did what it was asked")


class TurnSource(View):
    """A passage that the language model got for a response, as it was then; its document may have been deleted
    since."""

    document_id: IdView
    document: str = Field(description="Name of the document")
    position: int = Field(description="The passage's number in the document, from 0 on")
    score: Annotated[float, Field(ge=0, le=1)] = Field(description="How well it answers, as in searches")


class TurnTimes(View):
    """A turn of the caller and the agent's response. Times are ms since the call's startedAt, null when unknown."""

    turn: int = Field(
        description="0 is the agent's opening message; the caller's turns count from 1. An entry with endedBy silence "
        "is no turn of the caller and has the number of the entry before it"
    )
    ended_by: Literal["model", "delay", "fallback", "digits", "silence"] | None = Field(
        description="What ended the turn: the end-of-turn model, turnEndpointDelay alone, fallbackSilenceMs, or "
        "dialled digits; silence: nobody spoke for customerSilenceMs, and the agent asks whether the caller is still "
        "there; null for the opening message"
    )
    eot_probability: float | None = Field(description="What the end-of-turn model said, 0..1, if it ended the turn")
    speech_start_ms: int | None = Field(description="The caller began to speak, ms")
    speech_end_ms: int | None = Field(description="The caller's last speech of the turn ended, ms")
    turn_end_ms: int | None = Field(description="The turn was taken to be over, ms")
    text_ready_ms: int | None = Field(description="The final text of the turn was there, ms")
    first_token_ms: int | None = Field(
        description="The language model began to answer, ms; null for a greeting, which needs none"
    )
    speech_ready_ms: int | None = Field(description="The first sentence of the answer was there as sound, ms")
    agent_start_ms: int | None = Field(description="The first sound of the answer left, ms")
    interrupted_ms: int | None = Field(description="The answer fell silent for the caller who cut it, ms")
    agent_end_ms: int | None = Field(description="The last sound of the answer left, or the answer was cut, ms")
    response_gap_ms: int | None = Field(
        description="From speechEndMs to agentStartMs, ms; null for a turn that digits ended"
    )
    played_ms: int = Field(description="How much of the answer's sound left, ms")
    interrupted: bool = Field(description="The caller cut the answer")
    speculated: bool = Field(
        description="The answer was begun before the turn was over, in the silence after speculativeSilenceMs"
    )
    tools: list[ToolTimes] = Field(description="The tools that were used for the answer, in order of their ends")
    sources: list[TurnSource] = Field(
        description="The passages of the agent's documents that the language model had for the answer: what "
        "`search_knowledge` found, and what was found while the caller spoke and told the model unasked"
    )

    @model_validator(mode="before")
    @classmethod
    def _of_older_calls(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        return {**NOT_STORED_ONCE, **stored}


class Timeline(View):
    """The turns of a call, oldest first; several can have the same number."""

    call_id: IdView
    status: Status
    started_at: Instant | None = Field(description="The answer, from which the times count; null without one")
    turns: list[TurnTimes]


def get(context: RequestContext[None, NoQuery]) -> Timeline:
    """GET /calls/{id}/timeline"""
    call = calls.get(context.conn, context.owner, context.item)
    if call is None:
        raise NotFound("Call not found")
    return timeline_view(call)


def timeline_view(call: calls.Call) -> Timeline:
    """The view of a call's timeline."""
    turns = [TurnTimes.model_validate(each) for each in call.timeline]
    return Timeline(call_id=call.id, status=call.status, started_at=call.started_at, turns=turns)


ROUTES = (
    Route(
        method="GET",
        path="/calls/{id}/timeline",
        name="getCallTimeline",
        tag="Calls",
        summary="Get the timings of a call's turns",
        description="Where each answer took its time. A live call shows what is known so far. When the caller goes on "
        "before the answer is heard, the turn goes on: its end and what follows move, its beginning stays. A greeting "
        "that had to wait for the caller was prepared in turn 0 and is heard as the answer to turn 1.",
        handler=get,
        item="Call",
        response=DataResponse(Timeline),
    ),
)
