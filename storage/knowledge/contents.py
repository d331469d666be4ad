"""How the contents of documents are indexed: the language of their words' endings, which follows the agent's
languageHint, and the vectors of their passages, which follow the model that the settings name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa

from storage import tables
from storage.document_reader.terms.tokenizer import language_of

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
    "SELECT :content, :language WHERE EXISTS (SELECT 1 FROM knowledge_documents WHERE content_id = :content) "
    "ON CONFLICT (content_id) DO UPDATE SET language = excluded.language"
)
_SET_TERMS: Final = sa.text(
    "UPDATE knowledge_index SET terms = :terms "
    "WHERE rowid = (SELECT id FROM knowledge_chunks WHERE id = :id AND document_id = :content)"
)
_ADD_VECTOR: Final = sa.text(
    "INSERT OR REPLACE INTO knowledge_vectors(chunk_id, vector) "
    "SELECT id, :vector FROM knowledge_chunks WHERE id = :id AND document_id = :content"
)

Text = tuple[int, str]
"""A passage's id, and its text or its terms."""


def language_for(conn: sa.Connection, agent_id: str) -> str:
    """The language of the words of an agent's documents (`words.language_of`)."""
    hint = conn.execute(sa.select(_agents.c.language_hint).where(_agents.c.id == agent_id)).scalar_one_or_none()
    return language_of(hint)


def set_language(conn: sa.Connection, content_id: str, language: str) -> None:
    """All passages of the content, if a document still has it, are indexed in this language."""
    conn.execute(_NOTE_LANGUAGE, {"content": content_id, "language": language})


def to_index(conn: sa.Connection) -> list[tuple[str, str]]:
    """Ready contents whose words are indexed in another language than their agents speak, and that language."""
    return [
        (content_id, wanted)
        for content_id, hint, language in conn.execute(_READY)
        if (wanted := language_of(hint)) != language
    ]


def texts(conn: sa.Connection, content_id: str, *, after: int, most: int) -> list[Text]:
    """Passages of a content in the order of their ids, those `after` one."""
    query = sa.select(_chunks.c.id, _chunks.c.content).where(_chunks.c.document_id == content_id, _chunks.c.id > after)
    return [(number, text) for number, text in conn.execute(query.order_by(_chunks.c.id).limit(most))]


def set_terms(conn: sa.Connection, content_id: str, terms: Sequence[Text]) -> None:
    """Index passages of a content anew. Those that are gone stay gone: their ids may be another one's by now."""
    conn.execute(_SET_TERMS, [{"id": number, "terms": each, "content": content_id} for number, each in terms])


def to_embed(conn: sa.Connection, model: str) -> list[str]:
    """Ready contents that do not have all vectors of a model, those that were uploaded last first."""
    whole = sa.and_(_t.c.vectors_by == model, _t.c.vectors_whole)
    query = (
        sa.select(_t.c.content_id)
        .join(_documents, _documents.c.content_id == _t.c.content_id)
        .where(_documents.c.status == "ready", sa.or_(_t.c.vectors_by.is_(None), sa.not_(whole)))
        .group_by(_t.c.content_id)
        .order_by(sa.func.max(_documents.c.created_at).desc(), _t.c.content_id)
    )
    return list(conn.execute(query).scalars())


def begin_vectors(conn: sa.Connection, content_id: str, model: str, *, most: int) -> bool:
    """From now on its vectors are of this model. Those of another one go first, so many at a time: False while some may
    be left."""
    mine = _t.c.content_id == content_id
    if conn.execute(sa.select(_t.c.vectors_by).where(mine)).scalar_one_or_none() == model:
        return True
    conn.execute(sa.update(_t).where(mine).values(vectors_whole=False))
    old = sa.select(_vectors.c.chunk_id).join(_chunks, _chunks.c.id == _vectors.c.chunk_id)
    some = old.where(_chunks.c.document_id == content_id).limit(most).scalar_subquery()
    if conn.execute(sa.delete(_vectors).where(_vectors.c.chunk_id.in_(some))).rowcount == most:
        return False
    conn.execute(sa.update(_t).where(mine).values(vectors_by=model))
    return True


def without_vector(conn: sa.Connection, content_id: str, *, most: int) -> list[Text]:
    """Passages of a content that have none yet."""
    query = (
        sa.select(_chunks.c.id, _chunks.c.content)
        .outerjoin(_vectors, _vectors.c.chunk_id == _chunks.c.id)
        .where(_chunks.c.document_id == content_id, _vectors.c.chunk_id.is_(None))
        .order_by(_chunks.c.id)
        .limit(most)
    )
    return [(number, text) for number, text in conn.execute(query)]


def add_vectors(conn: sa.Connection, content_id: str, vectors: Sequence[tuple[int, bytes]]) -> None:
    """Store vectors of passages, by their ids. What was deleted meanwhile gets none."""
    conn.execute(_ADD_VECTOR, [{"id": number, "vector": each, "content": content_id} for number, each in vectors])


def finish_vectors(conn: sa.Connection, content_id: str, model: str) -> None:
    """Each passage has its vector: searches use them from now on."""
    conn.execute(
        sa.update(_t).where(_t.c.content_id == content_id, _t.c.vectors_by == model).values(vectors_whole=True)
    )


def with_vectors(conn: sa.Connection, agent_id: str, model: str) -> list[str]:
    """The agent's ready contents that have all vectors of a model, in one order."""
    query = (
        sa.select(_t.c.content_id)
        .distinct()
        .join(_documents, _documents.c.content_id == _t.c.content_id)
        .where(_documents.c.agent_id == agent_id, _documents.c.status == "ready")
        .where(_t.c.vectors_by == model, _t.c.vectors_whole)
    )
    return sorted(conn.execute(query).scalars())


def vectors_of(conn: sa.Connection, content_id: str, model: str) -> list[tuple[int, bytes]]:
    """Ids of passages and their vectors; none when they are another model's by now."""
    query = (
        sa.select(_vectors.c.chunk_id, _vectors.c.vector)
        .join(_chunks, _chunks.c.id == _vectors.c.chunk_id)
        .join(_t, _t.c.content_id == _chunks.c.document_id)
        .where(_chunks.c.document_id == content_id, _t.c.vectors_by == model)
    )
    return [(number, vector) for number, vector in conn.execute(query)]
