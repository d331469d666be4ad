"""The passages of documents, their full-text index, and the search in them. The index finds and ranks the passages that
may answer a question; how well they do is told by `storage.documents.search`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from storage import tables
from storage.documents.chunks import Chunk
from storage.documents.search import question

MOST_COUNTED: Final = 5_000
"""Passages with a term are counted up to here: more make it so common that it hardly matters how common."""
MOST_SCORED: Final = 64
"""Of the passages that the index ranks, the first ones get a score."""

_t = tables.knowledge_chunks
_documents = tables.knowledge_documents
_LAST_ID: Final = sa.select(sa.func.coalesce(sa.func.max(_t.c.id), 0))
_ADD_CHUNK: Final = sa.insert(_t)
_ADD_TERMS: Final = sa.text("INSERT INTO knowledge_index(rowid, agent, terms) VALUES (:id, :agent, :terms)")
_READY_PASSAGES: Final = sa.select(sa.func.coalesce(sa.func.sum(_documents.c.chunk_count), 0)).where(
    _documents.c.agent_id == sa.bindparam("agent"), _documents.c.status == "ready"
)
_HOLDERS: Final = sa.text(
    "SELECT count(*) FROM (SELECT 1 FROM knowledge_index WHERE knowledge_index MATCH :match LIMIT :most)"
)
BEST: Final = sa.text(
    "SELECT chunk.content, document.name, found.terms FROM knowledge_index AS found "
    "CROSS JOIN knowledge_chunks AS chunk ON chunk.id = found.rowid "
    "CROSS JOIN knowledge_documents AS document ON document.id = chunk.document_id "
    "WHERE knowledge_index MATCH :match AND rank MATCH 'bm25(0.0, 1.0)' AND document.status = 'ready' "
    "ORDER BY rank LIMIT :most"
)
"""CROSS JOIN keeps this order (SQLite, "Manual control of query plans"): the index gives its rows by rank, and only as
many are looked up as the limit lets through."""


@dataclass(frozen=True)
class Found:
    """A passage, the name of its document, and how well it answers: 0..1."""

    content: str
    document: str
    score: float


def add(conn: sa.Connection, document_id: str, agent_id: str, chunks: Sequence[Chunk]) -> None:
    """Store passages of a document, at least one, and index them."""
    last = conn.execute(_LAST_ID).scalar_one()
    numbered = list(enumerate(chunks, last + 1))
    conn.execute(
        _ADD_CHUNK,
        [
            {"id": number, "document_id": document_id, "position": chunk.position, "content": chunk.text}
            for number, chunk in numbered
        ],
    )
    conn.execute(_ADD_TERMS, [{"id": number, "agent": agent_id, "terms": chunk.terms} for number, chunk in numbered])


def remove(conn: sa.Connection, document_id: str, *, most: int) -> int:
    """Remove passages of a document, and what the index has of them. Returns how many: fewer than `most` are the
    last ones."""
    some = sa.select(_t.c.id).where(_t.c.document_id == document_id).limit(most)
    return conn.execute(sa.delete(_t).where(_t.c.id.in_(some.scalar_subquery()))).rowcount


def search(conn: sa.Connection, agent_id: str, text: str, *, most: int) -> list[Found]:
    """The passages of the agent's ready documents that answer best, the best first. `text` is anybody's words."""
    asked = question(text)
    passages: int = conn.execute(_READY_PASSAGES, {"agent": agent_id}).scalar_one()
    if asked is None or passages == 0:
        return []
    holders = {term: _holders(conn, asked.match_one(agent_id, term)) for term in asked.terms}
    match = asked.match(agent_id, holders)
    if match is None:
        return []
    rows = conn.execute(BEST, {"match": match, "most": MOST_SCORED})
    found = [Found(content, name, asked.score(terms, holders, passages)) for content, name, terms in rows]
    return sorted(found, key=lambda each: -each.score)[:most]


def _holders(conn: sa.Connection, match: str) -> int:
    """How many passages match, counted up to a bound."""
    count: int = conn.execute(_HOLDERS, {"match": match, "most": MOST_COUNTED}).scalar_one()
    return count
