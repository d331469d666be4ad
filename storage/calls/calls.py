"""Calls. The status changes queued -> ringing -> in_progress -> completed, or from queued and ringing to no_answer or
failed; an ended call never changes again, unless another node has closed it (`storage.calls.late_end`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, NotRequired, TypedDict
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.database import own_node
from storage.tables.row_mapping import RowMapping

Direction = Literal["inbound", "outbound"]
Status = Literal["queued", "ringing", "in_progress", "completed", "failed", "no_answer"]
EndStatus = Literal["completed", "failed", "no_answer"]
EndedReason = Literal[
    "customer_ended",
    "customer_silent",
    "agent_ended",
    "max_duration",
    "api_hangup",
    "no_answer",
    "busy",
    "rejected",
    "invalid_number",
    "unreachable",
    "transferred",
    "voicemail",
    "media_timeout",
    "server_shutdown",
    "server_restart",
    "error",
]


WEB: Final = "web"
"""The provider of test calls, which have no phone number."""
CHAT: Final = "chat"
"""The provider of chat tests, which have neither a phone number nor audio."""

Speaker = Literal["caller", "target"]
"""A party of two that a transfer has connected: of the transferred call, or of its child call."""

BriefingSource = Literal["model", "template"]
"""Who has written what the target of a transfer is told about the call."""

RecordingAbsentReason = Literal["retention", "disabled"]
"""Why a call has no recording: the organization's retention period is over, or its agent does not record calls."""

TranscriptionEnd = Literal["caller", "target", "error", "limit"]
"""Why the transcription of connected parties ended before the call: the speaker who asked for it, an error, or the
number of utterances."""


class TranscriptItem(TypedDict):
    """One utterance; `role` is user or assistant. `speaker`: of what connected parties say to each other; their role is
    user. `startMs`, `endMs`: its audio, in whole ms since the answer; absent in calls of earlier versions. `words`: the
    beginnings of the words that white space separates in `content`, in ms after `startMs`; absent if they are not
    known, and before the end of the call."""

    role: str
    content: str
    speaker: NotRequired[Speaker]
    startMs: NotRequired[int]
    endMs: NotRequired[int]
    words: NotRequired[list[int]]


class Analysis(TypedDict):
    """The analysis after the call (`calls.post_call.analysis`). `error`: why the language model gave none."""

    summary: str | None
    extractions: dict[str, Any]
    method: NotRequired[Literal["model", "extractive"]]
    error: NotRequired[str]


@dataclass(frozen=True, kw_only=True)
class CallRow:
    """A stored call without transcript, analysis and timeline. `cost` None: not billed. `recorded`: there is a
    recording, at `recordings.path_of`."""

    id: str
    organization_id: str
    agent_id: str | None
    phone_number_id: str | None
    call_sid: str | None
    provider: str | None
    direction: Direction
    status: Status
    customer_number: str
    called_number: str | None
    """The number that was dialled, as it was stored; None: a call of a version that did not store it."""
    duration_seconds: int | None
    cost: float | None
    recorded: bool
    turn_count: int
    ended_reason: EndedReason | None
    context_variables: dict[str, Any]
    metadata: dict[str, Any]
    parent_call_id: str | None
    transfer_type: str | None
    transfer_status: str | None
    started_at: datetime | None
    ended_at: datetime | None
    created_at: datetime
    updated_at: datetime
    media_quality: dict[str, Any] | None = None
    """RTP statistics (`sipcore.audio.call_quality`)."""
    sip_end: dict[str, Any] | None = None
    """The final SIP status and its reason, if there was one."""
    agent_version: int | None = None
    """The version of the agent that the call has; None: a call of a time before versions."""
    test: bool = False
    """A test call, or the second leg of its transfer: it is left out of statistics."""
    deliver_webhook: bool = True
    """False: no webhook tells of the call."""
    recording_removed_at: datetime | None = None
    recording_absent_reason: RecordingAbsentReason | None = None
    """None: there is a recording, or it is not known why there is none."""
    talk_removed_at: datetime | None = None
    """When the transcript and all else that was said was deleted, because its retention period was over."""
    node: str | None = None
    """The name of the node that has or had the call; None: a call of a version without nodes."""

    @property
    def is_free(self) -> bool:
        """A web call and a chat cost nothing; a transfer of the former does."""
        return self.provider in (WEB, CHAT)

    @property
    def is_chat(self) -> bool:
        """A chat test: it takes no place of a call."""
        return self.provider == CHAT


@dataclass(frozen=True, kw_only=True)
class Call(CallRow):
    """A stored call, complete."""

    transcript: list[TranscriptItem]
    analysis: Analysis | None
    timeline: list[dict[str, Any]]
    usage: dict[str, Any] | None = None
    """The metered usage so far, for billing (`calls.call_record.metering`)."""


@dataclass(frozen=True)
class OpenCallCounts:
    """Numbers of calls that have not ended: of one organization, on all nodes, and of all on this node."""

    organization: int
    total: int


CALL = RowMapping(Call, tables.calls)
_t = tables.calls
_GET: Final = sa.select(*CALL.columns).where(
    _t.c.id == sa.bindparam("call"), _t.c.organization_id == sa.bindparam("owner")
)
_COUNT_NOT_ENDED: Final = sa.select(
    sa.func.count().filter(_t.c.organization_id == sa.bindparam("owner")),
    sa.func.count().filter(own_node.is_own(_t.c.node)),
).where(_t.c.ended_at.is_(None), _t.c.ending.is_(None))
_COUNT_OPEN: Final = _COUNT_NOT_ENDED.where(_t.c.provider.is_distinct_from(CHAT))
_COUNT_OPEN_CHATS: Final = _COUNT_NOT_ENDED.where(_t.c.provider == CHAT)
_COUNT_OPEN_BUT: Final = _COUNT_OPEN.where(_t.c.id.not_in(sa.bindparam("gone", expanding=True)))
_INSERT: Final = sa.insert(_t)
_OF_LIVE: Final = sa.and_(_t.c.id == sa.bindparam("call"), _t.c.ended_at.is_(None))
_UPDATE_LIVE: Final = sa.update(_t).where(_OF_LIVE, _t.c.ending.is_(None))
_MARK_DIALLING: Final = _UPDATE_LIVE.where(
    own_node.is_own(_t.c.node), sa.or_(_t.c.call_sid.is_(None), _t.c.call_sid == sa.bindparam("sid"))
)
_UPDATE_QUEUED: Final = sa.update(_t).where(_t.c.id == sa.bindparam("call"), _t.c.status == "queued")
_ANSWER: Final = sa.update(_t).where(_t.c.id == sa.bindparam("call"), _t.c.status.in_(("queued", "ringing")))
_STARTED: Final = sa.select(_t.c.started_at).where(_OF_LIVE)
_COST: Final = sa.select(_t.c.cost).where(_OF_LIVE)
_FINISH: Final = sa.update(_t).where(_OF_LIVE).returning(*CALL.columns)
_TRANSFER_OF_CHILD: Final = sa.select(tables.transfers.c.mode, tables.transfers.c.status).where(
    tables.transfers.c.id == sa.bindparam("transfer")
)
# Statements of every call are built once, because SQLAlchemy takes longer to build one than SQLite takes to run it.


def create_inbound(
    conn: sa.Connection,
    *,
    organization_id: str,
    agent_id: str,
    agent_version: int | None = None,
    phone_number_id: str,
    provider: str,
    call_sid: str,
    customer_number: str,
    called_number: str | None = None,
    context_variables: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Call:
    """Store an inbound call as it arrives, with the status ringing. `call_sid` is the SIP Call-ID."""
    call = new_inbound(
        organization_id=organization_id,
        agent_id=agent_id,
        agent_version=agent_version,
        phone_number_id=phone_number_id,
        provider=provider,
        call_sid=call_sid,
        customer_number=customer_number,
        called_number=called_number,
        context_variables=context_variables,
        metadata=metadata,
    )
    return insert(conn, call)


def new_inbound(
    *,
    organization_id: str,
    agent_id: str,
    agent_version: int | None = None,
    phone_number_id: str,
    provider: str,
    call_sid: str,
    customer_number: str,
    called_number: str | None = None,
    context_variables: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Call:
    """Returns the call that `create_inbound` stores."""
    return _new(
        organization_id=organization_id,
        agent_id=agent_id,
        agent_version=agent_version,
        phone_number_id=phone_number_id,
        call_sid=call_sid,
        provider=provider,
        direction="inbound",
        status="ringing",
        customer_number=customer_number,
        called_number=called_number,
        context_variables=dict(context_variables or {}),
        metadata=dict(metadata or {}),
    )


def create_outbound(
    conn: sa.Connection,
    *,
    organization_id: str,
    agent_id: str,
    agent_version: int | None = None,
    phone_number_id: str,
    provider: str,
    customer_number: str,
    context_variables: Mapping[str, Any],
    metadata: Mapping[str, Any],
) -> Call:
    """Store an outbound call with the status queued."""
    call = _new(
        organization_id=organization_id,
        agent_id=agent_id,
        agent_version=agent_version,
        phone_number_id=phone_number_id,
        call_sid=None,
        provider=provider,
        direction="outbound",
        status="queued",
        customer_number=customer_number,
        called_number=customer_number,
        context_variables=dict(context_variables),
        metadata=dict(metadata),
    )
    return insert(conn, call)


def create_web(
    conn: sa.Connection,
    *,
    organization_id: str,
    agent_id: str,
    direction: Direction,
    context_variables: Mapping[str, Any],
    metadata: Mapping[str, Any],
    agent_version: int,
    deliver_webhook: bool,
) -> Call:
    """Store a web call, which is a test call, with the status ringing: the queue never dials it."""
    call = _new(
        organization_id=organization_id,
        agent_id=agent_id,
        phone_number_id=None,
        call_sid=None,
        provider=WEB,
        direction=direction,
        status="ringing",
        customer_number=WEB,
        called_number=None,
        context_variables=dict(context_variables),
        metadata={**metadata, "test": True},
        agent_version=agent_version,
        test=True,
        deliver_webhook=deliver_webhook,
    )
    return insert(conn, call)


def create_chat(
    conn: sa.Connection,
    *,
    organization_id: str,
    agent_id: str,
    agent_version: int | None,
    context_variables: Mapping[str, Any],
    metadata: Mapping[str, Any],
) -> Call:
    """Store a chat, which is a test call without audio, with the status in_progress. `agent_version` None: of a
    draft."""
    call = _new(
        organization_id=organization_id,
        agent_id=agent_id,
        phone_number_id=None,
        call_sid=None,
        provider=CHAT,
        direction="inbound",
        status="in_progress",
        customer_number=CHAT,
        called_number=None,
        context_variables=dict(context_variables),
        metadata={**metadata, "test": True},
        agent_version=agent_version,
        test=True,
        deliver_webhook=False,
    )
    call = replace(call, started_at=call.created_at)
    return insert(conn, call)


def create_child(
    conn: sa.Connection,
    *,
    call_id: str,
    parent: Call,
    phone_number_id: str,
    provider: str,
    customer_number: str,
) -> Call:
    """Store the outbound call of the stored transfer `call_id`, whose id it gets. It has the parent's organization,
    agent and context variables, and the status ringing: the queue never dials it."""
    transfer = conn.execute(_TRANSFER_OF_CHILD, {"transfer": call_id}).one()
    call = replace(
        _new(
            organization_id=parent.organization_id,
            agent_id=parent.agent_id,
            agent_version=parent.agent_version,
            phone_number_id=phone_number_id,
            call_sid=None,
            provider=provider,
            direction="outbound",
            status="ringing",
            customer_number=customer_number,
            called_number=customer_number,
            context_variables=dict(parent.context_variables),
            metadata={"test": True} if parent.test else {},
            test=parent.test,
            deliver_webhook=parent.deliver_webhook,
        ),
        id=call_id,
        parent_call_id=parent.id,
        transfer_type=transfer.mode,
        transfer_status=transfer.status,
    )
    return insert(conn, call)


def _new(**fields: Any) -> Call:
    at = utc_now()
    return Call(
        **fields,
        id=str(uuid4()),
        duration_seconds=None,
        cost=None,
        recorded=False,
        turn_count=0,
        ended_reason=None,
        parent_call_id=None,
        transfer_type=None,
        transfer_status=None,
        started_at=None,
        ended_at=None,
        created_at=at,
        updated_at=at,
        transcript=[],
        analysis=None,
        timeline=[],
    )


def insert(conn: sa.Connection, call: Call) -> Call:
    """Store a call; returns it with its node, which is this one."""
    stored = replace(call, node=own_node.name_of(conn))
    conn.execute(_INSERT, {name: getattr(stored, name) for name in CALL.names})
    return stored


def insert_missing(conn: sa.Connection, call: Call) -> None:
    """Store a call, unless it is stored already."""
    if conn.execute(sa.select(_t.c.id).where(_t.c.id == call.id)).one_or_none() is None:
        insert(conn, call)


def count_open(conn: sa.Connection, organization_id: str, exclude: Collection[str] = ()) -> OpenCallCounts:
    """The numbers of calls that have not ended, without chats, those of the ids `exclude`, and those with a pending
    end."""
    parameters = _count_parameters(conn, organization_id) | ({"gone": sorted(exclude)} if exclude else {})
    return OpenCallCounts(*conn.execute(_COUNT_OPEN_BUT if exclude else _COUNT_OPEN, parameters).one())


def count_open_chats(conn: sa.Connection, organization_id: str) -> OpenCallCounts:
    """The numbers of chats that have not ended, without those with a pending end."""
    return OpenCallCounts(*conn.execute(_COUNT_OPEN_CHATS, _count_parameters(conn, organization_id)).one())


def _count_parameters(conn: sa.Connection, organization_id: str) -> dict[str, Any]:
    return {"owner": organization_id, "own_node": own_node.filter_of(conn)}


def count(conn: sa.Connection, organization_id: str) -> int:
    """The number of stored calls of an organization."""
    return conn.execute(sa.select(sa.func.count()).where(_t.c.organization_id == organization_id)).scalar_one()


def mark_dialling(conn: sa.Connection, call_id: str, call_sid: str, agent_version: int) -> bool:
    """Before the INVITE of a queued call is sent: store its Call-ID, and the version of the agent that it has from now
    on. False when the call has ended, is another node's, or is dialled with another Call-ID: then it is not dialled."""
    changes = {"call": call_id, "call_sid": call_sid, "agent_version": agent_version, "updated_at": utc_now()}
    own = {"sid": call_sid, "own_node": own_node.filter_of(conn)}
    return conn.execute(_MARK_DIALLING, changes | own).rowcount == 1


def mark_ringing(conn: sa.Connection, call_id: str) -> bool:
    """Set a queued call to ringing. False (and nothing changes) in another status."""
    changes = {"call": call_id, "status": "ringing", "updated_at": utc_now()}
    return conn.execute(_UPDATE_QUEUED, changes).rowcount == 1


def mark_answered(conn: sa.Connection, call_id: str, at: datetime) -> bool:
    """Set a queued or ringing call to in_progress, answered `at`. False (and nothing changes) in another status."""
    changes = {"call": call_id, "status": "in_progress", "started_at": at, "updated_at": at}
    return conn.execute(_ANSWER, changes).rowcount == 1


def is_answered(conn: sa.Connection, call_id: str) -> bool:
    """True if the answer of the call is stored, or the call has ended."""
    started = conn.execute(_STARTED, {"call": call_id}).one_or_none()
    return started is None or started[0] is not None


def cost_so_far(conn: sa.Connection, call_id: str) -> float | None:
    """The cost of an open call that was billed by an end which was taken back; None for any other."""
    return conn.execute(_COST, {"call": call_id}).scalar_one_or_none()


def store_progress(
    conn: sa.Connection,
    call_id: str,
    *,
    transcript: Sequence[TranscriptItem],
    turn_count: int,
    timeline: Sequence[Mapping[str, Any]] = (),
    usage: Mapping[str, Any] | None = None,
) -> bool:
    """Store transcript, timeline and usage so far, so that they survive a crash. Returns False when the call has
    ended."""
    progress = {"transcript": list(transcript), "timeline": list(timeline), "turn_count": turn_count, "usage": usage}
    return conn.execute(_UPDATE_LIVE, {"call": call_id, **progress, "updated_at": utc_now()}).rowcount == 1


def finish(
    conn: sa.Connection,
    call_id: str,
    *,
    status: EndStatus,
    ended_reason: EndedReason,
    ended_at: datetime,
    answered_at: datetime | None = None,
    transcript: Sequence[TranscriptItem] = (),
    timeline: Sequence[Mapping[str, Any]] = (),
    recording: bool = False,
    recording_disabled: bool = False,
    turn_count: int = 0,
    analysis: Analysis | None = None,
    cost: float | None = None,
    media_quality: Mapping[str, Any] | None = None,
    sip_end: Mapping[str, Any] | None = None,
) -> Call | None:
    """End the call and return it as stored now; None (and nothing changes) when it had ended before. `durationSeconds`
    counts from the answer, 0 without one; `answered_at` is the time of the answer, in case it is not stored yet;
    a call that is not `completed` has none.
    `recording`: the recording's file can be served; `recording_disabled`: the call's agent does not record calls."""
    started = conn.execute(_STARTED, {"call": call_id}).one_or_none()
    if started is None:
        return None
    started_at = (started[0] or answered_at) if status == "completed" else None
    changes = {
        "call": call_id,
        "status": status,
        "started_at": started_at,
        "ended_reason": ended_reason,
        "ended_at": ended_at,
        "updated_at": ended_at,
        "duration_seconds": seconds_between(started_at, ended_at),
        "transcript": list(transcript),
        "timeline": list(timeline),
        "recorded": recording,
        "recording_absent_reason": "disabled" if recording_disabled and not recording else None,
        "turn_count": turn_count,
        "analysis": analysis,
        "cost": cost,
        "media_quality": media_quality,
        "sip_end": sip_end,
        "ending": None,
        **_figures(timeline),
    }
    row = conn.execute(_FINISH, changes).one_or_none()
    return None if row is None else CALL.build(row)


def _figures(timeline: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What statistics need of a timeline, which may be deleted before the call."""
    gaps = [max(turn["response_gap_ms"], 0) for turn in timeline if turn.get("response_gap_ms") is not None]
    return {
        "interruptions": sum(1 for turn in timeline if turn.get("interrupted")),
        "response_gaps": gaps,
        "longest_gap_ms": max(gaps, default=None),
    }


def seconds_between(started_at: datetime | None, ended_at: datetime) -> int:
    """Duration of a call that was answered at `started_at`, whole seconds; 0 without an answer."""
    return 0 if started_at is None else max(0, round((ended_at - started_at).total_seconds()))


def get(conn: sa.Connection, organization_id: str, call_id: str) -> Call | None:
    """By id, within the organization, complete."""
    row = conn.execute(_GET, {"call": call_id, "owner": organization_id}).one_or_none()
    return None if row is None else CALL.build(row)


def get_by_id(conn: sa.Connection, call_id: str) -> Call | None:
    """By id alone: for the server's own use and for signed links."""
    row = conn.execute(sa.select(*CALL.columns).where(_t.c.id == call_id)).one_or_none()
    return None if row is None else CALL.build(row)


def open_of_node(conn: sa.Connection, created_before: datetime) -> list[Call]:
    """The calls of this node that have no end, also no pending one, without queued ones; oldest first, complete."""
    where = (_t.c.ended_at.is_(None), _t.c.ending.is_(None), _t.c.status != "queued", _t.c.created_at < created_before)
    own = own_node.is_of(_t.c.node, None if (name := own_node.filter_of(conn)) is None else (name,))
    query = sa.select(*CALL.columns).where(*where, own).order_by(_t.c.created_at, _t.c.id)
    return [CALL.build(row) for row in conn.execute(query)]


def transfers_of(conn: sa.Connection, call_id: str) -> list[Call]:
    """The calls that a call was transferred to, oldest first, complete."""
    query = sa.select(*CALL.columns).where(_t.c.parent_call_id == call_id).order_by(_t.c.created_at, _t.c.id)
    return [CALL.build(row) for row in conn.execute(query)]
