"""Passages of documents, and the keyword search."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import sqlalchemy as sa

from storage import tables
from storage.document_reader.chunker import Chunk
from storage.document_reader.terms.ranking import TermQuery, parse_query
from storage.knowledge import text_index
from storage.knowledge.passage_columns import LANGUAGE

MAX_SCORED: Final = 48
"""Passages that are scored, the first ones by the index's rank."""

_t = tables.knowledge_chunks
_documents = tables.knowledge_documents
_ADD_CHUNK: Final = sa.insert(_t)
_CONTENTS: Final = (
    sa.select(sa.func.max(_documents.c.chunk_count).label("passages"))
    .where(_documents.c.agent_id == sa.bindparam("agent"), _documents.c.status == "ready")
    .group_by(_documents.c.content_id)
    .subquery()
)
_READY_PASSAGES: Final = sa.select(sa.func.coalesce(sa.func.sum(_CONTENTS.c.passages), 0))
"""The same file counts once."""
_LANGUAGES: Final = sa.text(
    f"SELECT DISTINCT {LANGUAGE.format('knowledge_documents.content_id')} FROM knowledge_documents "
    "WHERE agent_id = :agent AND status = 'ready'"
)


@dataclass(frozen=True)
class FoundPassage:
    """A passage, the name and the id of its document, its score (0..1), and its position in the document from 0 on.
    `by_vector`: the score includes vector similarity. `by_words` and `by_meaning`: the parts of the score, 0..1 each;
    None: not searched by meaning. `words`: those of the question that the passage has, in its order."""

    content: str
    document: str
    score: float
    document_id: str
    position: int
    by_vector: bool = False
    by_words: float = field(default=0.0, compare=False)
    by_meaning: float | None = field(default=None, compare=False)
    words: tuple[str, ...] = field(default=(), compare=False)


def add(conn: sa.Connection, content_id: str, agent_id: str, chunks: Sequence[Chunk]) -> None:
    """Store passages of a content, at least one, and index them."""
    index = text_index.of(conn)
    numbered = list(enumerate(chunks, index.next_id(conn, len(chunks))))
    conn.execute(
        _ADD_CHUNK,
        [
            {"id": number, "document_id": content_id, "position": chunk.position, "content": chunk.text}
            for number, chunk in numbered
        ],
    )
    index.add(conn, agent_id, [(number, chunk.terms) for number, chunk in numbered])


def delete(conn: sa.Connection, content_id: str, *, limit: int) -> int:
    """Delete passages of a content, and their entries in the index. Returns their number; fewer than `limit`: none are
    left."""
    some = sa.select(_t.c.id).where(_t.c.document_id == content_id).limit(limit)
    return conn.execute(sa.delete(_t).where(_t.c.id.in_(some.scalar_subquery()))).rowcount


class KeywordSearch:
    """A keyword search in an agent's ready documents. Term counts are read in one transaction: once for each language
    in which the documents are indexed, which is one except shortly after its languageHint has changed."""

    def __init__(self, conn: sa.Connection, agent_id: str, text: str) -> None:
        """`text` is the user's question."""
        self._agent_id = agent_id
        self._queries: dict[str, _LanguageQuery] = {}
        self._passages: int = conn.execute(_READY_PASSAGES, {"agent": agent_id}).scalar_one()
        for language in conn.execute(_LANGUAGES, {"agent": agent_id}).scalars() if self._passages else ():
            if query := parse_query(text, language):
                self._queries[language] = _LanguageQuery(
                    query, text_index.of(conn).frequencies(conn, agent_id, query.terms)
                )

    def best(self, conn: sa.Connection) -> dict[int, FoundPassage]:
        """The passages with the best scores, by id."""
        index, found = text_index.of(conn), dict[int, FoundPassage]()
        for language, query in self._queries.items():
            if terms := query.term_query.candidate_terms(query.frequencies):
                chosen = index.candidates(self._agent_id, terms, query.frequencies)
                rows = conn.execute(index.best_passages, {**chosen, "most": MAX_SCORED})
                found |= self._found(row for row in rows if row.language == language)
        return found

    def score(self, conn: sa.Connection, passages: Collection[int]) -> dict[int, FoundPassage]:
        """The passages of these ids in the agent's ready documents with their scores, even without a matching term."""
        by_id = text_index.of(conn).passages_by_id
        return self._found(conn.execute(by_id, {"agent": self._agent_id, "ids": list(passages)}))

    def _found(self, rows: Iterable[sa.Row[Any]]) -> dict[int, FoundPassage]:
        return {row.id: self._passage(row) for row in rows}

    def _passage(self, row: sa.Row[Any]) -> FoundPassage:
        query = self._queries.get(row.language)
        passage = FoundPassage(row.content, row.name, 0.0, row.document, row.position)
        if query is None:
            return passage
        score = query.term_query.score(row.terms, query.frequencies, self._passages)
        return replace(passage, score=score, by_words=score, words=query.term_query.words_in(row.terms))


@dataclass(frozen=True)
class _LanguageQuery:
    """A query in one language, and the number of passages with each of its terms."""

    term_query: TermQuery
    frequencies: Mapping[str, int]


def search(conn: sa.Connection, agent_id: str, text: str, *, limit: int) -> list[FoundPassage]:
    """The passages of the agent's ready documents with the best scores, best first. `text` is the user's question."""
    found = KeywordSearch(conn, agent_id, text).best(conn).values()
    return sorted(found, key=lambda each: -each.score)[:limit]
