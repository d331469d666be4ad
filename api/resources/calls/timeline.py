"""Handler and views of `/calls/{id}/timeline`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from api.routing.route import DataResponse, NoQuery, RequestContext, Route
from api.schemas.base import IdView, Instant, View
from api.schemas.transcripts import TurnSource
from calls.answer_detection.events import AnswerKind, Rule
from config.errors import NotFound
from storage.calls import calls, transfers
from storage.calls.calls import BriefingSource, Speaker, Status, TranscriptionEnd
from storage.calls.transfers import Transfer, TransferMode, TransferStatus

DEFAULTS: Final[Mapping[str, Any]] = {
    "eot_probability": None,
    "interrupted_ms": None,
    "played_ms": 0,
    "speculated": False,
    "tools": [],
    "sources": [],
    "speaker": None,
    "transcription_ended": None,
    "briefing_by": None,
}
"""Values of the fields that the turns of older calls lack."""


class ToolTimes(View):
    """A tool call. Times are ms since the call's startedAt."""

    name: str = Field(description="Name under which the language model called it")
    start_ms: int = Field(description="Time of the call, ms")
    end_ms: int = Field(description="Time of the result, ms")
    ok: bool = Field(description="True if the tool succeeded")


class TurnTimes(View):
    """A turn of the caller and the agent's response. Times are ms since the call's startedAt, null when unknown."""

    turn: int = Field(
        description="0 is the agent's opening message; the caller's turns count from 1. An entry with endedBy silence "
        "is not a turn of the caller and has the number of the entry before it"
    )
    ended_by: Literal["model", "delay", "fallback", "typed", "digits", "silence"] | None = Field(
        description="What ended the turn: the end-of-turn model, turnEndpointDelay alone, fallbackSilenceMs, DTMF "
        "digits, or that it was typed in a chat; silence: neither side spoke for customerSilenceMs, and the agent asks "
        "whether the caller is still there; null for the opening message"
    )
    eot_probability: float | None = Field(
        description="Result of the end-of-turn model (probability of the end of the turn, 0..1), if it ended the turn"
    )
    speech_start_ms: int | None = Field(description="The caller began to speak, ms")
    speech_end_ms: int | None = Field(description="The caller's last speech of the turn ended, ms")
    turn_end_ms: int | None = Field(description="The end of the turn was detected, ms")
    text_ready_ms: int | None = Field(description="The final transcript of the turn was ready, ms")
    first_token_ms: int | None = Field(
        description="First token of the language model for the response, ms; null for a greeting, which needs no model"
    )
    speech_ready_ms: int | None = Field(description="The first sentence of the response was synthesized, ms")
    agent_start_ms: int | None = Field(description="The first audio of the response was sent, ms")
    interrupted_ms: int | None = Field(description="The response stopped because the caller interrupted it, ms")
    agent_end_ms: int | None = Field(
        description="The last audio of the response was sent, or the response was interrupted, ms"
    )
    response_gap_ms: int | None = Field(
        description="From speechEndMs to agentStartMs, ms; null for a turn that DTMF digits ended"
    )
    played_ms: int = Field(description="Duration of the response's audio that was sent, ms")
    interrupted: bool = Field(description="True if the caller interrupted the response")
    speculated: bool = Field(
        description="True if the response was generated before the end of the turn, in the silence after "
        "speculativeSilenceMs"
    )
    tools: list[ToolTimes] = Field(description="The tools that were called for the response, in order of their ends")
    sources: list[TurnSource] = Field(
        description="The passages of the agent's documents that the language model got for the response: results of "
        "`search_knowledge`, and passages that were found while the caller spoke"
    )

    speaker: Speaker | None = Field(
        description="Not null: after a transfer had connected them, the caller or the target of the transfer said this "
        "to the other one; target is also the client that took the call over. Such an entry has the number of the last "
        "turn with the agent, and times up to textReadyMs"
    )
    transcription_ended: TranscriptionEnd | None = Field(
        description="Not null: the transcription of the connected parties ended here, because the caller or the target "
        "told the agent to stop, because of an error of the speech recognizer, or after 5,000 utterances"
    )
    briefing_by: BriefingSource | None = Field(
        description="Not null: in this entry of the second leg of a warm transfer it was decided what the target is "
        "told about the call. model: the language model has written it from the conversation; template: it is the "
        "fixed sentence with the transfer's reason and summary"
    )

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        return {**DEFAULTS, **stored}


class AnswerVerdict(View):
    """A verdict of answer detection; the last one counts."""

    kind: AnswerKind = Field(
        description="What answered: human, voicemail, mailbox_unavailable (an announcement after which nobody can be "
        "reached, or a busy tone), call_screening (an assistant asks for the caller's name and reason), menu, "
        "hold_queue, fax or silence"
    )
    rule: Rule = Field(description="The rule that decided")
    at_ms: int = Field(description="Time of the verdict, ms since the call's startedAt")


class TimelineNote(View):
    """A note to the agent (POST /calls/{id}/whisper)."""

    content: str
    author: str = Field(description="Name of the API key, or its prefix; or of the user")
    at_ms: int = Field(description="When the agent got it, ms since the call's startedAt")


class TimelineListening(View):
    """A person has listened in to the call (GET /calls/{id}/listen)."""

    by: str = Field(description="Name of the API key, or its prefix; or of the user")
    start_ms: int = Field(description="Since when, ms since the call's startedAt")
    end_ms: int | None = Field(description="Until when, ms; null: until the end of the call, or still")


class TimelineTakeover(View):
    """A person has taken the call over from the agent (POST /calls/{id}/takeover)."""

    by: str = Field(description="Name of the API key, or its prefix; or of the user")
    at_ms: int = Field(description="When the person was connected, ms since the call's startedAt")


class TimelineFallback(View):
    """A model failed, and the next one of its chain took over."""

    kind: Literal["llm", "stt", "tts"] = Field(description="Language model, speech to text or text to speech")
    model: str = Field(description="The model that failed; of tts the voice")
    to: str | None = Field(description="The model that took over; of tts the voice; null: there was no other one")
    reason: str = Field(
        description="unreachable, late, busy, failing (5xx), refused, broken (an invalid response) or resting (not "
        "asked, because it failed several times) for a model on another machine; failed or fault for another one"
    )
    at_ms: int = Field(description="When it failed, ms since the call's startedAt")


class TransferStateTime(View):
    """A status of a transfer. Times are ms since the call's startedAt."""

    status: TransferStatus
    at_ms: int = Field(description="When the transfer got this status, ms")


class TransferAttemptTimes(View):
    """One INVITE or REFER of a transfer. Times are ms since the call's startedAt."""

    number: str
    start_ms: int = Field(description="The request was sent, ms")
    end_ms: int | None = Field(description="The attempt ended, ms; null while it goes on")
    sip_status: int | None = Field(description="Final SIP status; null without one")
    outcome: str | None = Field(description="Why the attempt ended; null while it goes on")


class TransferTimes(View):
    """A transfer of the call by its agent or by the API."""

    id: IdView
    target_name: str
    transfer_type: TransferMode
    states: list[TransferStateTime] = Field(description="Each transferStatus so far, in order")
    attempts: list[TransferAttemptTimes]

    @classmethod
    def of(cls, transfer: Transfer, zero: datetime) -> TransferTimes:
        """Returns the view of a stored transfer; `zero` is the answer of the call."""

        def ms(at: str) -> int:
            return round((datetime.fromisoformat(at) - zero).total_seconds() * 1000)

        return cls(
            id=transfer.id,
            target_name=transfer.target_name,
            transfer_type=transfer.mode,
            states=[TransferStateTime(status=each["status"], at_ms=ms(each["at"])) for each in transfer.states],
            attempts=[
                TransferAttemptTimes(
                    number=each["number"],
                    start_ms=ms(each["startedAt"]),
                    end_ms=None if each["endedAt"] is None else ms(each["endedAt"]),
                    sip_status=each["sipStatus"],
                    outcome=each["outcome"],
                )
                for each in transfer.attempts
            ],
        )


class Timeline(View):
    """The turns of a call and its transfers, oldest first; several turns can have the same number."""

    call_id: IdView
    status: Status
    started_at: Instant | None = Field(description="When the call was answered: the origin of all times; null if never")
    turns: list[TurnTimes]
    transfers: list[TransferTimes]
    notes: list[TimelineNote] = Field(description="The notes that people gave the agent, oldest first")
    listening: list[TimelineListening] = Field(
        description="Who has listened in to the call; empty for calls of earlier versions, whose audit log has it"
    )
    fallbacks: list[TimelineFallback] = Field(
        description="The models that failed in the call, oldest first, also in a response that was not spoken"
    )
    takeover: TimelineTakeover | None = Field(
        description="Who has taken the call over from the agent; null if nobody has"
    )
    answer_verdicts: list[AnswerVerdict] = Field(
        description="The verdicts of answer detection, oldest first, once the call has ended. Only outbound calls of "
        "agents with voicemailDetection, and second legs of transfers, have some"
    )


def get(context: RequestContext[None, NoQuery]) -> Timeline:
    """GET /calls/{id}/timeline"""
    call = calls.get(context.conn, context.owner, context.item)
    if call is None:
        raise NotFound("Call not found")
    return timeline_view(call, transfers.of_call(context.conn, call.id))


def timeline_view(call: calls.Call, of_call: Sequence[Transfer]) -> Timeline:
    """Returns the view of a call's timeline. `of_call`: its transfers."""
    zero = call.started_at or call.created_at
    return Timeline(
        call_id=call.id,
        status=call.status,
        started_at=call.started_at,
        turns=[TurnTimes.model_validate(each) for each in call.timeline if "turn" in each],
        transfers=[TransferTimes.of(each, zero) for each in of_call],
        notes=[
            TimelineNote(content=each["note"], author=each["author"], at_ms=each["at_ms"])
            for each in call.timeline
            if "note" in each
        ],
        listening=[
            TimelineListening(by=each["listened_by"], start_ms=each["at_ms"], end_ms=each["end_ms"])
            for each in call.timeline
            if "listened_by" in each
        ],
        fallbacks=[
            TimelineFallback(**each["model_fallback"], at_ms=each["at_ms"])
            for each in call.timeline
            if "model_fallback" in each
        ],
        takeover=next(
            (
                TimelineTakeover(by=each["taken_over_by"], at_ms=each["at_ms"])
                for each in call.timeline
                if "taken_over_by" in each
            ),
            None,
        ),
        answer_verdicts=[
            AnswerVerdict(kind=each["answer"], rule=each["rule"], at_ms=each["at_ms"])
            for each in call.timeline
            if "answer" in each
        ],
    )


ROUTES = (
    Route(
        method="GET",
        path="/calls/{id}/timeline",
        name="getCallTimeline",
        role="viewer",
        tag="Calls",
        summary="Get the timings of a call's turns and transfers",
        description="The time of each step from the caller's speech to the agent's response. A live call has the turns "
        "so far. If the caller speaks on before the response is heard, the turn goes on: its end and the later times "
        "move, its beginning stays. A greeting that had to wait for the caller was prepared in turn 0 and is played as "
        "the response to turn 1.",
        handler=get,
        item="Call",
        response=DataResponse(Timeline),
    ),
)
