"""Calls whose leg has ended while their analysis is still being made: how they ended is kept in `calls.ending`, so that
a crash does not lose it. Until they are closed (`calls.finish`) they are in progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, cast

import sqlalchemy as sa

from config.clock import iso, utc_now
from storage import tables
from storage.calls.calls import Call, EndedReason, EndStatus, TranscriptItem, finish, get_by_id, seconds_between

_t = tables.calls
_OPEN: Final = sa.and_(_t.c.id == sa.bindparam("call"), _t.c.ended_at.is_(None))
_STORE: Final = sa.update(_t).where(_OPEN)
_STORED: Final = sa.select(_t.c.started_at, _t.c.status).where(_OPEN)
_ENDING: Final = sa.select(_t.c.ending).where(_OPEN)
_UNCLOSED: Final = sa.select(_t.c.id).where(_t.c.ended_at.is_(None)).order_by(_t.c.created_at, _t.c.id)
_INTERRUPTED: Final = _UNCLOSED.where(_t.c.ending.is_(None))
_PENDING: Final = _UNCLOSED.add_columns(_t.c.ending).where(_t.c.ending.is_not(None))


@dataclass(frozen=True)
class PendingEnd:
    """How a call ended, beyond what its other columns hold. `usage` is what it is billed by, as JSON."""

    status: EndStatus
    reason: EndedReason
    ended_at: datetime
    usage: Mapping[str, Any] = field(default_factory=dict)


def store_pending(
    conn: sa.Connection,
    call_id: str,
    ending: PendingEnd,
    *,
    answered_at: datetime | None = None,
    transcript: Sequence[TranscriptItem] = (),
    timeline: Sequence[Mapping[str, Any]] = (),
    recording: bool = False,
    turn_count: int = 0,
    media_quality: Mapping[str, Any] | None = None,
    sip_end: Mapping[str, Any] | None = None,
) -> bool:
    """Keep how the call ended, and all that is known of it. False (and nothing changes) when it is closed already.
    `answered_at` is when it was answered, should that not be stored yet."""
    stored = conn.execute(_STORED, {"call": call_id}).one_or_none()
    if stored is None:
        return False
    started_at = stored.started_at or answered_at
    changes = {
        "call": call_id,
        "status": stored.status if started_at is None else "in_progress",
        "ending": _as_json(ending),
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


def close_interrupted(conn: sa.Connection, last_heard: Callable[[Call], datetime | None]) -> list[Call]:
    """End every call that a dead process left live and of which no ending is kept, with `server_restart`: in_progress
    as completed, the others as failed. `last_heard` says when the call's recording was last written (None: there is
    none); the call ended then, or at its last stored change. What was stored of its talk stays. Returns the calls as
    they are now stored, so that the caller writes their webhook rows in the same transaction."""
    left = [get_by_id(conn, call_id) for call_id in conn.execute(_INTERRUPTED).scalars().all()]
    closed = []
    for call in left:
        if call is None:
            continue
        heard = last_heard(call)
        ended = finish(
            conn,
            call.id,
            status="completed" if call.status == "in_progress" else "failed",
            ended_reason="server_restart",
            ended_at=max(call.updated_at, heard or call.updated_at),
            transcript=call.transcript,
            timeline=call.timeline,
            recording=heard is not None,
            turn_count=call.turn_count,
        )
        if ended is not None:
            closed.append(ended)
    return closed


def of_call(conn: sa.Connection, call_id: str) -> PendingEnd | None:
    """How a call ended that waits to be closed; None for one that goes on, is closed or does not exist."""
    found = conn.execute(_ENDING, {"call": call_id}).scalar_one_or_none()
    return None if found is None else _of_json(found)


def pending(conn: sa.Connection) -> list[tuple[Call, PendingEnd]]:
    """The calls that wait to be closed, oldest first."""
    found = [(get_by_id(conn, call_id), _of_json(ending)) for call_id, ending in conn.execute(_PENDING).all()]
    return [(call, ending) for call, ending in found if call is not None]


def as_ended(call: Call, ending: PendingEnd) -> Call:
    """The call as it will be once it is closed, but for its analysis and its cost."""
    return replace(
        call,
        status=ending.status,
        ended_reason=ending.reason,
        ended_at=ending.ended_at,
        duration_seconds=seconds_between(call.started_at, ending.ended_at),
    )


def _as_json(ending: PendingEnd) -> dict[str, Any]:
    return {
        "status": ending.status,
        "reason": ending.reason,
        "endedAt": iso(ending.ended_at),
        "usage": dict(ending.usage),
    }


def _of_json(stored: Mapping[str, Any]) -> PendingEnd:
    return PendingEnd(
        cast(EndStatus, stored["status"]),
        cast(EndedReason, stored["reason"]),
        datetime.fromisoformat(stored["endedAt"]),
        stored["usage"],
    )
