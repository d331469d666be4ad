"""Knowledge documents: what was uploaded for agents, and how far it is read: pending, then processing, then ready or
failed. A document's file is there before its row. What a deleted one leaves behind, its file and its chunks, stands in
`knowledge_removals` until it is removed too, however the row went: by itself, with its agent or its organization."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final, Literal

import sqlalchemy as sa

from config.clock import utc_now
from storage import knowledge_index, tables
from storage.documents.chunks import Chunk
from storage.rows import Page, Shape

DocumentStatus = Literal["pending", "processing", "ready", "failed"]


@dataclass(frozen=True, kw_only=True)
class DocumentFields:
    """What is told of an upload. `file_size` in bytes, `sha256` of the file in hex."""

    agent_id: str
    name: str
    filename: str
    mime_type: str
    file_size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Document(DocumentFields):
    """A stored document. `chunk_count` are the passages that are stored by now; `error` says why it is failed."""

    id: str
    organization_id: str
    status: DocumentStatus
    chunk_count: int
    error: str | None
    created_at: datetime
    updated_at: datetime


DOCUMENT: Final = Shape(Document, tables.knowledge_documents)
_t = tables.knowledge_documents
_removals = tables.knowledge_removals


def create(conn: sa.Connection, organization_id: str, document_id: str, fields: DocumentFields) -> Document:
    """Store a new document, whose file is there already, to be read."""
    at = utc_now()
    made = Document(
        **asdict(fields),
        id=document_id,
        organization_id=organization_id,
        status="pending",
        chunk_count=0,
        error=None,
        created_at=at,
        updated_at=at,
    )
    conn.execute(sa.insert(_t).values(**asdict(made)))
    return made


def get(conn: sa.Connection, organization_id: str, document_id: str) -> Document | None:
    """By id, within the organization."""
    query = sa.select(*DOCUMENT.columns).where(_t.c.id == document_id, _t.c.organization_id == organization_id)
    row = conn.execute(query).one_or_none()
    return None if row is None else DOCUMENT.build(row)


def page(
    conn: sa.Connection, organization_id: str, *, limit: int, offset: int, agent_id: str | None = None
) -> Page[Document]:
    """Newest first; of one agent, or of all."""
    where = _t.c.organization_id == organization_id
    if agent_id is not None:
        where = sa.and_(where, _t.c.agent_id == agent_id)
    total = conn.execute(sa.select(sa.func.count()).select_from(_t).where(where)).scalar_one()
    query = sa.select(*DOCUMENT.columns).where(where).order_by(_t.c.created_at.desc(), _t.c.id)
    rows = conn.execute(query.limit(limit).offset(offset))
    return Page([DOCUMENT.build(row) for row in rows], total)


def delete(conn: sa.Connection, organization_id: str, document_id: str) -> bool:
    """Forget the document: nobody finds it any more. False when there is none."""
    gone = conn.execute(sa.delete(_t).where(_t.c.id == document_id, _t.c.organization_id == organization_id))
    return gone.rowcount == 1


def begin_again(conn: sa.Connection) -> None:
    """What was being read when the last process ended is pending again."""
    conn.execute(sa.update(_t).where(_t.c.status == "processing").values(status="pending", updated_at=utc_now()))


def begin(conn: sa.Connection, *, most: int) -> list[Document]:
    """The documents that have waited longest are processing from now on; these are they."""
    oldest = sa.select(_t.c.id).where(_t.c.status == "pending").order_by(_t.c.created_at, _t.c.id).limit(most)
    taken = (
        sa.update(_t)
        .where(_t.c.id.in_(conn.execute(oldest).scalars().all()))
        .values(status="processing", chunk_count=0, updated_at=utc_now())
        .returning(*DOCUMENT.columns)
    )
    return sorted((DOCUMENT.build(row) for row in conn.execute(taken)), key=lambda each: (each.created_at, each.id))


def add_chunks(conn: sa.Connection, document: Document, chunks: Sequence[Chunk]) -> bool:
    """Store the next passages of a document that is processing; searches do not find them yet. False, and nothing is
    stored, when the document has been deleted."""
    if not _change(conn, document.id, chunk_count=chunks[-1].position + 1):
        return False
    knowledge_index.add(conn, document.id, document.agent_id, chunks)
    return True


def finish(conn: sa.Connection, document_id: str) -> bool:
    """All passages are stored: searches find them from now on. False when the document has been deleted."""
    return _change(conn, document_id, status="ready")


def fail(conn: sa.Connection, document_id: str, reason: str) -> bool:
    """The document cannot be read; `reason` is for clients. False when it has been deleted."""
    return _change(conn, document_id, status="failed", chunk_count=0, error=reason)


def _change(conn: sa.Connection, document_id: str, **values: object) -> bool:
    """Of a document that is processing."""
    change = sa.update(_t).where(_t.c.id == document_id, _t.c.status == "processing")
    return conn.execute(change.values(**values, updated_at=utc_now())).rowcount == 1


def gone_of(conn: sa.Connection, document_ids: Collection[str]) -> set[str]:
    """Those of these ids that name no document any more."""
    there = conn.execute(sa.select(_t.c.id).where(_t.c.id.in_(document_ids))).scalars()
    return set(document_ids) - set(there)


def to_remove(conn: sa.Connection, *, most: int, after: str = "") -> list[str]:
    """Ids of deleted documents whose chunks and file are still to be removed, sorted; those `after` this one."""
    query = sa.select(_removals.c.document_id).where(_removals.c.document_id > after)
    return list(conn.execute(query.order_by(_removals.c.document_id).limit(most)).scalars())


def removed(conn: sa.Connection, document_id: str) -> None:
    """Nothing is left of a deleted document."""
    conn.execute(sa.delete(_removals).where(_removals.c.document_id == document_id))
