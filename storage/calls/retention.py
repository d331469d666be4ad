"""What of calls is removed when its time has come, in pieces that hold the writer for milliseconds. A row never
promises what is gone: a recording's file goes after its row has said so, and which files are to go stands in
`recording_removals` until they are gone, however the row went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from config.clock import utc_now
from config.errors import Conflict, NotFound
from storage import tables

WEBHOOK_GRACE: Final = timedelta(days=7)
"""How much longer something is kept whose webhook is still to be sent."""
MIN_AGE: Final = timedelta(seconds=30)
"""How long a call has ended before anything of it is removed: its SIP messages are stored a moment after its end."""
SIP_METADATA_PREFIX: Final = "sip."
"""How names of metadata begin that the caller's telephone has sent."""
KEPT_DIGITS: Final = 5
"""Characters of a destination that stay in the audit log: the country and a little more."""

_t = tables.calls
_o = tables.organizations
_d = tables.webhook_deliveries
_a = tables.webhook_attempts
_audit = tables.outbound_attempts
_answers = tables.idempotent_answers
_removals = tables.recording_removals


@dataclass(frozen=True)
class RetentionCutoffs:
    """Ends of an organization's calls before which something is not kept any more; None: it is."""

    organization_id: str
    recordings: datetime | None
    transcripts: datetime | None
    calls: datetime | None


def cutoffs_at(conn: sa.Connection, now: datetime) -> list[RetentionCutoffs]:
    """The organizations that do not keep everything for ever."""
    days = (_o.c.keep_recordings_days, _o.c.keep_transcripts_days, _o.c.keep_calls_days)
    query = sa.select(_o.c.id, *days).where(sa.or_(*(each.is_not(None) for each in days)))
    return [RetentionCutoffs(row[0], *(_cutoff(now, each) for each in row[1:])) for row in conn.execute(query)]


def _cutoff(now: datetime, days: int | None) -> datetime | None:
    return None if days is None else now - max(timedelta(days=days), MIN_AGE)


def drop_recordings(conn: sa.Connection, organization_id: str, before: datetime, limit: int) -> int:
    """Of the calls that ended longest ago: their recordings are served no more, and their files are to be removed.
    Returns how many there were."""
    old = (
        sa.select(_t.c.id)
        .where(_t.c.organization_id == organization_id, sa.text("recorded = 1"), _t.c.ended_at < before)
        .order_by(_t.c.ended_at)
        .limit(limit)
    )
    return conn.execute(sa.update(_t).where(_t.c.id.in_(_ids(conn, old))).values(recorded=False)).rowcount


def drop_transcripts(conn: sa.Connection, organization_id: str, before: datetime, limit: int) -> int:
    """Of the calls that ended longest ago: what was said, what was drawn from it or brought to it, the SIP messages and
    the webhook, except while that is still to be sent. Returns how many there were."""
    query = (
        sa.select(_t.c.id, _t.c.metadata)
        .where(
            _t.c.organization_id == organization_id,
            sa.text("talk_removed_at IS NULL AND calls.ended_at IS NOT NULL"),
            _t.c.ended_at < before,
            _webhook_is_settled(before),
        )
        .order_by(_t.c.ended_at)
        .limit(limit)
    )
    now, found = utc_now(), conn.execute(query).all()
    emptied = [{"call": row.id, "kept": _without_sip_headers(row.metadata)} for row in found]
    if emptied:
        change = sa.update(_t).where(_t.c.id == sa.bindparam("call"))
        nothing: dict[str, Any] = {"transcript": [], "timeline": [], "analysis": None, "context_variables": {}}
        conn.execute(change.values(**nothing, metadata=sa.bindparam("kept"), talk_removed_at=now), emptied)
        ids = [row.id for row in found]
        conn.execute(sa.delete(tables.call_sip).where(tables.call_sip.c.call_id.in_(ids)))
        conn.execute(sa.delete(_d).where(_d.c.call_id.in_(ids)))
    return len(found)


def _without_sip_headers(metadata: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if not name.startswith(SIP_METADATA_PREFIX)}


def drop_calls(conn: sa.Connection, organization_id: str, before: datetime, limit: int) -> int:
    """The calls that were made longest ago, whole, and the calls that they were handed on to. Returns how many there
    were."""
    later = _t.alias()
    goes_on = sa.exists().where(
        later.c.parent_call_id == _t.c.id, sa.or_(later.c.ended_at.is_(None), later.c.ended_at >= before)
    )
    old = (
        sa.select(_t.c.id)
        .where(
            _t.c.organization_id == organization_id,
            _t.c.created_at < before,
            _t.c.ended_at < before,
            _t.c.parent_call_id.is_(None),
            ~goes_on,
            _webhook_is_settled(before),
        )
        .order_by(_t.c.created_at)
        .limit(limit)
    )
    return _remove(conn, organization_id, _ids(conn, old))


def _webhook_is_settled(before: datetime) -> sa.ColumnElement[bool]:
    """Nothing of the call's webhook is still to be sent, or has been for too long."""
    waiting = sa.exists().where(_d.c.call_id == _t.c.id, _a.c.delivery_id == _d.c.id, _a.c.status == "pending")
    return sa.or_(~waiting, _t.c.ended_at < before - WEBHOOK_GRACE)


def remove_call(conn: sa.Connection, organization_id: str, call_id: str) -> None:
    """Remove a call and the calls that it was handed on to, and all that belongs to them, webhooks that are still to be
    sent included. Raises `NotFound`, and `Conflict` while one of them has not ended."""
    family = sa.or_(_t.c.id == call_id, _t.c.parent_call_id == call_id)
    query = sa.select(_t.c.id, _t.c.ended_at).where(_t.c.organization_id == organization_id, family)
    rows = conn.execute(query).all()
    if not any(row.id == call_id for row in rows):
        raise NotFound("Call not found")
    if any(row.ended_at is None for row in rows):
        raise Conflict("The call has not ended")
    _remove(conn, organization_id, [call_id])


def _remove(conn: sa.Connection, organization_id: str, call_ids: Sequence[str]) -> int:
    """These calls; foreign keys take along what belongs to them. Of whom they called, the audit log keeps the beginning
    of the number."""
    if not call_ids:
        return 0
    children = conn.execute(sa.select(_t.c.id).where(_t.c.parent_call_id.in_(call_ids))).scalars().all()
    family = [*call_ids, *children]
    shortened = sa.func.substr(_audit.c.destination, 1, KEPT_DIGITS) + "…"
    conn.execute(sa.update(_audit).where(_audit.c.call_id.in_(family)).values(destination=shortened, detail=None))
    below = sa.and_(_answers.c.path > sa.bindparam("from"), _answers.c.path < sa.bindparam("to"))
    answers = sa.delete(_answers).where(_answers.c.organization_id == organization_id, _answers.c.method == "POST")
    paths = [f"/v1/calls/{each}" for each in family]
    conn.execute(answers.where(below), [{"from": f"{path}/", "to": f"{path}0"} for path in paths])  # "0" follows "/"
    return conn.execute(sa.delete(_t).where(_t.c.id.in_(call_ids))).rowcount + len(children)


def _ids(conn: sa.Connection, query: sa.Select[Any]) -> list[str]:
    return list(conn.execute(query).scalars())


def files_to_remove(conn: sa.Connection, *, limit: int, after: str = "") -> list[tuple[str, datetime]]:
    """Calls, and when they were made, whose recordings' files may still be there; sorted by id, those `after` this."""
    query = sa.select(_removals.c.call_id, _removals.c.created_at).where(_removals.c.call_id > after)
    return [(row[0], row[1]) for row in conn.execute(query.order_by(_removals.c.call_id).limit(limit))]


def files_removed(conn: sa.Connection, call_ids: Sequence[str]) -> None:
    """The files of these calls are gone."""
    conn.execute(sa.delete(_removals).where(_removals.c.call_id.in_(call_ids)))
