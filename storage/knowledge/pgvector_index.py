"""Passages near a question by pgvector (https://github.com/pgvector/pgvector), an extension of PostgreSQL that its
administrator installs: the table `knowledge_embeddings`, which is derived from `knowledge_vectors` by a trigger. It is
no part of the migrations, because the extension may be installed later; `prepare` makes it. Vectors of each number of
dimensions have an index of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

MIN_VERSION: Final = (0, 8)
"""Earlier ones end a search with a filter early (`hnsw.iterative_scan` is of 0.8)."""
MAX_DIMENSIONS: Final = 2_000
"""Of an index."""
EXACT_PASSAGES: Final = 10_000
"""So many passages of an agent are all compared; the index, which all agents share, finds those of more."""
MAX_SCANNED: Final = 100_000
"""Entries of the index that a search visits at most, with those of other agents."""
FILLED_PER_TRANSACTION: Final = 50
"""Some 100 ms, in which writes that run alone wait."""
_WHOLE: Final = "whole"
"""The comment of the table once it has each vector."""

_VERSION: Final = sa.text("SELECT extversion FROM pg_extension WHERE extname = 'vector'")
_AVAILABLE: Final = sa.text("SELECT default_version FROM pg_available_extensions WHERE name = 'vector'")
_COMMENT: Final = sa.text("SELECT obj_description(to_regclass('knowledge_embeddings'), 'pg_class')")
_COLUMN: Final = sa.text(
    "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('knowledge_embeddings') AND attname = 'embedding' "
    "AND NOT attisdropped"
)
_TABLE: Final = (
    "DROP TABLE IF EXISTS knowledge_embeddings",
    "CREATE TABLE knowledge_embeddings ("
    "chunk_id BIGINT PRIMARY KEY REFERENCES knowledge_vectors ON DELETE CASCADE, "
    'content_id VARCHAR(36) COLLATE "C" NOT NULL, dimensions INTEGER NOT NULL, embedding vector NOT NULL)',
    "ALTER TABLE knowledge_embeddings ALTER COLUMN embedding SET STORAGE PLAIN",
    "CREATE INDEX ix_knowledge_embeddings_content_id ON knowledge_embeddings (content_id)",
    # The bytes of models.embeddings.vector_index.quantize, whose scale does not change a cosine.
    "CREATE OR REPLACE FUNCTION knowledge_embedding(quantized BYTEA) RETURNS vector LANGUAGE sql IMMUTABLE STRICT AS "
    "$$ SELECT CAST(array_agg(CAST(CASE WHEN value > 127 THEN value - 256 ELSE value END AS REAL) ORDER BY place) "
    "AS vector) FROM (SELECT place, get_byte(quantized, place) AS value "
    "FROM generate_series(4, octet_length(quantized) - 1) AS place) AS bytes $$",
    # After DROP EXTENSION passages are embedded without it.
    "CREATE OR REPLACE FUNCTION knowledge_embed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
    "INSERT INTO knowledge_embeddings(chunk_id, content_id, dimensions, embedding) "
    "SELECT new.chunk_id, document_id, octet_length(new.vector) - 4, knowledge_embedding(new.vector) "
    "FROM knowledge_chunks WHERE id = new.chunk_id "
    "ON CONFLICT (chunk_id) DO UPDATE SET content_id = excluded.content_id, dimensions = excluded.dimensions, "
    "embedding = excluded.embedding; RETURN new; "
    "EXCEPTION WHEN undefined_table OR undefined_column OR undefined_function OR undefined_object THEN RETURN new; "
    "END $$",
    "CREATE OR REPLACE TRIGGER knowledge_embed AFTER INSERT OR UPDATE ON knowledge_vectors FOR EACH ROW "
    "EXECUTE FUNCTION knowledge_embed()",
)
_DIMENSIONS: Final = sa.text("SELECT octet_length(vector) - 4 FROM knowledge_vectors LIMIT 1")
_FILL: Final = sa.text(
    "INSERT INTO knowledge_embeddings(chunk_id, content_id, dimensions, embedding) "
    "SELECT given.chunk_id, chunk.document_id, octet_length(given.vector) - 4, knowledge_embedding(given.vector) "
    "FROM knowledge_vectors AS given JOIN knowledge_chunks AS chunk ON chunk.id = given.chunk_id "
    "WHERE NOT EXISTS (SELECT 1 FROM knowledge_embeddings AS has WHERE has.chunk_id = given.chunk_id) "
    "LIMIT :most ON CONFLICT (chunk_id) DO NOTHING"
)
_COUNT: Final = sa.text(
    "SELECT count(*) FROM (SELECT 1 FROM knowledge_embeddings WHERE content_id = ANY(:contents) LIMIT :most) AS counted"
)
_BY_INDEX: Final = sa.text(
    "SELECT set_config('hnsw.iterative_scan', 'strict_order', true), set_config('hnsw.ef_search', '200', true), "
    f"set_config('hnsw.max_scan_tuples', '{MAX_SCANNED}', true), set_config('enable_sort', 'off', true)"
)
"""Without a sort the planner takes the index, also before the table's statistics are known."""


@dataclass(frozen=True)
class PgvectorState:
    """What a database has of pgvector. `problem`: why it is not used; None: `is_whole` says if each vector is in its
    index."""

    version: str | None = None
    problem: str | None = None
    is_whole: bool = False


def find(conn: sa.Connection) -> PgvectorState:
    """Returns what the database has, and changes nothing."""
    if conn.dialect.name == "sqlite":
        return PgvectorState(problem="SQLite has none")
    version = conn.execute(_VERSION).scalar_one_or_none()
    if version is None:
        available = conn.execute(_AVAILABLE).scalar_one_or_none()
        if available is None:
            return PgvectorState(problem="the extension is not installed on the PostgreSQL server")
        return PgvectorState(problem="the extension is not in the database: CREATE EXTENSION vector")
    if _parsed(version) < MIN_VERSION:
        return PgvectorState(version, f"version {version} is too old: 0.8 or newer, then ALTER EXTENSION vector UPDATE")
    has_column = conn.execute(_COLUMN).scalar_one_or_none() is not None
    return PgvectorState(version, is_whole=has_column and conn.execute(_COMMENT).scalar_one() == _WHOLE)


def prepare(conn: sa.Connection, dimensions: int) -> PgvectorState:
    """Create the extension, if the database's user may do so, the table, and the index of vectors with so many
    dimensions (0: of those that are stored); returns what the database has then. `fill` is to be called until the table
    is whole."""
    state = find(conn)
    if state.problem is not None and state.version is None and conn.dialect.name != "sqlite":
        if conn.execute(_AVAILABLE).scalar_one_or_none() is None or not _created(conn):
            return state
        state = find(conn)
    if state.problem is not None:
        return state
    if conn.execute(_COLUMN).scalar_one_or_none() is None:
        for statement in _TABLE:
            conn.exec_driver_sql(statement)
    dimensions = dimensions or conn.execute(_DIMENSIONS).scalar_one_or_none() or 0
    if 0 < dimensions <= MAX_DIMENSIONS:
        conn.exec_driver_sql(
            f"CREATE INDEX IF NOT EXISTS ix_knowledge_embeddings_{dimensions} ON knowledge_embeddings "
            f"USING hnsw ((CAST(embedding AS vector({dimensions}))) vector_cosine_ops) "
            f"WHERE dimensions = {dimensions}"
        )
    return find(conn)


def fill(conn: sa.Connection) -> bool:
    """Copy vectors that were stored before `prepare`, some at a time; returns True once all are in the table."""
    if conn.execute(_FILL, {"most": FILLED_PER_TRANSACTION}).rowcount == FILLED_PER_TRANSACTION:
        return False
    conn.exec_driver_sql(f"COMMENT ON TABLE knowledge_embeddings IS '{_WHOLE}'")
    return True


def is_large(conn: sa.Connection, content_ids: Sequence[str]) -> bool:
    """True if the contents have more than `EXACT_PASSAGES` passages with vectors."""
    most = EXACT_PASSAGES + 1
    return bool(conn.execute(_COUNT, {"contents": list(content_ids), "most": most}).scalar_one() == most)


@dataclass(frozen=True)
class PassageCosines:
    """Cosines of passages of these contents with a question. `question`: its vector as text."""

    content_ids: Sequence[str]
    question: str
    dimensions: int

    def nearest(self, conn: sa.Connection, limit: int, *, by_index: bool) -> dict[int, float]:
        """Returns the cosines of the nearest passages, by id. `by_index`: approximate, for `is_large` contents; else
        all are compared."""
        where = f"WHERE content_id = ANY(:contents) AND dimensions = {self.dimensions}"
        source = f"knowledge_embeddings {where}"
        if by_index:
            conn.execute(_BY_INDEX)
        else:
            source = f"(SELECT chunk_id, embedding FROM {source} OFFSET 0) AS own"
        return self._found(conn, f"{source} ORDER BY distance LIMIT {limit}", {"contents": list(self.content_ids)})

    def of_passages(self, conn: sa.Connection, passages: Collection[int]) -> dict[int, float]:
        """Returns the cosines of these passages; one without a vector is omitted."""
        where = "WHERE chunk_id = ANY(:passages) AND content_id = ANY(:contents)"
        given = {"passages": list(passages), "contents": list(self.content_ids)}
        return self._found(conn, f"knowledge_embeddings {where} AND dimensions = {self.dimensions}", given)

    def _found(self, conn: sa.Connection, source: str, given: Mapping[str, object]) -> dict[int, float]:
        kind = f"vector({self.dimensions})"
        distance = f"CAST(embedding AS {kind}) <=> CAST(:question AS {kind})"
        query = sa.text(f"SELECT chunk_id, {distance} AS distance FROM {source}")
        rows = conn.execute(query, {**given, "question": self.question})
        return {number: 1 - far for number, far in rows if far == far}  # a vector of zeros has no angle


def _created(conn: sa.Connection) -> bool:
    try:
        with conn.begin_nested():
            conn.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS vector")
    except DBAPIError:  # the user may not
        return False
    return True


def _parsed(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
