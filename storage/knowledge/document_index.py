"""Index of the contents of documents: the language in which their terms are stemmed, which follows the agent's
languageHint, and the vectors of their passages, which follow the embedding model of the settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from storage import tables
from storage.document_reader.terms.tokenizer import language_of
from storage.knowledge import text_index

_t = tables.knowledge_contents
_documents = tables.knowledge_documents
_chunks = tables.knowledge_chunks
_vectors = tables.knowledge_vectors
_agents = tables.agents
_READY: Final = (
    sa.select(_documents.c.content_id, _agents.c.language_hint, _t.c.language)
    .distinct()
    .join(_agents, _agents.c.id == _documents.c.agent_id)
    .outerjoin(_t, _t.c.content_id == _documents.c.content_id)
    .where(_documents.c.status == "ready")
)
_NOTE_LANGUAGE: Final = sa.text(
    "INSERT INTO knowledge_contents(content_id, language) "
    "SELECT CAST(:content AS VARCHAR), CAST(:language AS VARCHAR) "
    "WHERE EXISTS (SELECT 1 FROM knowledge_documents WHERE content_id = :content) "
    "ON CONFLICT (content_id) DO UPDATE SET language = excluded.language"
)
_ADD_VECTOR: Final = sa.text(
    "INSERT INTO knowledge_vectors(chunk_id, vector) "
    "SELECT id, :vector FROM knowledge_chunks WHERE id = :id AND document_id = :content "
    "ON CONFLICT (chunk_id) DO UPDATE SET vector = excluded.vector"
)

PassageText = tuple[int, str]
"""A passage's id, and its text or its terms."""


def agent_language(conn: sa.Connection, agent_id: str) -> str:
    """Returns the language of an agent's documents (`tokenizer.language_of`)."""
    hint = conn.execute(sa.select(_agents.c.language_hint).where(_agents.c.id == agent_id)).scalar_one_or_none()
    return language_of(hint)


def set_language(conn: sa.Connection, content_id: str, language: str) -> None:
    """Store that all passages of the content are indexed in this language, if a document still has it."""
    conn.execute(_NOTE_LANGUAGE, {"content": content_id, "language": language})


def contents_to_reindex(conn: sa.Connection) -> list[tuple[str, str]]:
    """Ready contents that are indexed in another language than that of their agent, and the agent's language."""
    return [
        (content_id, target_language)
        for content_id, hint, language in conn.execute(_READY)
        if (target_language := language_of(hint)) != language
    ]


def passage_texts(conn: sa.Connection, content_id: str, *, after: int, limit: int) -> list[PassageText]:
    """Passages of a content in the order of their ids, those above `after`."""
    query = sa.select(_chunks.c.id, _chunks.c.content).where(_chunks.c.document_id == content_id, _chunks.c.id > after)
    return [(number, text) for number, text in conn.execute(query.order_by(_chunks.c.id).limit(limit))]


def set_terms(conn: sa.Connection, content_id: str, terms: Sequence[PassageText]) -> None:
    """Replace the terms of passages of a content. Deleted passages are skipped: their ids may be reused by now."""
    text_index.of(conn).replace(conn, content_id, terms)


def contents_to_embed(conn: sa.Connection, model: str) -> list[str]:
    """Ready contents without all vectors of a model, newest upload first."""
    is_complete = sa.and_(_t.c.vectors_by == model, _t.c.vectors_whole)
    query = (
        sa.select(_t.c.content_id)
        .join(_documents, _documents.c.content_id == _t.c.content_id)
        .where(_documents.c.status == "ready", sa.or_(_t.c.vectors_by.is_(None), sa.not_(is_complete)))
        .group_by(_t.c.content_id)
        .order_by(sa.func.max(_documents.c.created_at).desc(), _t.c.content_id)
    )
    return list(conn.execute(query).scalars())


def begin_vectors(conn: sa.Connection, content_id: str, model: str, *, limit: int) -> bool:
    """Store that its vectors are of this model from now on. Before that, deletes those of another model, at most
    `limit` at a time; returns False while some may be left."""
    is_content = _t.c.content_id == content_id
    if conn.execute(sa.select(_t.c.vectors_by).where(is_content)).scalar_one_or_none() == model:
        return True
    conn.execute(sa.update(_t).where(is_content).values(vectors_whole=False))
    old = sa.select(_vectors.c.chunk_id).join(_chunks, _chunks.c.id == _vectors.c.chunk_id)
    some = old.where(_chunks.c.document_id == content_id).limit(limit).scalar_subquery()
    if conn.execute(sa.delete(_vectors).where(_vectors.c.chunk_id.in_(some))).rowcount == limit:
        return False
    conn.execute(sa.update(_t).where(is_content).values(vectors_by=model))
    return True


def passages_without_vector(conn: sa.Connection, content_id: str, *, limit: int) -> list[PassageText]:
    """Passages of a content without a vector."""
    query = (
        sa.select(_chunks.c.id, _chunks.c.content)
        .outerjoin(_vectors, _vectors.c.chunk_id == _chunks.c.id)
        .where(_chunks.c.document_id == content_id, _vectors.c.chunk_id.is_(None))
        .order_by(_chunks.c.id)
        .limit(limit)
    )
    return [(number, text) for number, text in conn.execute(query)]


def add_vectors(conn: sa.Connection, content_id: str, vectors: Sequence[tuple[int, bytes]]) -> None:
    """Store vectors of passages, by their ids. Passages deleted meanwhile are skipped."""
    conn.execute(_ADD_VECTOR, [{"id": number, "vector": each, "content": content_id} for number, each in vectors])


def finish_vectors(conn: sa.Connection, content_id: str, model: str) -> None:
    """Store that each passage has its vector, so that searches use them from now on."""
    conn.execute(
        sa.update(_t).where(_t.c.content_id == content_id, _t.c.vectors_by == model).values(vectors_whole=True)
    )


def contents_with_vectors(conn: sa.Connection, agent_id: str, model: str) -> list[str]:
    """The agent's ready contents that have all vectors of a model, sorted."""
    query = (
        sa.select(_t.c.content_id)
        .distinct()
        .join(_documents, _documents.c.content_id == _t.c.content_id)
        .where(_documents.c.agent_id == agent_id, _documents.c.status == "ready")
        .where(_t.c.vectors_by == model, _t.c.vectors_whole)
    )
    return sorted(conn.execute(query).scalars())


def vectors_of(conn: sa.Connection, content_id: str, model: str) -> list[tuple[int, bytes]]:
    """Ids of passages and their vectors; none when they are of another model by now."""
    query = (
        sa.select(_vectors.c.chunk_id, _vectors.c.vector)
        .join(_chunks, _chunks.c.id == _vectors.c.chunk_id)
        .join(_t, _t.c.content_id == _chunks.c.document_id)
        .where(_chunks.c.document_id == content_id, _t.c.vectors_by == model)
    )
    return [(number, vector) for number, vector in conn.execute(query)]
