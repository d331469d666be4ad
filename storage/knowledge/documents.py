"""Knowledge documents: what was uploaded for agents, and how far it is read: pending, then processing, then ready or
failed. A document's file is there before its row. The same file once more for the same agent is a document of its own
that shares the content of the first: its file, its passages, and how far it is read. What the last document of a
content leaves behind, the file and the passages, stands in `knowledge_removals` until it is removed too, however the
row went: by itself, with its agent or its organization."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final, Literal

import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.document_reader.base.media_types import charset_of, format_of
from storage.document_reader.chunker import Chunk
from storage.document_reader.terms.tokenizer import ENGLISH
from storage.knowledge import contents, passages
from storage.tables.row_mapping import ResultPage, RowMapping

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
    """A stored document. `content_id` is the id of the document whose file was read, or will be: its own, or that of an
    earlier one. `chunk_count` are the passages that are stored by now; `error` says why it is failed."""

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
    """Store a new document, whose file is there already, to be read; or, when the agent has the same file, to share
    what is read of that: then its own file is not needed."""
    at = utc_now()
    same = _same(conn, fields)
    made = Document(
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
    conn.execute(sa.insert(_t).values(**asdict(made)))
    if same:
        conn.execute(sa.insert(_removals).values(document_id=document_id))
    return made


def _same(conn: sa.Connection, fields: DocumentFields) -> Document | None:
    """A document of the agent with the same bytes, read in the same way. One that failed is none: another attempt may
    do better."""
    query = sa.select(*DOCUMENT.columns).where(
        _t.c.agent_id == fields.agent_id, _t.c.sha256 == fields.sha256, _t.c.status != "failed"
    )
    found = (DOCUMENT.build(row) for row in conn.execute(query))
    return next((each for each in found if _reading(each) == _reading(fields)), None)


def _reading(fields: DocumentFields) -> tuple[object, ...]:
    """What the text of a file depends on, beside its bytes."""
    return format_of(fields.mime_type), (charset_of(fields.mime_type) or "").lower()


def get(conn: sa.Connection, organization_id: str, document_id: str) -> Document | None:
    """By id, within the organization."""
    query = sa.select(*DOCUMENT.columns).where(_t.c.id == document_id, _t.c.organization_id == organization_id)
    row = conn.execute(query).one_or_none()
    return None if row is None else DOCUMENT.build(row)


def page(
    conn: sa.Connection, organization_id: str, *, limit: int, offset: int, agent_id: str | None = None
) -> ResultPage[Document]:
    """Newest first; of one agent, or of all."""
    where = _t.c.organization_id == organization_id
    if agent_id is not None:
        where = sa.and_(where, _t.c.agent_id == agent_id)
    total = conn.execute(sa.select(sa.func.count()).select_from(_t).where(where)).scalar_one()
    query = sa.select(*DOCUMENT.columns).where(where).order_by(_t.c.created_at.desc(), _t.c.id)
    rows = conn.execute(query.limit(limit).offset(offset))
    return ResultPage([DOCUMENT.build(row) for row in rows], total)


def has_ready(conn: sa.Connection, agent_id: str) -> bool:
    """Whether searches for this agent can find anything."""
    ready = sa.select(sa.literal(1)).where(_t.c.agent_id == agent_id, _t.c.status == "ready", _t.c.chunk_count > 0)
    return conn.execute(ready.limit(1)).one_or_none() is not None


def delete(conn: sa.Connection, organization_id: str, document_id: str) -> bool:
    """Forget the document: nobody finds it any more. False when there is none."""
    gone = conn.execute(sa.delete(_t).where(_t.c.id == document_id, _t.c.organization_id == organization_id))
    return gone.rowcount == 1


def reset_interrupted(conn: sa.Connection) -> None:
    """What was being read when the last process ended is pending again."""
    conn.execute(sa.update(_t).where(_t.c.status == "processing").values(status="pending", updated_at=utc_now()))


def claim_pending(conn: sa.Connection, *, most: int, most_of_one: int = 1 << 31) -> list[Document]:
    """The contents that have waited longest are processing from now on; of each, the oldest document. An organization
    of which fewer are processing comes first, and none has more than `most_of_one`: one that uploads much keeps no
    other waiting."""
    begun: list[Document] = []
    bound = {"most_of_one": most_of_one}
    while len(begun) < most and (chosen := conn.execute(_NEXT, bound).scalar_one_or_none()) is not None:
        taken = (
            sa.update(_t)
            .where(_t.c.content_id == chosen)
            .values(status="processing", chunk_count=0, updated_at=utc_now())
            .returning(*DOCUMENT.columns)
        )
        same = [DOCUMENT.build(row) for row in conn.execute(taken)]
        begun.append(min(same, key=lambda each: (each.created_at, each.id)))
    return begun


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
    """Store the next passages of a document that is processing; searches do not find them yet. False, and nothing is
    stored, when the document has been deleted, and all that share its content."""
    if not _change(conn, document.content_id, chunk_count=chunks[-1].position + 1):
        return False
    passages.add(conn, document.content_id, document.agent_id, chunks)
    return True


def finish(conn: sa.Connection, content_id: str, language: str = ENGLISH) -> bool:
    """All passages are stored, with the terms of a language: searches find them from now on. False when the documents
    have been deleted."""
    if not _change(conn, content_id, status="ready"):
        return False
    contents.set_language(conn, content_id, language)
    return True


def fail(conn: sa.Connection, content_id: str, reason: str) -> bool:
    """The content cannot be read; `reason` is for clients. False when its documents have been deleted."""
    return _change(conn, content_id, status="failed", chunk_count=0, error=reason)


def _change(conn: sa.Connection, content_id: str, **values: object) -> bool:
    """Of a content that is processing: of all documents that have it."""
    change = sa.update(_t).where(_t.c.content_id == content_id, _t.c.status == "processing")
    return conn.execute(change.values(**values, updated_at=utc_now())).rowcount > 0


def unreferenced(conn: sa.Connection, content_ids: Collection[str]) -> set[str]:
    """Those of these contents that no document has any more."""
    there = conn.execute(sa.select(_t.c.content_id).where(_t.c.content_id.in_(content_ids))).scalars()
    return set(content_ids) - set(there)


def to_remove(conn: sa.Connection, *, most: int, after: str = "") -> list[str]:
    """Ids of contents without documents whose chunks and file are still to be removed, and of documents whose own file
    is not needed; sorted, those `after` this one."""
    query = sa.select(_removals.c.document_id).where(_removals.c.document_id > after)
    return list(conn.execute(query.order_by(_removals.c.document_id).limit(most)).scalars())


def removed(conn: sa.Connection, document_id: str) -> None:
    """Nothing is left under this id."""
    conn.execute(sa.delete(_removals).where(_removals.c.document_id == document_id))
