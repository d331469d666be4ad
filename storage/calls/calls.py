"""Calls. Status moves queued -> ringing -> in_progress -> completed, or from queued and ringing to no_answer or
failed; an ended call never changes again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NotRequired, TypedDict
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.agents.agents import AGENT, Agent
from storage.phone_numbers.phone_numbers import NUMBER, PhoneNumber
from storage.tables.row_mapping import ResultPage, RowMapping

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


class TranscriptItem(TypedDict):
    """One thing that was said and heard; `role` is user or assistant."""

    role: str
    content: str


class Analysis(TypedDict):
    """What was drawn from the conversation after it (`calls.post_call.analysis`). `error`: why not by the model."""

    summary: str | None
    extractions: dict[str, Any]
    method: NotRequired[Literal["model", "extractive"]]
    error: NotRequired[str]


@dataclass(frozen=True, kw_only=True)
class CallRow:
    """A stored call without its talk. `cost` None: not billed. `recorded`: the file at `recordings.path_of` counts."""

    id: str
    organization_id: str
    agent_id: str | None
    phone_number_id: str | None
    call_sid: str | None
    provider: str | None
    direction: Direction
    status: Status
    customer_number: str
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
    """What RTP was like (`sipcore.audio.call_quality`)."""
    sip_end: dict[str, Any] | None = None
    """The final SIP status and its reason, as far as there was one."""


@dataclass(frozen=True, kw_only=True)
class Call(CallRow):
    """A stored call with its talk."""

    transcript: list[TranscriptItem]
    analysis: Analysis | None
    timeline: list[dict[str, Any]]
    usage: dict[str, Any] | None = None
    """What it is billed by, as far as it is known (`calls.call_record.metering`)."""


@dataclass(frozen=True)
class CallFilter:
    """What a list of calls is narrowed to; the times bound `created_at`, both ends included."""

    agent_id: str | None = None
    status: Status | None = None
    direction: Direction | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class QueuedCall:
    """A call that waits to be placed, with its agent and the number that it is placed from; None: deleted since."""

    call: Call
    agent: Agent | None
    number: PhoneNumber | None


@dataclass(frozen=True)
class OpenCallCounts:
    """Calls that have not ended: of one organization, and of all."""

    organization: int
    everywhere: int


_CALL = RowMapping(Call, tables.calls)
_ROW = RowMapping(CallRow, tables.calls)
_t = tables.calls
_GET: Final = sa.select(*_CALL.columns).where(
    _t.c.id == sa.bindparam("call"), _t.c.organization_id == sa.bindparam("owner")
)
_AGENT_AT: Final = len(_CALL.columns)
_NUMBER_AT: Final = _AGENT_AT + len(AGENT.columns)
_QUEUED: Final = (
    sa.select(*_CALL.columns, *AGENT.columns, *NUMBER.columns)
    .select_from(
        _t.outerjoin(tables.agents, tables.agents.c.id == _t.c.agent_id).outerjoin(
            tables.phone_numbers, tables.phone_numbers.c.id == _t.c.phone_number_id
        )
    )
    .where(_t.c.status == "queued", _t.c.ended_at.is_(None), _t.c.ending.is_(None))
    .where(_t.c.id.not_in(sa.bindparam("known", expanding=True)))
    .order_by(_t.c.created_at, _t.c.id)
)
_COUNT_OPEN: Final = sa.select(
    sa.func.count().filter(_t.c.organization_id == sa.bindparam("owner")), sa.func.count()
).where(_t.c.ended_at.is_(None), _t.c.ending.is_(None))
_COUNT_OPEN_BUT: Final = _COUNT_OPEN.where(_t.c.id.not_in(sa.bindparam("gone", expanding=True)))
_INSERT: Final = sa.insert(_t)
_OF_LIVE: Final = sa.and_(_t.c.id == sa.bindparam("call"), _t.c.ended_at.is_(None))
_UPDATE_LIVE: Final = sa.update(_t).where(_OF_LIVE, _t.c.ending.is_(None))
_UPDATE_QUEUED: Final = sa.update(_t).where(_t.c.id == sa.bindparam("call"), _t.c.status == "queued")
_ANSWER: Final = sa.update(_t).where(_t.c.id == sa.bindparam("call"), _t.c.status.in_(("queued", "ringing")))
_STARTED: Final = sa.select(_t.c.started_at).where(_OF_LIVE)
_FINISH: Final = sa.update(_t).where(_OF_LIVE).returning(*_CALL.columns)
# What every call asks for stands here ready: to build a statement takes SQLAlchemy longer than SQLite takes to run it.


def create_inbound(
    conn: sa.Connection,
    *,
    organization_id: str,
    agent_id: str,
    phone_number_id: str,
    provider: str,
    call_sid: str,
    customer_number: str,
    context_variables: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Call:
    """Store an inbound call as it arrives; it starts at ringing. `call_sid` is the SIP Call-ID."""
    made = new_inbound(
        organization_id=organization_id,
        agent_id=agent_id,
        phone_number_id=phone_number_id,
        provider=provider,
        call_sid=call_sid,
        customer_number=customer_number,
        context_variables=context_variables,
        metadata=metadata,
    )
    insert(conn, made)
    return made


def new_inbound(
    *,
    organization_id: str,
    agent_id: str,
    phone_number_id: str,
    provider: str,
    call_sid: str,
    customer_number: str,
    context_variables: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Call:
    """What `create_inbound` stores."""
    return _new(
        organization_id=organization_id,
        agent_id=agent_id,
        phone_number_id=phone_number_id,
        call_sid=call_sid,
        provider=provider,
        direction="inbound",
        status="ringing",
        customer_number=customer_number,
        context_variables=dict(context_variables or {}),
        metadata=dict(metadata or {}),
    )


def create_outbound(
    conn: sa.Connection,
    *,
    organization_id: str,
    agent_id: str,
    phone_number_id: str,
    provider: str,
    customer_number: str,
    context_variables: Mapping[str, Any],
    metadata: Mapping[str, Any],
) -> Call:
    """Store a call that is to be placed; it starts at queued."""
    made = _new(
        organization_id=organization_id,
        agent_id=agent_id,
        phone_number_id=phone_number_id,
        call_sid=None,
        provider=provider,
        direction="outbound",
        status="queued",
        customer_number=customer_number,
        context_variables=dict(context_variables),
        metadata=dict(metadata),
    )
    insert(conn, made)
    return made


def _new(**facts: Any) -> Call:
    at = utc_now()
    return Call(
        **facts,
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


def insert(conn: sa.Connection, call: Call) -> None:
    """Store a call as it is."""
    conn.execute(_INSERT, {name: getattr(call, name) for name in _CALL.names})


def insert_missing(conn: sa.Connection, call: Call) -> None:
    """Store a call as it is, unless it is stored."""
    if conn.execute(sa.select(_t.c.id).where(_t.c.id == call.id)).one_or_none() is None:
        insert(conn, call)


def queued(conn: sa.Connection, but_not: Collection[str]) -> list[QueuedCall]:
    """The calls that wait to be placed, oldest first, without those that are known already."""
    found = []
    for row in conn.execute(_QUEUED, {"known": sorted(but_not)}):
        call, agent, number = row[:_AGENT_AT], row[_AGENT_AT:_NUMBER_AT], row[_NUMBER_AT:]
        found.append(
            QueuedCall(
                _CALL.build(call),
                None if agent[0] is None else AGENT.build(agent),
                None if number[0] is None else NUMBER.build(number),
            )
        )
    return found


def count_open(conn: sa.Connection, organization_id: str, but_not: Collection[str] = ()) -> OpenCallCounts:
    """How many calls have not ended, without those of the given ids and those that only wait to be closed."""
    asked = {"owner": organization_id, **({"gone": sorted(but_not)} if but_not else {})}
    return OpenCallCounts(*conn.execute(_COUNT_OPEN_BUT if but_not else _COUNT_OPEN, asked).one())


def mark_dialling(conn: sa.Connection, call_id: str, call_sid: str) -> bool:
    """The INVITE of a queued call is about to be sent, with this Call-ID. False when the call has ended."""
    changes = {"call": call_id, "call_sid": call_sid, "updated_at": utc_now()}
    return conn.execute(_UPDATE_LIVE, changes).rowcount == 1


def mark_ringing(conn: sa.Connection, call_id: str) -> bool:
    """A queued call rings. False (and nothing changes) when it is in another state."""
    changes = {"call": call_id, "status": "ringing", "updated_at": utc_now()}
    return conn.execute(_UPDATE_QUEUED, changes).rowcount == 1


def mark_answered(conn: sa.Connection, call_id: str, at: datetime) -> bool:
    """The call was answered `at`. False (and nothing changes) unless it was queued or ringing."""
    changes = {"call": call_id, "status": "in_progress", "started_at": at, "updated_at": at}
    return conn.execute(_ANSWER, changes).rowcount == 1


def store_progress(
    conn: sa.Connection,
    call_id: str,
    *,
    transcript: Sequence[TranscriptItem],
    turn_count: int,
    timeline: Sequence[Mapping[str, Any]] = (),
    usage: Mapping[str, Any] | None = None,
) -> bool:
    """Keep what has been said so far, and when, and what that took, so that a crash does not lose it. False when the
    call has ended."""
    talk = {"transcript": list(transcript), "timeline": list(timeline), "turn_count": turn_count, "usage": usage}
    return conn.execute(_UPDATE_LIVE, {"call": call_id, **talk, "updated_at": utc_now()}).rowcount == 1


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
    turn_count: int = 0,
    analysis: Analysis | None = None,
    cost: float | None = None,
    media_quality: Mapping[str, Any] | None = None,
    sip_end: Mapping[str, Any] | None = None,
) -> Call | None:
    """End the call and return it as it is now stored; None (and nothing changes) when it had ended before.
    `durationSeconds` counts from the answer, 0 without one; `answered_at` is when that was, should it not be stored
    yet. `recording`: its file is complete enough to serve."""
    started = conn.execute(_STARTED, {"call": call_id}).one_or_none()
    if started is None:
        return None
    started_at = started[0] or answered_at
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
        "turn_count": turn_count,
        "analysis": analysis,
        "cost": cost,
        "media_quality": media_quality,
        "sip_end": sip_end,
        "ending": None,
    }
    row = conn.execute(_FINISH, changes).one_or_none()
    return None if row is None else _CALL.build(row)


def seconds_between(started_at: datetime | None, ended_at: datetime) -> int:
    """How long a call took that was answered at `started_at`; 0 when it never was."""
    return 0 if started_at is None else max(0, round((ended_at - started_at).total_seconds()))


def get(conn: sa.Connection, organization_id: str, call_id: str) -> Call | None:
    """By id, within the organization, with its talk."""
    row = conn.execute(_GET, {"call": call_id, "owner": organization_id}).one_or_none()
    return None if row is None else _CALL.build(row)


def get_by_id(conn: sa.Connection, call_id: str) -> Call | None:
    """By id alone: for the server's own use and for links that carry a signature."""
    row = conn.execute(sa.select(*_CALL.columns).where(_t.c.id == call_id)).one_or_none()
    return None if row is None else _CALL.build(row)


def transfers_of(conn: sa.Connection, call_id: str) -> list[Call]:
    """The calls that a call was handed on to, oldest first, with their talk."""
    query = sa.select(*_CALL.columns).where(_t.c.parent_call_id == call_id).order_by(_t.c.created_at, _t.c.id)
    return [_CALL.build(row) for row in conn.execute(query)]


def page(
    conn: sa.Connection, organization_id: str, *, limit: int, offset: int, only: CallFilter
) -> ResultPage[CallRow]:
    """Newest first, without the talk."""
    where = [_t.c.organization_id == organization_id, *_conditions(only)]
    total = conn.execute(sa.select(sa.func.count()).select_from(_t).where(*where)).scalar_one()
    query = sa.select(*_ROW.columns).where(*where).order_by(_t.c.created_at.desc(), _t.c.id)
    rows = conn.execute(query.limit(limit).offset(offset))
    return ResultPage([_ROW.build(row) for row in rows], total)


def _conditions(only: CallFilter) -> list[sa.ColumnElement[bool]]:
    wanted = {"agent_id": only.agent_id, "status": only.status, "direction": only.direction}
    where = [_t.c[name] == value for name, value in wanted.items() if value is not None]
    if only.since is not None:
        where.append(_t.c.created_at >= only.since)
    if only.until is not None:
        where.append(_t.c.created_at <= only.until)
    return where
