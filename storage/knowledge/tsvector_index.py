"""The text index of PostgreSQL: the table `knowledge_index` with a `tsvector` of each passage's terms, and of its agent
with the prefix `agent:` (PostgreSQL documentation, chapter 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from storage.knowledge.passage_columns import IS_OLDEST, MAX_COUNTED, MAX_RANKED, PASSAGE_COLUMNS

_NEXT_ID: Final = sa.text(
    "SELECT setval(sequence, nextval(sequence) + :more) - :more "
    "FROM pg_get_serial_sequence('knowledge_chunks', 'id') AS sequence"
)
_ADD: Final = sa.text("INSERT INTO knowledge_index(chunk_id, agent, terms) VALUES (:id, :agent, :terms)")
_REPLACE: Final = sa.text(
    "UPDATE knowledge_index SET terms = :terms "
    "WHERE chunk_id = (SELECT id FROM knowledge_chunks WHERE id = :id AND document_id = :content)"
)
_FREQUENCIES: Final = sa.text(
    "SELECT word, (SELECT count(*) FROM (SELECT 1 FROM knowledge_index WHERE lexemes @@ CAST(match AS tsquery) "
    f"LIMIT {MAX_COUNTED}) AS found) AS frequency "
    "FROM unnest(CAST(:terms AS text[]), CAST(:matches AS text[])) AS term(word, match)"
)


class TsvectorIndex:
    """See `storage.knowledge.text_index`. A passage's rank is the sum of the weights of its terms."""

    best_passages = sa.text(
        f"{PASSAGE_COLUMNS} FROM (SELECT chunk_id AS id, (SELECT sum(weight) "
        "FROM unnest(CAST(:terms AS text[]), CAST(:weights AS float8[])) AS term(word, weight) "
        "WHERE word = ANY(tsvector_to_array(lexemes))) AS place FROM knowledge_index "
        f"WHERE lexemes @@ CAST(:match AS tsquery) LIMIT {MAX_RANKED}) AS best "
        f"JOIN knowledge_chunks AS chunk ON chunk.id = best.id JOIN knowledge_documents AS document ON {IS_OLDEST}"
        "JOIN knowledge_index AS found ON found.chunk_id = best.id WHERE document.status = 'ready' "
        "ORDER BY best.place DESC, best.id LIMIT :most"
    )
    passages_by_id = sa.text(
        f"{PASSAGE_COLUMNS} FROM knowledge_chunks AS chunk JOIN knowledge_index AS found ON found.chunk_id = chunk.id "
        f"JOIN knowledge_documents AS document ON {IS_OLDEST}"
        "WHERE chunk.id IN :ids AND document.agent_id = :agent AND document.status = 'ready'"
    ).bindparams(sa.bindparam("ids", expanding=True))

    def next_id(self, conn: sa.Connection, count: int) -> int:
        """As `TextIndex.next_id`. The caller's lock keeps the ids consecutive."""
        first: int = conn.execute(_NEXT_ID, {"more": count - 1}).scalar_one()
        return first

    def add(self, conn: sa.Connection, agent_id: str, terms: Sequence[tuple[int, str]]) -> None:
        """As `TextIndex.add`."""
        conn.execute(_ADD, [{"id": number, "agent": agent_id, "terms": each} for number, each in terms])

    def replace(self, conn: sa.Connection, content_id: str, terms: Sequence[tuple[int, str]]) -> None:
        """As `TextIndex.replace`."""
        conn.execute(_REPLACE, [{"id": number, "terms": each, "content": content_id} for number, each in terms])

    def frequencies(self, conn: sa.Connection, agent_id: str, terms: Sequence[str]) -> dict[str, int]:
        """As `TextIndex.frequencies`."""
        matches = [match(agent_id, (term,)) for term in terms]
        return {
            row.word: row.frequency for row in conn.execute(_FREQUENCIES, {"terms": list(terms), "matches": matches})
        }

    def candidates(self, agent_id: str, terms: Sequence[str], frequencies: Mapping[str, int]) -> dict[str, Any]:
        """As `TextIndex.candidates`."""
        weights = [1 / frequencies[term] for term in terms]
        return {"match": match(agent_id, terms), "terms": list(terms), "weights": weights}


def match(agent_id: str, terms: Sequence[str]) -> str:
    """Returns the query for an agent's passages with any of the terms."""
    any_term = " | ".join(f"'{term}'" for term in terms)
    return f"'agent:{agent_id}' & ({any_term})"
