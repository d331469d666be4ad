"""Calls in bodies, query parameters and responses."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from api.schemas.base import (
    Body,
    BoundedJsonObject,
    Id,
    IdView,
    Instant,
    JsonObject,
    Name,
    Paging,
    Query,
    QueryFlag,
    QueryId,
    QueryInstant,
    QueryMs,
    View,
    check_bounds,
)
from api.schemas.bounds import (
    MAX_TRANSFER_REASON,
    MAX_TRANSFER_SUMMARY,
    MAX_VALUES,
    OBJECT_LIMITS,
    bounds_whole_value,
)
from api.schemas.patterns import Destination
from api.schemas.transcripts import TranscriptItem
from calls.call_record import sip_metadata
from calls.call_record.context_variables import NAME as CONTEXT_NAME
from calls.live.live_call import LiveDetails, LiveState
from storage.calls.call_list import CallFilter
from storage.calls.calls import Call as StoredCall
from storage.calls.calls import CallRow, Direction, EndedReason, RecordingAbsentReason, Status
from storage.calls.transfers import RequestedBy, TransferMode, TransferOrder, TransferStatus


@bounds_whole_value
def _check_variables(variables: object) -> object:
    """Reports each problem under the variable's name; the type check rejects what is not an object."""
    problems: list[InitErrorDetails] = []
    for name, value in check_bounds(variables).items() if isinstance(variables, dict) else ():
        if CONTEXT_NAME.fullmatch(name) is None:
            problems.append(_problem(name, "A name takes letters, digits and underscores"))
        elif not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
            problems.append(_problem(name, "Must be a string, a number or a boolean"))
    if problems:
        raise ValidationError.from_exception_data("contextVariables", problems)
    return variables


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


@bounds_whole_value
def _check_metadata(metadata: object) -> object:
    """Reports each problem of a SIP header under its key; the type check rejects what is not an object."""
    if not isinstance(metadata, dict):
        return metadata
    problems: list[InitErrorDetails] = []
    for name, value in check_bounds(metadata).items():
        if name.startswith(sip_metadata.METADATA_PREFIX) and (why := sip_metadata.header_problem(name, value)):
            problems.append(_problem(name, why))
    if problems:
        raise ValidationError.from_exception_data("metadata", problems)
    if why := sip_metadata.header_limit_problem(metadata):
        raise PydanticCustomError("headers", "{message}", {"message": why})
    return metadata


TRANSFER_STATUS: Final = (
    "initiated, ringing, briefing (not for cold), connected, completed; or it ended as declined, no_answer, busy, "
    "voicemail (a voicemail answered the second leg), cancelled or failed"
)
CallMetadata = Annotated[BoundedJsonObject, BeforeValidator(_check_metadata)]


class CallCreate(Body):
    """An outbound call to place."""

    agent_id: Id = Field(description="Agent that holds the conversation; must be active")
    phone_number_id: Id = Field(description="Number to call from; its trunk must be set up")
    to: Destination = Field(description="Destination: E.164, or an internal extension of 2 to 7 digits, such as 100")
    context_variables: ContextVariables = Field(
        default_factory=dict,
        description=f"Values of the placeholders; names of letters, digits and underscores; {OBJECT_LIMITS}",
    )
    metadata: CallMetadata = Field(
        default_factory=dict,
        description=(
            f"Stored with the call; {OBJECT_LIMITS}. Keys that begin with sip. become headers of the INVITE, such as "
            f"sip.X-Order: X-..., P-... (except identities), {', '.join(sip_metadata.SENDABLE_HEADERS)}; at most "
            f"{sip_metadata.MAX_HEADERS} of them, with {sip_metadata.MAX_HEADER_BYTES} bytes in all. "
            "The agent's texts can use them as {{sip_x_order}}"
        ),
    )


class WebCallCreate(Body):
    """A test call from a browser."""

    agent_id: Id = Field(description="Agent that holds the conversation; must be active")
    version: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="The version of the agent that holds it; null: the present one"
    )
    direction: Direction = Field(
        "inbound", description="inbound: the browser calls the agent; outbound: the agent calls the browser"
    )
    context_variables: ContextVariables = Field(
        default_factory=dict,
        description=f"Values of the placeholders; names of letters, digits and underscores; {OBJECT_LIMITS}",
    )
    metadata: CallMetadata = Field(
        default_factory=dict, description=f"Stored with the call, with `test: true` added; {OBJECT_LIMITS}"
    )
    telephone: bool = Field(
        False, description="true: it sounds like a telephone line: 8 kHz, G.711; the frames have 16 kHz in any case"
    )
    deliver_webhook: bool = Field(False, description="true: webhooks are sent as for any other call, with test: true")


class CallFilterQuery(Query):
    """Query parameters that choose calls."""

    agent_id: QueryId | None = Field(None, description="Calls of this agent")
    phone_number_id: QueryId | None = Field(None, description="Calls of this phone number")
    status: Status | None = None
    direction: Direction | None = None
    ended_reason: EndedReason | None = Field(None, description="Calls that ended for this reason")
    ended: QueryFlag | None = Field(None, description="true: calls that have ended; false: the others")
    test: QueryFlag | None = Field(None, description="true: test calls; false: the others")
    interrupted: QueryFlag | None = Field(
        None, description="true: ended calls in which the caller interrupted the agent; false: the others"
    )
    min_response_gap_ms: QueryMs | None = Field(
        None, description="Ended calls with a response gap of at least this, ms"
    )
    from_: QueryInstant | None = Field(None, alias="from", description="Created at this time or later (ISO 8601)")
    to: QueryInstant | None = Field(None, description="Created at this time or earlier (ISO 8601)")

    def filter(self) -> CallFilter:
        """Returns the filter of the database query."""
        return CallFilter(
            agent_id=None if self.agent_id is None else str(self.agent_id),
            phone_number_id=None if self.phone_number_id is None else str(self.phone_number_id),
            status=self.status,
            direction=self.direction,
            ended_reason=self.ended_reason,
            ended=self.ended,
            test=self.test,
            interrupted=self.interrupted,
            min_response_gap_ms=self.min_response_gap_ms,
            since=self.from_,
            until=self.to,
        )


class CallQuery(CallFilterQuery, Paging):
    """Query parameters of the list of calls."""


class Analysis(View):
    """The analysis after the call; null if the agent requests none, or the caller said nothing."""

    summary: str | None = Field(description="Null if the agent's postCallSummaryEnabled is false")
    extractions: JsonObject = Field(
        description="Each value of the agent's postCallExtractionSchema by its name; null if the caller did not say it"
    )
    method: Literal["model", "extractive"] | None = Field(
        None,
        description=(
            "`model`: by the agent's language model; `extractive`: sentences and values taken unchanged from the "
            "transcript by rules, because the language model cannot analyse calls or failed (then see `error`)"
        ),
        exclude_if=lambda method: method is None,
    )
    error: str | None = Field(
        None,
        description="Reason why the language model's analysis failed; present if it failed twice or took too long",
        exclude_if=lambda error: error is None,
    )


class TransferRequest(Body):
    """A transfer of a call to one of its agent's transfer targets."""

    target: Name = Field(description="Name of a target of the agent's transferTargets, in any letter case")
    mode: TransferMode | None = Field(None, description="null: the target's own mode")
    reason: Annotated[str, Field(max_length=MAX_TRANSFER_REASON)] | None = Field(
        None, description="Why the call is transferred"
    )
    summary: Annotated[str, Field(max_length=MAX_TRANSFER_SUMMARY)] | None = Field(
        None, description="What the target should know about the call"
    )

    def order(self) -> TransferOrder:
        """Returns the request as calls take it."""
        return TransferOrder(
            target=self.target, mode=self.mode, reason=self.reason, summary=self.summary, requested_by="api"
        )


class TransferAttempt(View):
    """One INVITE or REFER of a transfer."""

    number: str
    started_at: Instant
    ended_at: Instant | None
    sip_status: int | None = Field(description="Final SIP status; null without one")
    outcome: str | None = Field(
        description="Why the attempt ended, such as answered, busy or no_audio; null while it goes on"
    )


class TransferState(View):
    """A status of a transfer."""

    status: TransferStatus
    at: Instant = Field(description="When the transfer got this status")


class TransferCall(View):
    """A transfer, with its child call. A transfer by REFER has no child call."""

    id: IdView = Field(description="Id of the child call; without one, of the transfer itself")
    transfer_type: TransferMode
    transfer_status: TransferStatus = Field(description=TRANSFER_STATUS)
    duration_seconds: int | None = Field(description="Seconds from the answer to the end; null before the end")
    customer_number: str = Field(description="The number of the target")
    recording_url: str | None
    transcript: list[TranscriptItem] = Field(description="What the agent and the target said before the connection")
    started_at: Instant | None = Field(description="The answer of the child call")
    ended_at: Instant | None
    cost: float | None = Field(None, exclude_if=lambda cost: cost is None, description="Cost of the child call")
    status: Status = Field(description="Status of the child call")
    target_name: str
    reason: str | None
    summary: str | None
    requested_by: RequestedBy
    created_at: Instant
    answered_at: Instant | None = Field(description="The target answered")
    connected_at: Instant | None = Field(description="The customer and the target could hear each other")
    sip_status: int | None = Field(description="Final SIP status of the last attempt; null without one")
    decline_reason: str | None = Field(description="What the target said when it declined")
    attempts: list[TransferAttempt]
    states: list[TransferState] = Field(description="Each transferStatus so far, in order")


class Usage(View):
    """The billed usage of a call of an organization on a paid plan. `cost` is the sum of each amount times its price on
    the operator's rate card, computed exactly and rounded once, to six decimal places."""

    telephony_seconds: float = Field(description="From startedAt to endedAt, to the millisecond")
    prompt_tokens: int = Field(
        description=(
            "Input tokens of language models, for responses that were used and for the analysis after the call. A "
            "local model counts only tokens that are new in the conversation; a remote model counts as its server does"
        )
    )
    completion_tokens: int = Field(description="Output tokens of language models")
    heard_seconds: float = Field(
        description="Duration of the caller's audio that was transcribed as speech; with stayOnCall also of the "
        "target's, after the two were connected"
    )
    spoken_characters: int = Field(
        description="Characters of the sentences that the agent began to speak, as written; an interrupted sentence "
        "counts completely"
    )

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Usage:
        """Returns the view of stored usage."""
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
        description="Final status of the INVITE; 200 if an established call was hung up; null without a response"
    )
    reason_phrase: str | None = Field(
        description="Reason phrase of a final status of 300 or more; null if the call was hung up or got no response"
    )
    q850_cause: int | None = Field(
        alias="q850Cause",
        description="ITU-T Q.850 cause in the Reason header (RFC 3326) of the side that ended the call",
    )
    q850_text: str | None = Field(alias="q850Text")
    by_peer: bool = Field(description="True if the peer ended the call")


class HeardAudio(View):
    """Media quality of one direction, as its receiver measured it."""

    packets: int = Field(description="RTP packets that this server received; in `sent`, packets that it sent")
    lost: int | None = None
    loss_percent: float | None = None
    jitter_ms: float | None = Field(None, description="Mean interarrival jitter (RFC 3550)")
    max_jitter_ms: float | None = None
    mos: float | None = Field(
        None,
        description="Mean opinion score, 1 to 4.5, by ITU-T G.107 (opus and G722: G.107.1); null without any packet",
    )


class ReceivedAudio(HeardAudio):
    """Media quality of the peer's audio."""

    duplicate: int
    reordered: int
    foreign: int = Field(description="Packets from other sources than the peer; they were dropped")
    malformed: int = Field(description="Packets that are not RTP; they were dropped")
    discarded_ms: int = Field(
        description="Audio that arrived too late to be played, or faster than it could be played, ms"
    )


class MediaQuality(View):
    """Media quality of both directions."""

    codec: str
    received: ReceivedAudio
    sent: HeardAudio = Field(description="As the peer reports by RTCP; without RTCP all fields but `packets` are null")
    round_trip_ms: float | None = Field(description="Mean, by RTCP; null if it could not be measured")
    max_round_trip_ms: float | None


class LiveCallDetails(View):
    """What is known of a call while it is live. Loss and MOS are those of the whole call so far; null without RTP, and
    in `sent...` without RTCP."""

    duration_seconds: int | None = Field(description="Seconds since the answer; null before it")
    response_gap_ms: int | None = Field(description="responseGapMs of the latest turn that has one, ms")
    partial_transcript: str | None = Field(
        description="The latest words of the caller's unfinished turn; only while the organization's events are "
        "followed, and never if it redacts numbers"
    )
    loss_percent: float | None
    mos: float | None = Field(description="Mean opinion score of the peer's audio, 1 to 4.5")
    sent_loss_percent: float | None = Field(description="Lost packets of the audio that was sent, %, by RTCP")
    sent_mos: float | None = Field(description="Mean opinion score of the audio that was sent, by RTCP, 1 to 4.5")

    @classmethod
    def of(cls, details: LiveDetails) -> LiveCallDetails:
        """Returns the view."""
        quality = details.quality
        return cls(
            duration_seconds=details.duration_s,
            response_gap_ms=details.response_gap_ms,
            partial_transcript=details.partial_transcript,
            loss_percent=_percent(quality.loss),
            mos=quality.mos,
            sent_loss_percent=_percent(quality.sent_loss),
            sent_mos=quality.sent_mos,
        )


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 2)


class CallListItem(View):
    """A call in a list, without transcript and analysis."""

    id: IdView
    organization_id: IdView
    agent_id: IdView | None
    agent_version: int | None = Field(
        description="The version of the agent that the call has from its beginning to its end; of a queued call the "
        "present one. Null for calls of earlier versions of the server"
    )
    phone_number_id: IdView | None
    call_sid: str | None = Field(description="SIP Call-ID")
    provider: str | None
    direction: Direction
    status: Status
    customer_number: str
    called_number: str | None = Field(
        description="The number that was dialled: inbound the phone number of the organization, as it was stored when "
        "the call arrived; outbound `to`; of a transfer's child call the target's. Null for calls of earlier versions "
        "whose number is not known"
    )
    duration_seconds: int | None = Field(description="Seconds from the answer to the end; null before the end")
    cost: float | None = Field(
        None,
        exclude_if=lambda cost: cost is None,
        description=(
            "Present if the call has ended and its organization is on a paid plan: the price of telephony, language "
            "models, speech to text and text to speech, in the currency of the balance, to six decimal places"
        ),
    )
    recording_url: str | None
    turn_count: int = Field(description="The caller's turns with the agent")
    ended_reason: EndedReason | None
    context_variables: JsonObject
    metadata: JsonObject
    parent_call_id: IdView | None = Field(description="The call that was transferred to this one")
    transfer_type: TransferMode | None = Field(
        description="Mode of the call's latest transfer, or of the transfer that this call was placed for"
    )
    transfer_status: TransferStatus | None = Field(description=f"Status of that transfer. {TRANSFER_STATUS}")
    transfer_calls: tuple[TransferCall, ...] = Field(
        (), description="The transfers of the call, newest last; always empty in lists of calls"
    )
    started_at: Instant | None
    ended_at: Instant | None
    created_at: Instant
    node: str | None = Field(
        description="Name of the server that has or had the call, among several with one database (`[node] name`); "
        "null for calls of earlier versions"
    )
    state: LiveState = Field(
        description="What happens in the call at this moment; `ended` also while its analysis goes on; `transferring` "
        "while a transfer is under way, and after it has connected the two"
    )
    live: LiveCallDetails | None = Field(description="Null for a call that has ended")

    @classmethod
    def of_row(cls, stored: CallRow, recording_url: str | None, live: LiveDetails | None = None) -> CallListItem:
        """Returns the view of a stored call; `live` has what is known of one that has not ended."""
        return cls.model_validate(_values(stored, recording_url, live))


class Call(CallListItem):
    """A call with its transcript and analysis."""

    transcript: list[TranscriptItem]
    analysis: Analysis | None
    usage: Usage | None = Field(
        None, exclude_if=lambda usage: usage is None, description="The amounts that make up `cost`; present with it"
    )
    media_quality: MediaQuality | None = Field(description="Null before the end of the call, and if it had no audio")
    sip_end: SipEnd | None = Field(description="Null before the end of the call, and if it had no SIP dialog")
    recording_removed_at: Instant | None = Field(
        description="When the recording was deleted; null if it was not, or by an earlier version"
    )
    recording_absent_reason: RecordingAbsentReason | None = Field(
        description="Why there is no recording. retention: the organization's keepRecordingsDays are over; disabled: "
        "the agent's recordingEnabled was false. Null with a recording, before the end of the call, and if neither is "
        "known to be the reason, as for a call that was not answered",
    )
    transcript_removed_at: Instant | None = Field(
        description="When transcript, timeline, analysis and context variables were deleted, because the "
        "organization's keepTranscriptsDays were over; null if they were not",
    )

    @classmethod
    def of(
        cls,
        stored: StoredCall,
        recording_url: str | None,
        transfer_calls: Sequence[Mapping[str, Any]] = (),
        live: LiveDetails | None = None,
    ) -> Call:
        """Returns the view of a stored call and its transfers (`calls.call_record.transfer_calls`); `live` as in
        `of_row`."""
        billed = None if stored.cost is None or stored.usage is None else Usage.of(stored.usage)
        values = _values(stored, recording_url, live)
        return cls.model_validate(
            {
                **values,
                "usage": billed,
                "transfer_calls": tuple(transfer_calls),
                "transcript_removed_at": stored.talk_removed_at,
            }
        )


class WebCallCreated(View):
    """A call, and where its audio is exchanged."""

    call: Call = Field(description="The call; a test call waits for its browser")
    websocket_url: str = Field(
        description="URL of the call's WebSocket, with a ticket for one connection within 60 seconds"
    )


def _values(stored: CallRow, recording_url: str | None, live: LiveDetails | None) -> dict[str, Any]:
    state: LiveState = "ended"
    if live is not None:
        state = live.state
    elif stored.status in ("queued", "ringing"):  # it has been stored just now
        state = "queued" if stored.status == "queued" else "ringing"
    details = None if live is None or state == "ended" else LiveCallDetails.of(live)
    return {**stored.__dict__, "recording_url": recording_url, "state": state, "live": details}
