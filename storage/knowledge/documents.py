"""Knowledge documents: uploads for agents, with the status pending, then processing, then ready or failed. A document's
file exists before its row. The same file uploaded again for the same agent is a separate document that shares the
content of the first: its file, passages and status. When the last document of a content is deleted, by itself or with
its agent or organization, `knowledge_removals` lists the content until its file and passages are removed, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final, Literal

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.document_reader.base.media_types import charset_of, format_of
from storage.document_reader.chunker import Chunk
from storage.document_reader.terms.tokenizer import ENGLISH
from storage.knowledge import document_index, passages
from storage.tables.row_mapping import ResultPage, RowMapping

DocumentStatus = Literal["pending", "processing", "ready", "failed"]


@dataclass(frozen=True, kw_only=True)
class DocumentFields:
    """Fields of an upload. `file_size` in bytes, `sha256` of the file in hex."""

    agent_id: str
    name: str
    filename: str
    mime_type: str
    file_size: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Document(DocumentFields):
    """A stored document. `content_id` is the id of the document whose file is read: its own, or that of an earlier
    document with the same file. `chunk_count` is the number of stored passages; `error`: why it failed."""

    id: str
    content_id: str
    organization_id: str
    status: DocumentStatus
    chunk_count: int
    error: str | None
    created_at: datetime
    updated_at: datetime


DOCUMENT: Final = RowMapping(Document, tables.knowledge_documents)
_t = tables.knowledge_documents
_removals = tables.knowledge_removals


def create(conn: sa.Connection, organization_id: str, document_id: str, fields: DocumentFields) -> Document:
    """Store a new document, whose file exists already. It is pending, or, when the agent has the same file, shares its
    content: then its own file is not needed."""
    at = utc_now()
    same = _same(conn, fields)
    document = Document(
        **asdict(fields),
        id=document_id,
        content_id=same.content_id if same else document_id,
        organization_id=organization_id,
        status=same.status if same else "pending",
        chunk_count=same.chunk_count if same else 0,
        error=None,
        created_at=at,
        updated_at=at,
    )
    conn.execute(sa.insert(_t).values(**asdict(document)))
    if same:
        conn.execute(sa.insert(_removals).values(document_id=document_id))
    return document


def _same(conn: sa.Connection, fields: DocumentFields) -> Document | None:
    """A document of the agent with the same bytes, format and charset. A failed one does not count, because another
    attempt may succeed."""
    query = sa.select(*DOCUMENT.columns).where(
        _t.c.agent_id == fields.agent_id, _t.c.sha256 == fields.sha256, _t.c.status != "failed"
    )
    found = (DOCUMENT.build(row) for row in conn.execute(query))
    return next((each for each in found if _reading(each) == _reading(fields)), None)


def _reading(fields: DocumentFields) -> tuple[object, ...]:
    """Format and charset, on which the text of a file depends besides its bytes."""
    return format_of(fields.mime_type), (charset_of(fields.mime_type) or "").lower()


def get(conn: sa.Connection, organization_id: str, document_id: str) -> Document | None:
    """By id, within the organization."""
    query = sa.select(*DOCUMENT.columns).where(_t.c.id == document_id, _t.c.organization_id == organization_id)
    row = conn.execute(query).one_or_none()
    return None if row is None else DOCUMENT.build(row)


def of_content(conn: sa.Connection, content_id: str) -> list[Document]:
    """The documents that share a content, oldest first."""
    query = sa.select(*DOCUMENT.columns).where(_t.c.content_id == content_id).order_by(_t.c.created_at, _t.c.id)
    return [DOCUMENT.build(row) for row in conn.execute(query)]


def page(
    conn: sa.Connection, organization_id: str, *, limit: int, offset: int, agent_id: str | None = None
) -> ResultPage[Document]:
    """A page, newest first; of one agent, or of all."""
    where = _t.c.organization_id == organization_id
    if agent_id is not None:
        where = sa.and_(where, _t.c.agent_id == agent_id)
    total = conn.execute(sa.select(sa.func.count()).select_from(_t).where(where)).scalar_one()
    query = sa.select(*DOCUMENT.columns).where(where).order_by(_t.c.created_at.desc(), _t.c.id)
    rows = conn.execute(query.limit(limit).offset(offset))
    return ResultPage([DOCUMENT.build(row) for row in rows], total)


def has_ready(conn: sa.Connection, agent_id: str) -> bool:
    """True if the agent has a document that searches find."""
    ready = sa.select(sa.literal(1)).where(_t.c.agent_id == agent_id, _t.c.status == "ready", _t.c.chunk_count > 0)
    return conn.execute(ready.limit(1)).one_or_none() is not None


def delete(conn: sa.Connection, organization_id: str, document_id: str) -> bool:
    """Delete the document, so that searches no longer find it. False when there is none."""
    deleted = conn.execute(sa.delete(_t).where(_t.c.id == document_id, _t.c.organization_id == organization_id))
    return deleted.rowcount == 1


def reset_interrupted(conn: sa.Connection) -> None:
    """Set the documents that were being read when the last process ended to pending."""
    conn.execute(sa.update(_t).where(_t.c.status == "processing").values(status="pending", updated_at=utc_now()))


def has_pending(conn: sa.Connection) -> bool:
    """True if documents wait to be read."""
    return conn.execute(sa.select(_t.c.id).where(_t.c.status == "pending").limit(1)).first() is not None


def claim_pending(conn: sa.Connection, *, limit: int, limit_per_organization: int = (1 << 31) - 1) -> list[Document]:
    """Set the contents that have waited longest to processing; returns the oldest document of each. An organization
    with fewer in processing comes first, and none has more than `limit_per_organization`, so that many uploads of one
    delay no other."""
    claimed: list[Document] = []
    parameters = {"most_of_one": limit_per_organization}
    while len(claimed) < limit and (chosen := conn.execute(_NEXT, parameters).scalar_one_or_none()) is not None:
        claim = (
            sa.update(_t)
            .where(_t.c.content_id == chosen)
            .values(status="processing", chunk_count=0, updated_at=utc_now())
            .returning(*DOCUMENT.columns)
        )
        same = [DOCUMENT.build(row) for row in conn.execute(claim)]
        claimed.append(min(same, key=lambda each: (each.created_at, each.id)))
    return claimed


_busy = _t.alias()
_under_way = (
    sa.select(sa.func.count(_busy.c.content_id.distinct()))
    .where(_busy.c.status == "processing", _busy.c.organization_id == _t.c.organization_id)
    .scalar_subquery()
)
_NEXT: Final = (
    sa.select(_t.c.content_id)
    .where(_t.c.status == "pending", _under_way < sa.bindparam("most_of_one"))
    .order_by(_under_way, _t.c.created_at, _t.c.id)
    .limit(1)
)


def add_chunks(conn: sa.Connection, document: Document, chunks: Sequence[Chunk]) -> bool:
    """Store the next passages of a document in processing; searches do not find them yet. False, and nothing is stored,
    when the document and all that share its content have been deleted."""
    if not _change(conn, document.content_id, chunk_count=chunks[-1].position + 1):
        return False
    passages.add(conn, document.content_id, document.agent_id, chunks)
    return True


def finish(conn: sa.Connection, content_id: str, language: str = ENGLISH) -> bool:
    """Set the content to ready, whose passages are all stored with terms of this language: searches find them from now
    on. Returns False when its documents have been deleted."""
    if not _change(conn, content_id, status="ready"):
        return False
    document_index.set_language(conn, content_id, language)
    return True


def fail(conn: sa.Connection, content_id: str, reason: str) -> bool:
    """Set the content to failed; `reason` is for clients. Returns False when its documents have been deleted."""
    return _change(conn, content_id, status="failed", chunk_count=0, error=reason)


def _change(conn: sa.Connection, content_id: str, **values: object) -> bool:
    """Update all documents of a content in processing; returns False when there are none."""
    change = sa.update(_t).where(_t.c.content_id == content_id, _t.c.status == "processing")
    return conn.execute(change.values(**values, updated_at=utc_now())).rowcount > 0


def unreferenced(conn: sa.Connection, content_ids: Collection[str]) -> set[str]:
    """The contents among these that no document refers to."""
    referenced = conn.execute(sa.select(_t.c.content_id).where(_t.c.content_id.in_(content_ids))).scalars()
    return set(content_ids) - set(referenced)


def pending_removals(conn: sa.Connection, *, limit: int, after: str = "") -> list[str]:
    """Ids of contents without documents whose chunks and file are still to be removed, and of documents whose own file
    is not needed; sorted, those above `after`."""
    query = sa.select(_removals.c.document_id).where(_removals.c.document_id > after)
    return list(conn.execute(query.order_by(_removals.c.document_id).limit(limit)).scalars())


def finish_removal(conn: sa.Connection, document_id: str) -> None:
    """Delete the entry of a content whose chunks and file have been removed."""
    conn.execute(sa.delete(_removals).where(_removals.c.document_id == document_id))


def failed_files(conn: sa.Connection, before: datetime, *, limit: int) -> list[str]:
    """Failed contents, unchanged since `before`, whose files still exist."""
    query = (
        sa.select(_t.c.content_id)
        .where(_t.c.status == "failed", _t.c.updated_at < before, _t.c.file_removed_at.is_(None))
        .distinct()
    )
    return list(conn.execute(query.limit(limit)).scalars())


def mark_failed_files_removed(conn: sa.Connection, content_ids: Iterable[str]) -> None:
    """Store that the files of these contents have been removed; their documents stay with their errors."""
    values: dict[str, Any] = {"file_removed_at": utc_now()}
    conn.execute(sa.update(_t).where(_t.c.content_id.in_(list(content_ids))).values(values))
