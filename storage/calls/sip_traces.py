"""The SIP messages of ended calls, as they may be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypedDict

import sqlalchemy as sa

from storage import tables

_t = tables.call_sip
_PUT: Final = sa.insert(_t).prefix_with("OR REPLACE")


class StoredSipMessage(TypedDict):
    """One message, without its secrets. `at` is an ISO time, `offset_ms` counts from the call's first message; `again`:
    the same bytes had been on the wire before."""

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
    """A call's messages, oldest first; `left_out` of them, after the first ones, there was no room for."""

    messages: Sequence[StoredSipMessage]
    left_out: int = 0


def put(conn: sa.Connection, sips: Mapping[str, SipTrace]) -> None:
    """Store what was said over SIP in calls, by their ids; what was stored before is replaced. Calls that have been
    removed since are left out."""
    there = set(conn.execute(sa.select(tables.calls.c.id).where(tables.calls.c.id.in_(sips))).scalars())
    rows = [
        {"call_id": call, "messages": list(sip.messages), "left_out": sip.left_out}
        for call, sip in sips.items()
        if call in there
    ]
    if rows:
        conn.execute(_PUT, rows)


def get(conn: sa.Connection, call_id: str) -> SipTrace | None:
    """What was stored of a call; None when nothing was."""
    row = conn.execute(sa.select(_t.c.messages, _t.c.left_out).where(_t.c.call_id == call_id)).one_or_none()
    return None if row is None else SipTrace(row[0], row[1])
