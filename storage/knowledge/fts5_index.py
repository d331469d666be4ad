"""The text index of SQLite: the FTS5 table `knowledge_index`, whose rowid is the passage's id."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from storage.knowledge.passage_columns import IS_OLDEST, MAX_COUNTED, MAX_RANKED, PASSAGE_COLUMNS

_LAST_ID: Final = sa.text("SELECT coalesce(max(id), 0) FROM knowledge_chunks")
_ADD: Final = sa.text("INSERT INTO knowledge_index(rowid, agent, terms) VALUES (:id, :agent, :terms)")
_REPLACE: Final = sa.text(
    "UPDATE knowledge_index SET terms = :terms "
    "WHERE rowid = (SELECT id FROM knowledge_chunks WHERE id = :id AND document_id = :content)"
)
_FREQUENCIES: Final = sa.text(
    "SELECT term.key, (SELECT count(*) FROM (SELECT 1 FROM knowledge_index WHERE knowledge_index MATCH term.value "
    f"LIMIT {MAX_COUNTED})) AS frequencies FROM json_each(:matches) AS term"
)


class Fts5Index:
    """See `storage.knowledge.text_index`. CROSS JOIN fixes the join order (SQLite, "Manual control of query plans"):
    rows come by rank, and only as many are looked up as the limit allows."""

    best_passages = sa.text(
        f"{PASSAGE_COLUMNS} FROM (SELECT id FROM (SELECT rowid AS id, rank AS place FROM knowledge_index "
        f"WHERE knowledge_index MATCH :match AND rank MATCH 'bm25(0.0, 1.0)' LIMIT {MAX_RANKED}) "
        f"ORDER BY place LIMIT {MAX_RANKED}) AS best CROSS JOIN knowledge_chunks AS chunk ON chunk.id = best.id "
        f"CROSS JOIN knowledge_documents AS document ON {IS_OLDEST}"
        "CROSS JOIN knowledge_index AS found ON found.rowid = best.id WHERE document.status = 'ready' LIMIT :most"
    )
    passages_by_id = sa.text(
        f"{PASSAGE_COLUMNS} FROM knowledge_chunks AS chunk "
        "CROSS JOIN knowledge_index AS found ON found.rowid = chunk.id "
        f"CROSS JOIN knowledge_documents AS document ON {IS_OLDEST}"
        "WHERE chunk.id IN :ids AND document.agent_id = :agent AND document.status = 'ready'"
    ).bindparams(sa.bindparam("ids", expanding=True))

    def next_id(self, conn: sa.Connection, count: int) -> int:
        """As `TextIndex.next_id`."""
        last: int = conn.execute(_LAST_ID).scalar_one()
        return last + 1

    def add(self, conn: sa.Connection, agent_id: str, terms: Sequence[tuple[int, str]]) -> None:
        """As `TextIndex.add`."""
        conn.execute(_ADD, [{"id": number, "agent": agent_id, "terms": each} for number, each in terms])

    def replace(self, conn: sa.Connection, content_id: str, terms: Sequence[tuple[int, str]]) -> None:
        """As `TextIndex.replace`."""
        conn.execute(_REPLACE, [{"id": number, "terms": each, "content": content_id} for number, each in terms])

    def frequencies(self, conn: sa.Connection, agent_id: str, terms: Sequence[str]) -> dict[str, int]:
        """As `TextIndex.frequencies`."""
        matches = json.dumps({term: match(agent_id, (term,)) for term in terms})
        return {row.key: row.frequencies for row in conn.execute(_FREQUENCIES, {"matches": matches})}

    def candidates(self, agent_id: str, terms: Sequence[str], frequencies: Mapping[str, int]) -> dict[str, Any]:
        """As `TextIndex.candidates`. The index weighs the terms by its own frequencies."""
        return {"match": match(agent_id, terms)}


def match(agent_id: str, terms: Sequence[str]) -> str:
    """Returns the expression for an agent's passages with any of the terms. Quoted terms are never operators, even `or`
    and `near` (FTS5, section 3)."""
    any_term = " OR ".join(f'"{term}"' for term in terms)
    return f'agent : "{agent_id}" AND terms : ({any_term})'
