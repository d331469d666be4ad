"""SIP traces of ended calls, without secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

import sqlalchemy as sa

from storage import tables

_t = tables.call_sip
_DELETE: Final = sa.delete(_t).where(_t.c.call_id.in_(sa.bindparam("calls", expanding=True)))
_PUT: Final = sa.insert(_t)


class StoredSipMessage(TypedDict):
    """A SIP message without its secrets. `at` is an ISO 8601 time, `offset_ms` counts from the call's first message;
    `again`: a retransmission, with the same bytes."""

    at: str
    offset_ms: int
    direction: Literal["received", "sent"]
    transport: str
    source: str
    target: str
    summary: str
    cseq: int
    sdp: bool
    again: bool
    text: str


@dataclass(frozen=True)
class SipTrace:
    """A call's SIP messages, oldest first; `left_out` is the number of later messages that exceeded the limit."""

    messages: Sequence[StoredSipMessage]
    left_out: int = 0


def store(conn: sa.Connection, traces: Mapping[str, SipTrace]) -> None:
    """Store the traces of calls, by their ids; a stored trace is replaced. Calls that have been deleted since are
    skipped."""
    calls = tables.calls.c
    found = sa.select(calls.id).where(calls.id.in_(traces)).order_by(calls.id)
    existing = set(conn.execute(found.with_for_update(read=True, key_share=True)).scalars())
    rows = [
        {"call_id": call, "messages": list(trace.messages), "left_out": trace.left_out}
        for call, trace in traces.items()
        if call in existing
    ]
    if rows:
        conn.execute(_DELETE, {"calls": sorted(existing)})
        conn.execute(_PUT, rows)


def get(conn: sa.Connection, call_id: str) -> SipTrace | None:
    """The stored trace of a call; None when there is none."""
    row = conn.execute(sa.select(_t.c.messages, _t.c.left_out).where(_t.c.call_id == call_id)).one_or_none()
    return None if row is None else SipTrace(row[0], row[1])
