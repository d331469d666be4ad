"""Deletion of calls and their parts, by retention periods or on request, in batches that block the writer for
milliseconds. A recording's file is removed after its row has been changed, so that no row refers to a removed file;
triggers list the files to remove in `recording_removals`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import sqlalchemy as sa

from config.clock import utc_now
from config.errors import Conflict, NotFound
from storage import tables
from storage.database import own_node

WEBHOOK_GRACE: Final = timedelta(days=7)
"""Additional time for data whose webhook is still pending."""
MIN_AGE: Final = timedelta(seconds=30)
"""Minimum time since the end of a call before anything of it is deleted, because its SIP trace is stored shortly after
its end."""
SIP_METADATA_PREFIX: Final = "sip."
"""Prefix of metadata names that come from the caller's SIP headers."""
AUDIT_DESTINATION_CHARACTERS: Final = 5
"""Characters of a destination that stay in the audit log: the country code and a little more."""

_t = tables.calls
_o = tables.organizations
_d = tables.webhook_deliveries
_a = tables.webhook_attempts
_audit = tables.outbound_attempts
_answers = tables.idempotent_answers
_transfers = tables.transfers
_removals = tables.recording_removals


@dataclass(frozen=True)
class RetentionCutoffs:
    """Calls of an organization that ended before these times lose recordings, transcripts or the whole row; None:
    nothing is deleted."""

    organization_id: str
    recordings: datetime | None
    transcripts: datetime | None
    calls: datetime | None


def retention_cutoffs(conn: sa.Connection, now: datetime) -> list[RetentionCutoffs]:
    """The cutoffs of the organizations that do not keep everything for ever."""
    days = (_o.c.keep_recordings_days, _o.c.keep_transcripts_days, _o.c.keep_calls_days)
    query = sa.select(_o.c.id, *days).where(sa.or_(*(each.is_not(None) for each in days)))
    return [RetentionCutoffs(row[0], *(_cutoff(now, each) for each in row[1:])) for row in conn.execute(query)]


def _cutoff(now: datetime, days: int | None) -> datetime | None:
    return None if days is None else now - max(timedelta(days=days), MIN_AGE)


def delete_recordings(conn: sa.Connection, organization_id: str, before: datetime, limit: int) -> int:
    """Mark the recordings of the calls that ended longest ago as deleted; their files are removed later. Returns their
    number."""
    old = (
        sa.select(_t.c.id)
        .where(_t.c.organization_id == organization_id, _t.c.recorded, _t.c.ended_at < before)
        .order_by(_t.c.ended_at)
        .limit(limit)
    )
    removed = {"recorded": False, "recording_removed_at": utc_now(), "recording_absent_reason": "retention"}
    return conn.execute(sa.update(_t).where(_t.c.id.in_(_ids(conn, old))).values(removed)).rowcount


def delete_transcripts(conn: sa.Connection, organization_id: str, before: datetime, limit: int) -> int:
    """Delete transcript, timeline, analysis, context variables, SIP headers, SIP trace, webhook and the texts of
    transfers of the calls that ended longest ago, except while the webhook is pending. Returns the number of calls."""
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
    changes = [{"call": row.id, "kept": _without_sip_headers(row.metadata)} for row in found]
    if changes:
        change = sa.update(_t).where(_t.c.id == sa.bindparam("call"))
        emptied_columns: dict[str, Any] = {"transcript": [], "timeline": [], "analysis": None, "context_variables": {}}
        conn.execute(change.values(**emptied_columns, metadata=sa.bindparam("kept"), talk_removed_at=now), changes)
        ids = [row.id for row in found]
        conn.execute(sa.delete(tables.call_sip).where(tables.call_sip.c.call_id.in_(ids)))
        conn.execute(sa.delete(_d).where(_d.c.call_id.in_(ids)))
        emptied = sa.update(_transfers).where(_transfers.c.parent_call_id.in_(ids))
        conn.execute(emptied.values(reason=None, summary=None, decline_reason=None))
    return len(found)


def _without_sip_headers(metadata: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if not name.startswith(SIP_METADATA_PREFIX)}


def delete_calls(conn: sa.Connection, organization_id: str, before: datetime, limit: int) -> int:
    """Delete the calls that were created longest ago, with the calls that they were transferred to. Returns their
    number."""
    transfer = _t.alias()
    has_later_transfer = sa.exists().where(
        transfer.c.parent_call_id == _t.c.id, sa.or_(transfer.c.ended_at.is_(None), transfer.c.ended_at >= before)
    )
    old = (
        sa.select(_t.c.id)
        .where(
            _t.c.organization_id == organization_id,
            _t.c.created_at < before,
            _t.c.ended_at < before,
            _t.c.parent_call_id.is_(None),
            ~has_later_transfer,
            _webhook_is_settled(before),
        )
        .order_by(_t.c.created_at)
        .limit(limit)
    )
    return _delete(conn, organization_id, _ids(conn, old))


def _webhook_is_settled(before: datetime) -> sa.ColumnElement[bool]:
    """The call has no pending webhook, or has had it for longer than `WEBHOOK_GRACE`."""
    waiting = sa.exists().where(_d.c.call_id == _t.c.id, _a.c.delivery_id == _d.c.id, _a.c.status == "pending")
    return sa.or_(~waiting, _t.c.ended_at < before - WEBHOOK_GRACE)


def delete_call(conn: sa.Connection, organization_id: str, call_id: str) -> None:
    """Delete a call and the calls that it was transferred to, with all their data, pending webhooks included. Raises
    `NotFound`, and `Conflict` while one of them has not ended."""
    family = sa.or_(_t.c.id == call_id, _t.c.parent_call_id == call_id)
    query = sa.select(_t.c.id, _t.c.ended_at, _t.c.organization_id).where(family)
    rows = [row for row in conn.execute(query) if row.organization_id == organization_id]
    # With the organization in the query, SQLite would read all of its calls.
    if not any(row.id == call_id for row in rows):
        raise NotFound("Call not found")
    if any(row.ended_at is None for row in rows):
        raise Conflict("The call has not ended")
    _delete(conn, organization_id, [call_id])


def delete_calls_of(conn: sa.Connection, organization_id: str, limit: int) -> int:
    """Delete calls of an organization, whatever their age, pending webhooks included. Returns their number."""
    query = sa.select(_t.c.id).where(_t.c.organization_id == organization_id, _t.c.parent_call_id.is_(None))
    return _delete(conn, organization_id, _ids(conn, query.limit(limit)))


def _delete(conn: sa.Connection, organization_id: str, call_ids: Sequence[str]) -> int:
    """Delete these calls; foreign keys delete their data. The audit log keeps the first characters of the number."""
    if not call_ids:
        return 0
    children = conn.execute(sa.select(_t.c.id).where(_t.c.parent_call_id.in_(call_ids))).scalars().all()
    family = [*call_ids, *children]
    shortened = sa.func.substr(_audit.c.destination, 1, AUDIT_DESTINATION_CHARACTERS) + "…"
    conn.execute(sa.update(_audit).where(_audit.c.call_id.in_(family)).values(destination=shortened, detail=None))
    below = sa.and_(_answers.c.path > sa.bindparam("from"), _answers.c.path < sa.bindparam("to"))
    answers = sa.delete(_answers).where(_answers.c.organization_id == organization_id, _answers.c.method == "POST")
    paths = [f"/v1/calls/{each}" for each in family]
    conn.execute(answers.where(below), [{"from": f"{path}/", "to": f"{path}0"} for path in paths])  # "0" follows "/"
    return conn.execute(sa.delete(_t).where(_t.c.id.in_(call_ids))).rowcount + len(children)


def _ids(conn: sa.Connection, query: sa.Select[Any]) -> list[str]:
    return list(conn.execute(query).scalars())


def pending_file_removals(conn: sa.Connection, *, limit: int, after: str = "") -> list[tuple[str, datetime]]:
    """Calls, with their creation, whose recordings' files are still to be removed by this node; sorted by id, those
    above `after`."""
    node = own_node.filter_of(conn)
    query = sa.select(_removals.c.call_id, _removals.c.created_at).where(_removals.c.call_id > after)
    if node is not None:
        query = query.where(sa.or_(_removals.c.node == node, _removals.c.node.is_(None)))
    return [(row[0], row[1]) for row in conn.execute(query.order_by(_removals.c.call_id).limit(limit))]


def finish_file_removals(conn: sa.Connection, call_ids: Sequence[str]) -> None:
    """Delete the entries of calls whose recordings' files have been removed."""
    conn.execute(sa.delete(_removals).where(_removals.c.call_id.in_(call_ids)))
