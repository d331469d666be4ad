"""Pending finalization: the leg of a call has ended, and its analysis is still under way. The end is stored in
`calls.ending`, so that it survives a crash. Until `calls.finish` the call is in_progress."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, cast

import sqlalchemy as sa

from config.clock import iso, utc_now
from storage import tables
from storage.calls import transfers
from storage.calls.calls import Call, EndedReason, EndStatus, TranscriptItem, finish, get_by_id, seconds_between
from storage.database.own_node import is_of, name_of

_t = tables.calls
_OPEN: Final = sa.and_(_t.c.id == sa.bindparam("call"), _t.c.ended_at.is_(None))
_STORE: Final = sa.update(_t).where(_OPEN)
_STORED: Final = sa.select(_t.c.started_at, _t.c.status).where(_OPEN)
_ENDING: Final = sa.select(_t.c.ending).where(_OPEN)
_UNCLOSED: Final = sa.select(_t.c.id).where(_t.c.ended_at.is_(None)).order_by(_t.c.created_at, _t.c.id)
_OWNERS: Final = sa.select(_t.c.organization_id).where(_t.c.ended_at.is_(None)).distinct()
_INTERRUPTED: Final = _UNCLOSED.where(_t.c.ending.is_(None))
_PENDING: Final = _UNCLOSED.add_columns(_t.c.ending).where(_t.c.ending.is_not(None))


@dataclass(frozen=True)
class PendingFinalization:
    """The end of a call that is not finalized yet. `usage` is its metered usage for billing, as JSON."""

    status: EndStatus
    reason: EndedReason
    ended_at: datetime
    usage: Mapping[str, Any] = field(default_factory=dict)


def store(
    conn: sa.Connection,
    call_id: str,
    pending: PendingFinalization,
    *,
    answered_at: datetime | None = None,
    transcript: Sequence[TranscriptItem] = (),
    timeline: Sequence[Mapping[str, Any]] = (),
    recording: bool = False,
    turn_count: int = 0,
    media_quality: Mapping[str, Any] | None = None,
    sip_end: Mapping[str, Any] | None = None,
) -> bool:
    """Store the end of the call with its record so far. Returns False (and nothing changes) when the call is finished
    already. `answered_at` is the time of the answer, in case it is not stored yet; a call that is not
    `completed` has none."""
    stored = conn.execute(_STORED, {"call": call_id}).one_or_none()
    if stored is None:
        return False
    started_at = (stored.started_at or answered_at) if pending.status == "completed" else None
    changes = {
        "call": call_id,
        "status": stored.status if started_at is None else "in_progress",
        "ending": _as_json(pending),
        "started_at": started_at,
        "updated_at": utc_now(),
        "transcript": list(transcript),
        "timeline": list(timeline),
        "recorded": recording,
        "turn_count": turn_count,
        "media_quality": media_quality,
        "sip_end": sip_end,
    }
    return conn.execute(_STORE, changes).rowcount == 1


def organizations_of_open_calls(conn: sa.Connection, nodes: Collection[str] | None = None) -> list[str]:
    """The organizations that have open calls or transfers of these nodes, by default of all."""
    found = set(conn.execute(_OWNERS.where(is_of(_t.c.node, nodes))).scalars())
    return sorted(found | transfers.organizations_of_open(conn, nodes))


def end_interrupted_calls(
    conn: sa.Connection,
    organization_id: str,
    last_recorded: Callable[[Call], datetime | None],
    nodes: Collection[str] | None = None,
) -> list[Call]:
    """End every live call of an organization at dead nodes, by default at all, that has no pending end, with
    `server_restart`: in_progress as completed, the others as failed. `last_recorded` returns when the call's recording
    was last written (None: there is none); the call ended then, or at its last stored change. The stored transcript
    stays. Returns the calls as stored now, so that the caller stores their webhooks in the same transaction."""
    of_organization = _INTERRUPTED.where(_t.c.organization_id == organization_id)
    found = conn.execute(of_organization.where(is_of(_t.c.node, nodes))).scalars().all()
    interrupted = [get_by_id(conn, call_id) for call_id in found]
    closed = []
    for call in interrupted:
        if call is None:
            continue
        recorded_at = last_recorded(call)
        ended = finish(
            conn,
            call.id,
            status="completed" if call.status == "in_progress" else "failed",
            ended_reason="server_restart",
            ended_at=max(call.updated_at, recorded_at or call.updated_at),
            transcript=call.transcript,
            timeline=call.timeline,
            recording=recorded_at is not None,
            turn_count=call.turn_count,
        )
        if ended is not None:
            closed.append(ended)
    return closed


def of_call(conn: sa.Connection, call_id: str) -> PendingFinalization | None:
    """The pending end of a call; None for a live, a finished or an unknown call."""
    found = conn.execute(_ENDING, {"call": call_id}).scalar_one_or_none()
    return None if found is None else _of_json(found)


def take_over_pending(
    conn: sa.Connection, organization_id: str, nodes: Collection[str] | None = None
) -> list[tuple[Call, PendingFinalization]]:
    """The calls of an organization with a pending end at dead nodes, by default at all, oldest first. They are of this
    node from now on, so that no other one finalizes them as well."""
    rows = conn.execute(_PENDING.where(_t.c.organization_id == organization_id, is_of(_t.c.node, nodes))).all()
    taken = sa.update(_t).where(_t.c.id.in_([row.id for row in rows]))
    conn.execute(taken.values(node=name_of(conn), recording_node=tables.recording_node))
    found = [(get_by_id(conn, call_id), _of_json(ending)) for call_id, ending in rows]
    return [(call, ending) for call, ending in found if call is not None]


def with_end(call: Call, pending: PendingFinalization) -> Call:
    """Returns the call with the fields of its end, without analysis and cost."""
    return replace(
        call,
        status=pending.status,
        ended_reason=pending.reason,
        ended_at=pending.ended_at,
        duration_seconds=seconds_between(call.started_at, pending.ended_at),
    )


def _as_json(pending: PendingFinalization) -> dict[str, Any]:
    return {
        "status": pending.status,
        "reason": pending.reason,
        "endedAt": iso(pending.ended_at),
        "usage": dict(pending.usage),
    }


def _of_json(stored: Mapping[str, Any]) -> PendingFinalization:
    return PendingFinalization(
        cast(EndStatus, stored["status"]),
        cast(EndedReason, stored["reason"]),
        datetime.fromisoformat(stored["endedAt"]),
        stored["usage"],
    )
