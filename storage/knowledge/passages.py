"""The passages of documents, their full-text index, and the search in them. The index finds and ranks the passages that
may answer a question; how well they do is told by `storage.document_reader.terms.ranking`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from storage import tables
from storage.document_reader.chunker import Chunk
from storage.document_reader.terms.ranking import TermQuery, parse_query
from storage.document_reader.terms.tokenizer import ENGLISH

MOST_COUNTED: Final = 2_000
"""Passages with a term are counted up to here: more make it so common that it hardly matters how common."""
MOST_RANKED: Final = 3_000
"""Passages that the index ranks, the oldest ones, where even the rarest term of a question is in more: 10 ms."""
MOST_SCORED: Final = 48
"""Of the passages that the index ranks, the first ones get a score."""

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
_HOLDERS: Final = sa.text(
    "SELECT term.key, (SELECT count(*) FROM (SELECT 1 FROM knowledge_index WHERE knowledge_index MATCH term.value "
    f"LIMIT {MOST_COUNTED})) AS holders FROM json_each(:matches) AS term"
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
BEST: Final = sa.text(
    f"{_COLUMNS} FROM (SELECT id FROM (SELECT rowid AS id, rank AS place FROM knowledge_index "
    f"WHERE knowledge_index MATCH :match AND rank MATCH 'bm25(0.0, 1.0)' LIMIT {MOST_RANKED}) "
    f"ORDER BY place LIMIT {MOST_RANKED}) AS best CROSS JOIN knowledge_chunks AS chunk ON chunk.id = best.id {_OLDEST}"
    "CROSS JOIN knowledge_index AS found ON found.rowid = best.id WHERE document.status = 'ready' LIMIT :most"
)
"""CROSS JOIN keeps this order (SQLite, "Manual control of query plans"): the rows come by rank, and only as many are
looked up as the limit lets through. A passage of several documents is told as the oldest one's."""
_THOSE: Final = sa.text(
    f"{_COLUMNS} FROM knowledge_chunks AS chunk CROSS JOIN knowledge_index AS found ON found.rowid = chunk.id {_OLDEST}"
    "WHERE chunk.id IN :ids AND document.agent_id = :agent AND document.status = 'ready'"
).bindparams(sa.bindparam("ids", expanding=True))


@dataclass(frozen=True)
class FoundPassage:
    """A passage, the name of its document, how well it answers (0..1), and where it stands: the document's id, and the
    passage's number in it from 0 on. `by_vector`: the score tells of meaning, too."""

    content: str
    document: str
    score: float
    document_id: str
    position: int
    by_vector: bool = False


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


def remove(conn: sa.Connection, content_id: str, *, most: int) -> int:
    """Remove passages of a content, and what the index has of them. Returns how many: fewer than `most` are the
    last ones."""
    some = sa.select(_t.c.id).where(_t.c.document_id == content_id).limit(most)
    return conn.execute(sa.delete(_t).where(_t.c.id.in_(some.scalar_subquery()))).rowcount


class KeywordSearch:
    """A question to an agent's ready documents by its words, which are counted in one transaction: once for each
    language in which they are indexed, which is one but for the moment after its languageHint has changed."""

    def __init__(self, conn: sa.Connection, agent_id: str, text: str) -> None:
        """`text` is anybody's words."""
        self._agent_id = agent_id
        self._asked: dict[str, _LanguageQuery] = {}
        self._passages: int = conn.execute(_READY_PASSAGES, {"agent": agent_id}).scalar_one()
        for language in conn.execute(_LANGUAGES, {"agent": agent_id}).scalars() if self._passages else ():
            if asked := parse_query(text, language):
                self._asked[language] = _LanguageQuery(asked, _holders(conn, agent_id, asked))

    def best(self, conn: sa.Connection) -> dict[int, FoundPassage]:
        """The passages that answer best, by their ids."""
        found: dict[int, FoundPassage] = {}
        for language, asked in self._asked.items():
            if match := asked.question.match(self._agent_id, asked.holders):
                rows = conn.execute(BEST, {"match": match, "most": MOST_SCORED})
                found |= self._found(row for row in rows if row.language == language)
        return found

    def score(self, conn: sa.Connection, passages: Collection[int]) -> dict[int, FoundPassage]:
        """Passages by their ids, if they are of the agent's ready documents, whatever words they hold."""
        return self._found(conn.execute(_THOSE, {"agent": self._agent_id, "ids": list(passages)}))

    def _found(self, rows: Iterable[sa.Row[Any]]) -> dict[int, FoundPassage]:
        return {
            row.id: FoundPassage(row.content, row.name, self._score(row), row.document, row.position) for row in rows
        }

    def _score(self, row: sa.Row[Any]) -> float:
        asked = self._asked.get(row.language)
        return 0.0 if asked is None else asked.question.score(row.terms, asked.holders, self._passages)


@dataclass(frozen=True)
class _LanguageQuery:
    """A question in one language, and how many passages hold each of its terms."""

    question: TermQuery
    holders: Mapping[str, int]


def search(conn: sa.Connection, agent_id: str, text: str, *, most: int) -> list[FoundPassage]:
    """The passages of the agent's ready documents that answer best by their words, the best first. `text` is anybody's
    words."""
    found = KeywordSearch(conn, agent_id, text).best(conn).values()
    return sorted(found, key=lambda each: -each.score)[:most]


def _holders(conn: sa.Connection, agent_id: str, asked: TermQuery) -> dict[str, int]:
    """How many of the agent's passages hold each term, counted up to a bound."""
    matches = json.dumps({term: asked.match_one(agent_id, term) for term in asked.terms})
    return {row.key: row.holders for row in conn.execute(_HOLDERS, {"matches": matches})}
