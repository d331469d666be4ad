"""Transfers of calls to other numbers. The status changes initiated -> ringing -> briefing -> connected -> completed,
or from an open one to declined, no_answer, busy, voicemail, cancelled or failed; an ended transfer never changes
again. A call's latest transfer is also the call's `transfer_type` and `transfer_status`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, TypedDict

import sqlalchemy as sa

from config.clock import iso, utc_now
from storage import tables
from storage.tables.row_mapping import RowMapping

TransferMode = Literal["cold", "warm_briefing", "warm_announce", "attended"]
TransferStatus = Literal[
    "initiated",
    "ringing",
    "briefing",
    "connected",
    "completed",
    "declined",
    "no_answer",
    "busy",
    "voicemail",
    "cancelled",
    "failed",
]
RequestedBy = Literal["agent", "api", "dashboard"]
OPEN_STATUSES: Final[tuple[TransferStatus, ...]] = ("initiated", "ringing", "briefing", "connected")
"""The statuses of transfers that have not ended."""


@dataclass(frozen=True, kw_only=True)
class TransferOrder:
    """A request to transfer a call. `target` is a name of the agent's transfer targets, compared without case; `mode`
    None: the target's own."""

    target: str
    mode: TransferMode | None = None
    reason: str | None = None
    summary: str | None = None
    requested_by: RequestedBy


class TransferChanges(TypedDict, total=False):
    """The fields of an open transfer that `update` changes."""

    status: TransferStatus
    sip_status: int | None
    decline_reason: str | None
    attempts: Sequence[TransferAttempt]
    states: Sequence[TransferState]
    answered_at: datetime | None
    connected_at: datetime
    ended_at: datetime


class TransferAttempt(TypedDict):
    """One INVITE or REFER of a transfer. Times are ISO 8601 (`config.clock.iso`); `sipStatus` is the final status,
    None without one; `outcome` is why the attempt ended, None while it goes on."""

    number: str
    startedAt: str
    endedAt: str | None
    sipStatus: int | None
    outcome: str | None


class TransferState(TypedDict):
    """A status of a transfer, and when it was entered (ISO 8601)."""

    status: TransferStatus
    at: str


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """A stored transfer. Its child call, if there is one, has the same id. `states`: each status so far, in order; none
    for a transfer of a version that did not store them."""

    id: str
    organization_id: str
    parent_call_id: str
    mode: TransferMode
    status: TransferStatus
    target_name: str
    number: str
    reason: str | None
    summary: str | None
    requested_by: RequestedBy
    created_at: datetime
    sip_status: int | None = None
    decline_reason: str | None = None
    attempts: list[TransferAttempt] = field(default_factory=list)
    states: list[TransferState] = field(default_factory=list)
    answered_at: datetime | None = None
    connected_at: datetime | None = None
    ended_at: datetime | None = None


_TRANSFER = RowMapping(Transfer, tables.transfers)
_t = tables.transfers
_calls = tables.calls
_OPEN: Final = sa.and_(_t.c.ended_at.is_(None), _t.c.status.in_(OPEN_STATUSES))
_OF_CALL: Final = (
    sa.select(*_TRANSFER.columns)
    .where(_t.c.parent_call_id == sa.bindparam("parent"))
    .order_by(_t.c.created_at, _t.c.id)
)
_LATEST_ID: Final = (
    sa.select(_t.c.id)
    .where(_t.c.parent_call_id == sa.bindparam("parent"))
    .order_by(_t.c.created_at.desc(), _t.c.id.desc())
    .limit(1)
)


def insert(conn: sa.Connection, transfer: Transfer) -> None:
    """Store a transfer; the parent gets its type and status."""
    conn.execute(sa.insert(_t), {name: getattr(transfer, name) for name in _TRANSFER.names})
    parent = sa.update(_calls).where(_calls.c.id == transfer.parent_call_id)
    conn.execute(parent.values(transfer_type=transfer.mode, transfer_status=transfer.status))


def get(conn: sa.Connection, transfer_id: str) -> Transfer | None:
    """By id alone: for the server's own use."""
    row = conn.execute(sa.select(*_TRANSFER.columns).where(_t.c.id == transfer_id)).one_or_none()
    return None if row is None else _TRANSFER.build(row)


def update(
    conn: sa.Connection,
    transfer_id: str,
    *,
    status: TransferStatus | None = None,
    sip_status: int | None = None,
    decline_reason: str | None = None,
    attempts: Sequence[TransferAttempt] | None = None,
    states: Sequence[TransferState] | None = None,
    answered_at: datetime | None = None,
    connected_at: datetime | None = None,
    ended_at: datetime | None = None,
) -> Transfer | None:
    """Change an open transfer and return it as stored now; None leaves a field as it is. Returns None (and nothing
    changes) when the transfer has ended or does not exist. An ended one has an `ended_at`, by default now. The new
    status is also the one of the child call, and of the parent whose latest transfer this is. It is appended to the
    states, unless `states` replaces them."""
    given: dict[str, Any] = {
        "status": status,
        "sip_status": sip_status,
        "decline_reason": decline_reason,
        "attempts": None if attempts is None else list(attempts),
        "states": None if states is None else list(states),
        "answered_at": answered_at,
        "connected_at": connected_at,
        "ended_at": ended_at,
    }
    changes = {name: value for name, value in given.items() if value is not None}
    if status is not None and status not in OPEN_STATUSES:
        changes.setdefault("ended_at", utc_now())
    before = get(conn, transfer_id)
    if before is None or before.status not in OPEN_STATUSES or not changes:
        return before if before is not None and before.status in OPEN_STATUSES else None
    if status is not None and status != before.status and states is None:
        at = changes.get("ended_at") or connected_at or utc_now()
        changes["states"] = [*before.states, TransferState(status=status, at=iso(at))]
    statement = sa.update(_t).where(_t.c.id == transfer_id, _OPEN).values(**changes)
    row = conn.execute(statement.returning(*_TRANSFER.columns)).one_or_none()
    if row is None:
        return None
    stored = _TRANSFER.build(row)
    if status is not None:
        _show_status(conn, stored)
    return stored


def _show_status(conn: sa.Connection, transfer: Transfer) -> None:
    """Set the status of the transfer in its child call, and in the parent if no later transfer has one there."""
    shown = [transfer.id]
    if conn.execute(_LATEST_ID, {"parent": transfer.parent_call_id}).scalar_one() == transfer.id:
        shown.append(transfer.parent_call_id)
    conn.execute(sa.update(_calls).where(_calls.c.id.in_(shown)).values(transfer_status=transfer.status))


def of_call(conn: sa.Connection, parent_call_id: str) -> list[Transfer]:
    """The transfers of a call, oldest first."""
    return [_TRANSFER.build(row) for row in conn.execute(_OF_CALL, {"parent": parent_call_id})]


def organizations_of_open(conn: sa.Connection, nodes: Collection[str] | None = None) -> set[str]:
    """The organizations that have open transfers of these nodes, by default of all."""
    return set(conn.execute(_open_of(nodes).with_only_columns(_t.c.organization_id).distinct()).scalars())


def close_open(conn: sa.Connection, organization_id: str, now: datetime, nodes: Collection[str] | None = None) -> int:
    """End every open transfer of an organization at dead nodes, by default at all: connected as completed, the others
    as failed. Returns their number."""
    query = _open_of(nodes).where(_t.c.organization_id == organization_id)
    found = conn.execute(query).all()
    for row in found:
        update(conn, row.id, status="completed" if row.status == "connected" else "failed", ended_at=now)
    return len(found)


def _open_of(nodes: Collection[str] | None) -> sa.Select[Any]:
    query = sa.select(_t.c.id, _t.c.status).where(_OPEN)
    if nodes is None:
        return query
    return query.join(tables.calls, tables.calls.c.id == _t.c.parent_call_id).where(tables.calls.c.node.in_(nodes))
