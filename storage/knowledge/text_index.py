"""Full-text index of passages: FTS5 in SQLite, a `tsvector` column with a GIN index in PostgreSQL. It finds candidates;
`storage.document_reader.terms.ranking` scores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import sqlalchemy as sa

from storage.knowledge.fts5_index import Fts5Index
from storage.knowledge.tsvector_index import TsvectorIndex


class TextIndex(Protocol):
    """The index of an engine. Terms have letters and digits only."""

    best_passages: sa.TextClause
    """Selects `PASSAGE_COLUMNS` of the passages with the most and the rarest terms, best first; takes the parameters of
    `candidates` and `most`. A passage of several documents is reported for the oldest one."""
    passages_by_id: sa.TextClause
    """Selects `PASSAGE_COLUMNS` of the passages `ids` in the ready documents of `agent`."""

    def next_id(self, conn: sa.Connection, count: int) -> int:
        """Returns the first of as many consecutive ids for new passages."""

    def add(self, conn: sa.Connection, agent_id: str, terms: Sequence[tuple[int, str]]) -> None:
        """Index new passages by their terms, separated by spaces."""

    def replace(self, conn: sa.Connection, content_id: str, terms: Sequence[tuple[int, str]]) -> None:
        """Replace the terms of passages of a content; those deleted meanwhile are skipped."""

    def frequencies(self, conn: sa.Connection, agent_id: str, terms: Sequence[str]) -> dict[str, int]:
        """Returns the number of the agent's passages with each term, up to `MAX_COUNTED`."""

    def candidates(self, agent_id: str, terms: Sequence[str], frequencies: Mapping[str, int]) -> dict[str, Any]:
        """Returns the parameters of `best_passages` for passages with any of the terms."""


_INDEXES: Final[Mapping[str, TextIndex]] = {"sqlite": Fts5Index(), "postgresql": TsvectorIndex()}


def of(conn: sa.Connection) -> TextIndex:
    """Returns the index of the connection's engine."""
    return _INDEXES[conn.dialect.name]
