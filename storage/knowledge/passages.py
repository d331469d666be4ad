"""Passages of documents, their full-text index (FTS5), and the keyword search. The index finds candidates;
`storage.document_reader.terms.ranking` scores them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import sqlalchemy as sa

from storage import tables
from storage.document_reader.chunker import Chunk
from storage.document_reader.terms.ranking import TermQuery, parse_query
from storage.document_reader.terms.tokenizer import ENGLISH

MAX_COUNTED: Final = 2_000
"""Upper limit when passages with a term are counted: higher counts hardly change a score."""
MAX_RANKED: Final = 3_000
"""Passages that the index ranks at most, the oldest ones, when even the rarest term of a query is in more: 10 ms."""
MAX_SCORED: Final = 48
"""Passages that are scored, the first ones by the index's rank."""

_t = tables.knowledge_chunks
_documents = tables.knowledge_documents
_LAST_ID: Final = sa.select(sa.func.coalesce(sa.func.max(_t.c.id), 0))
_ADD_CHUNK: Final = sa.insert(_t)
_ADD_TERMS: Final = sa.text("INSERT INTO knowledge_index(rowid, agent, terms) VALUES (:id, :agent, :terms)")
_CONTENTS: Final = (
    sa.select(sa.func.max(_documents.c.chunk_count).label("passages"))
    .where(_documents.c.agent_id == sa.bindparam("agent"), _documents.c.status == "ready")
    .group_by(_documents.c.content_id)
    .subquery()
)
_READY_PASSAGES: Final = sa.select(sa.func.coalesce(sa.func.sum(_CONTENTS.c.passages), 0))
"""The same file counts once."""
_FREQUENCIES: Final = sa.text(
    "SELECT term.key, (SELECT count(*) FROM (SELECT 1 FROM knowledge_index WHERE knowledge_index MATCH term.value "
    f"LIMIT {MAX_COUNTED})) AS frequencies FROM json_each(:matches) AS term"
)
_LANGUAGE: Final = f"coalesce((SELECT language FROM knowledge_contents WHERE content_id = {{}}), '{ENGLISH}')"
_LANGUAGES: Final = sa.text(
    f"SELECT DISTINCT {_LANGUAGE.format('knowledge_documents.content_id')} FROM knowledge_documents "
    "WHERE agent_id = :agent AND status = 'ready'"
)
_COLUMNS: Final = (
    "SELECT chunk.id, chunk.content, document.name, found.terms, document.id AS document, chunk.position, "
    f"{_LANGUAGE.format('chunk.document_id')} AS language "
)
_OLDEST: Final = (
    "CROSS JOIN knowledge_documents AS document ON document.id = (SELECT same.id FROM knowledge_documents AS same "
    "WHERE same.content_id = chunk.document_id ORDER BY same.created_at, same.id LIMIT 1) "
)
BEST_PASSAGES: Final = sa.text(
    f"{_COLUMNS} FROM (SELECT id FROM (SELECT rowid AS id, rank AS place FROM knowledge_index "
    f"WHERE knowledge_index MATCH :match AND rank MATCH 'bm25(0.0, 1.0)' LIMIT {MAX_RANKED}) "
    f"ORDER BY place LIMIT {MAX_RANKED}) AS best CROSS JOIN knowledge_chunks AS chunk ON chunk.id = best.id {_OLDEST}"
    "CROSS JOIN knowledge_index AS found ON found.rowid = best.id WHERE document.status = 'ready' LIMIT :most"
)
"""CROSS JOIN fixes the join order (SQLite, "Manual control of query plans"): rows come by rank, and only as many are
looked up as the limit allows. A passage of several documents is reported for the oldest one."""
_PASSAGES_BY_ID: Final = sa.text(
    f"{_COLUMNS} FROM knowledge_chunks AS chunk CROSS JOIN knowledge_index AS found ON found.rowid = chunk.id {_OLDEST}"
    "WHERE chunk.id IN :ids AND document.agent_id = :agent AND document.status = 'ready'"
).bindparams(sa.bindparam("ids", expanding=True))


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
    last = conn.execute(_LAST_ID).scalar_one()
    numbered = list(enumerate(chunks, last + 1))
    conn.execute(
        _ADD_CHUNK,
        [
            {"id": number, "document_id": content_id, "position": chunk.position, "content": chunk.text}
            for number, chunk in numbered
        ],
    )
    conn.execute(_ADD_TERMS, [{"id": number, "agent": agent_id, "terms": chunk.terms} for number, chunk in numbered])


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
                self._queries[language] = _LanguageQuery(query, _frequencies(conn, agent_id, query))

    def best(self, conn: sa.Connection) -> dict[int, FoundPassage]:
        """The passages with the best scores, by id."""
        found: dict[int, FoundPassage] = {}
        for language, query in self._queries.items():
            if match := query.term_query.match(self._agent_id, query.frequencies):
                rows = conn.execute(BEST_PASSAGES, {"match": match, "most": MAX_SCORED})
                found |= self._found(row for row in rows if row.language == language)
        return found

    def score(self, conn: sa.Connection, passages: Collection[int]) -> dict[int, FoundPassage]:
        """The passages of these ids in the agent's ready documents with their scores, even without a matching term."""
        return self._found(conn.execute(_PASSAGES_BY_ID, {"agent": self._agent_id, "ids": list(passages)}))

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


def _frequencies(conn: sa.Connection, agent_id: str, query: TermQuery) -> dict[str, int]:
    """The number of the agent's passages with each term, up to a limit."""
    matches = json.dumps({term: query.match_term(agent_id, term) for term in query.terms})
    return {row.key: row.frequencies for row in conn.execute(_FREQUENCIES, {"matches": matches})}
