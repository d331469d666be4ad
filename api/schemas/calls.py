"""Calls in queries and responses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from api.schemas.base import (
    Body,
    BoundedJsonObject,
    Id,
    IdView,
    Instant,
    JsonObject,
    Paging,
    Query,
    QueryId,
    QueryInstant,
    View,
    check_bounds,
)
from api.schemas.bounds import BOUNDS, MAX_VALUES, bounds_whole
from api.schemas.patterns import CalledNumber
from calls.call_record import sip_metadata
from calls.call_record.context_variables import NAME as CONTEXT_NAME
from storage.calls.calls import Call as StoredCall
from storage.calls.calls import CallFilter, CallRow, Direction, EndedReason, Status


@bounds_whole
def _check_variables(given: object) -> object:
    """Reports each problem under the variable's name; a value that is no object is left to the type check."""
    problems: list[InitErrorDetails] = []
    for name, value in check_bounds(given).items() if isinstance(given, dict) else ():
        if CONTEXT_NAME.fullmatch(name) is None:
            problems.append(_problem(name, "A name takes letters, digits and underscores"))
        elif not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
            problems.append(_problem(name, "Must be a string, a number or a boolean"))
    if problems:
        raise ValidationError.from_exception_data("contextVariables", problems)
    return given


def _problem(name: str, message: str) -> InitErrorDetails:
    return {
        "type": PydanticCustomError("context_variable", "{message}", {"message": message}),
        "loc": (name,),
        "input": None,
    }


ContextVariables = Annotated[
    dict[str, str | int | float | bool],
    BeforeValidator(_check_variables),
    Field(json_schema_extra={"maxProperties": MAX_VALUES}),
]


@bounds_whole
def _check_headers(given: object) -> object:
    """Reports each problem under the header's key; a value that is no object is left to the type check."""
    if not isinstance(given, dict):
        return given
    problems: list[InitErrorDetails] = []
    for name, value in check_bounds(given).items():
        if name.startswith(sip_metadata.METADATA_PREFIX) and (why := sip_metadata.why_not_a_header(name, value)):
            problems.append(_problem(name, why))
    if problems:
        raise ValidationError.from_exception_data("metadata", problems)
    if why := sip_metadata.why_too_many_headers(given):
        raise PydanticCustomError("headers", "{message}", {"message": why})
    return given


CallMetadata = Annotated[BoundedJsonObject, BeforeValidator(_check_headers)]


class CallCreate(Body):
    """An outbound call to place."""

    agent_id: Id = Field(description="Agent that holds the conversation; must be active")
    phone_number_id: Id = Field(description="Number to call from; its trunk must be set up")
    to: CalledNumber = Field(description="Destination in E.164")
    context_variables: ContextVariables = Field(
        default_factory=dict,
        description=f"Values of the placeholders; names of letters, digits and underscores; {BOUNDS}",
    )
    metadata: CallMetadata = Field(
        default_factory=dict,
        description=(
            f"Stored with the call; {BOUNDS}. Keys that begin with sip. become headers of the INVITE, as sip.X-Order: "
            f"X-..., P-... (but no identity), {', '.join(sip_metadata.SENDABLE_HEADERS)}; at most "
            f"{sip_metadata.MAX_HEADERS} of them, of {sip_metadata.MAX_HEADER_BYTES} bytes together. "
            "The agent's texts know them as {{sip_x_order}}"
        ),
    )


class CallQuery(Paging):
    """Filter of the list of calls."""

    agent_id: QueryId | None = Field(None, description="Calls of this agent")
    status: Status | None = None
    direction: Direction | None = None
    from_: QueryInstant | None = Field(None, alias="from", description="Created at this time or later (ISO 8601)")
    to: QueryInstant | None = Field(None, description="Created at this time or earlier (ISO 8601)")

    def filter(self) -> CallFilter:
        """Returns the filter for storage."""
        agent_id = None if self.agent_id is None else str(self.agent_id)
        return CallFilter(agent_id, self.status, self.direction, self.from_, self.to)


class LinkQuery(Query):
    """The signature of a link that opens without an API key."""

    expires: str | None = Field(None, description="Unix time at which the link ends; from recordingUrl, transcriptUrl")
    signature: str | None = Field(None, description="Signature over the path and the expiry")


class TranscriptItem(View):
    """One utterance of the caller or the agent."""

    role: Literal["user", "assistant"]
    content: str


class Analysis(View):
    """The analysis after the call: null when the agent asks for nothing, or the caller said nothing."""

    summary: str | None = Field(description="Null when the agent has postCallSummaryEnabled off")
    extractions: JsonObject = Field(
        description="Every value of the agent's postCallExtractionSchema by its name; null where it was not said"
    )
    method: Literal["model", "extractive"] | None = Field(
        None,
        description=(
            "`model`: all of it by the agent's language model; `extractive`: by rules, sentences and values taken from "
            "the talk as they are, because the language model cannot do it or failed (then see `error`)"
        ),
        exclude_if=lambda method: method is None,
    )
    error: str | None = Field(
        None,
        description="Present when the language model failed twice or took too long: what it failed at",
        exclude_if=lambda error: error is None,
    )


class TransferCall(View):
    """The leg that a call was transferred to."""

    id: IdView
    transfer_type: str | None
    transfer_status: str | None
    duration_seconds: int | None
    customer_number: str
    recording_url: str | None
    transcript: list[TranscriptItem]
    started_at: Instant | None
    ended_at: Instant | None
    cost: float | None = Field(None, exclude_if=lambda cost: cost is None)
    status: Status


class Usage(View):
    """What a call of a paid plan is billed by: each amount times its price on the operator's rate card, added up
    exactly, is `cost`, rounded once to six places."""

    telephony_seconds: float = Field(description="From startedAt to endedAt, to the millisecond")
    prompt_tokens: int = Field(
        description=(
            "Tokens that language models read for answers that were given and for the analysis after the call. A "
            "model on the server counts what is new to the talk; one elsewhere counts as its server does"
        )
    )
    completion_tokens: int = Field(description="Tokens that they wrote")
    heard_seconds: float = Field(description="The caller's sound that speech to text was given: while the caller spoke")
    spoken_characters: int = Field(
        description="Of the sentences that the agent began to say, as they are written; one that was cut counts whole"
    )

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Usage:
        """The view of stored usage."""
        return cls(
            telephony_seconds=stored["telephony_s"],
            prompt_tokens=stored["prompt_tokens"],
            completion_tokens=stored["completion_tokens"],
            heard_seconds=stored["heard_s"],
            spoken_characters=stored["spoken_characters"],
        )


class SipEnd(View):
    """The SIP status and reason with which the call ended."""

    status_code: int | None = Field(
        description="Final status of the INVITE; 200 when an established call was hung up; null when nothing came back"
    )
    reason_phrase: str | None = Field(
        description="Of a final status of 300 or more; null for a call that was hung up, and when nothing came back"
    )
    q850_cause: int | None = Field(
        alias="q850Cause", description="Cause of ITU-T Q.850 in the Reason header (RFC 3326) of whoever ended the call"
    )
    q850_text: str | None = Field(alias="q850Text")
    by_peer: bool = Field(description="The other side ended the call")


class HeardAudio(View):
    """Media quality of one direction, as its receiver measured it."""

    packets: int = Field(description="That were received; of the other direction, that we sent")
    lost: int | None = None
    loss_percent: float | None = None
    jitter_ms: float | None = Field(None, description="Mean interarrival jitter (RFC 3550)")
    max_jitter_ms: float | None = None
    mos: float | None = Field(
        None,
        description="Mean opinion score, 1 to 4.5, by ITU-T G.107 (opus and G722: G.107.1); null without a packet",
    )


class ReceivedAudio(HeardAudio):
    """Media quality of the audio from the other side."""

    duplicate: int
    reordered: int
    foreign: int = Field(description="Packets that were not the other side's; they were dropped")
    malformed: int = Field(description="Packets that were no RTP; they were dropped")
    discarded_ms: int = Field(description="Sound that came too late to be heard, or faster than it was played")


class MediaQuality(View):
    """Media quality of both directions."""

    codec: str
    received: ReceivedAudio
    sent: HeardAudio = Field(description="As the other side reports by RTCP; without that, null but for `packets`")
    round_trip_ms: float | None = Field(description="Mean, by RTCP; null when it could not be measured")
    max_round_trip_ms: float | None


class CallListItem(View):
    """A call in a list, without transcript and analysis."""

    id: IdView
    organization_id: IdView
    agent_id: IdView | None
    phone_number_id: IdView | None
    call_sid: str | None = Field(description="SIP Call-ID")
    provider: str | None
    direction: Direction
    status: Status
    customer_number: str
    duration_seconds: int | None = Field(description="Seconds since the answer; null while the call lives")
    cost: float | None = Field(
        None,
        exclude_if=lambda cost: cost is None,
        description=(
            "Present when the call has ended and its organization is on a paid plan: what it has paid for telephony, "
            "inference, speech to text and text to speech, in the currency of the balance, to six decimal places"
        ),
    )
    recording_url: str | None
    turn_count: int
    ended_reason: EndedReason | None
    context_variables: JsonObject
    metadata: JsonObject
    parent_call_id: IdView | None
    transfer_type: str | None
    transfer_status: str | None
    transfer_calls: tuple[TransferCall, ...] = ()
    started_at: Instant | None
    ended_at: Instant | None
    created_at: Instant

    @classmethod
    def of_row(cls, stored: CallRow, recording_url: str | None) -> CallListItem:
        """The view of a stored call."""
        return cls.model_validate(_values(stored, recording_url))


class Call(CallListItem):
    """A call with its transcript and analysis."""

    transcript: list[TranscriptItem]
    analysis: Analysis | None
    usage: Usage | None = Field(
        None, exclude_if=lambda usage: usage is None, description="What `cost` is made of; present with it"
    )
    media_quality: MediaQuality | None = Field(description="Null while the call lives, and when it had no sound")
    sip_end: SipEnd | None = Field(description="Null while the call lives, and when it had no SIP dialog")

    @classmethod
    def of(cls, stored: StoredCall, recording_url: str | None) -> Call:
        """The view of a stored call."""
        billed = None if stored.cost is None or stored.usage is None else Usage.of(stored.usage)
        return cls.model_validate({**_values(stored, recording_url), "usage": billed})


def _values(stored: CallRow, recording_url: str | None) -> dict[str, Any]:
    return {**stored.__dict__, "recording_url": recording_url}


class Transcript(View):
    """The transcript of a call."""

    call_id: IdView
    status: Status
    transcript: list[TranscriptItem]
