"""Audit log of changes to organizations and to the installation: actor, action and detail. Rows are never updated, and
are deleted when they are old."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final
from uuid import uuid4

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.tables.row_mapping import RowMapping


@dataclass(frozen=True, kw_only=True)
class AuditEntry:
    """`organization_id` is None for a change of the whole installation; `actor`: the user's name; `action`: for example
    `trunk.allow`; `detail`: a text about its object."""

    id: str
    organization_id: str | None
    created_at: datetime
    actor: str
    action: str
    call_id: str | None = None
    detail: str | None = None


_ENTRY: Final = RowMapping(AuditEntry, tables.audit_entries)
_t = tables.audit_entries


def record(
    conn: sa.Connection,
    organization_id: str | None,
    *,
    actor: str,
    action: str,
    detail: str | None = None,
    call_id: str | None = None,
) -> AuditEntry:
    """Store an entry, in the transaction that makes the change."""
    entry = AuditEntry(
        id=str(uuid4()), organization_id=organization_id, created_at=utc_now(), actor=actor, action=action,
        call_id=call_id, detail=detail,
    )  # fmt: skip
    conn.execute(sa.insert(_t), asdict(entry))
    return entry


def entries_since(conn: sa.Connection, organization_id: str | None, at: datetime) -> list[AuditEntry]:
    """An organization's entries, or with None those of the whole installation, from `at` on, oldest first."""
    query = sa.select(*_ENTRY.columns).where(_t.c.organization_id == organization_id, _t.c.created_at >= at)
    return [_ENTRY.build(row) for row in conn.execute(query.order_by(_t.c.created_at, _t.c.id))]


def delete_before(conn: sa.Connection, before: datetime) -> int:
    """Delete entries from before that time; returns their number."""
    return conn.execute(sa.delete(_t).where(_t.c.created_at < before)).rowcount
