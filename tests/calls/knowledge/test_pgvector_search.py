"""Vector search by pgvector finds what a comparison of all vectors finds; it may be installed later, and removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.engine import make_url
from structlog.testing import capture_logs

from calls.knowledge import pgvector_search
from calls.knowledge.pgvector_search import PgvectorSearch
from models.embeddings.score_calibration import ScoreCalibration
from models.embeddings.vector_index import VectorIndex, quantize
from storage import tables
from storage.database.database import Database
from storage.knowledge import pgvector_index
from tests.peers import postgresql

DIMENSIONS = 32
SCALE = ScoreCalibration(-1.0, 1.0)


class Passages:
    """Passages with random vectors in a database."""

    def __init__(self, url: str, database: Database, server: postgresql.PostgresqlServer) -> None:
        self.url = url
        self.database = database
        self.server = server
        self.vectors: dict[int, bytes] = {}
        self._random = np.random.default_rng(1)

    def unit(self, count: int) -> NDArray[np.float32]:
        rows = self._random.standard_normal((count, DIMENSIONS)).astype(np.float32)
        whole: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return whole

    async def add(self, count: int) -> tuple[str, list[int]]:
        """Store a content with passages; returns its id and theirs."""
        content, first = str(uuid4()), len(self.vectors) + 1
        rows = dict(enumerate(quantize(self.unit(count)), first))
        self.vectors |= rows

        def store(conn: sa.Connection) -> None:
            chunks = [{"id": n, "document_id": content, "position": n, "content": "x"} for n in rows]
            conn.execute(sa.insert(tables.knowledge_chunks), chunks)
            conn.execute(
                sa.insert(tables.knowledge_vectors), [{"chunk_id": n, "vector": each} for n, each in rows.items()]
            )

        await self.database.write(store)
        return content, list(rows)

    def exact(self, passages: list[int], question: NDArray[np.float32]) -> dict[int, float]:
        """The cosines of passages as the server computes them in its memory."""
        cosines = VectorIndex([self.vectors[n] for n in passages]).cosines(question)
        return dict(zip(passages, map(float, cosines), strict=True))

    def execute(self, statement: str) -> None:
        self.server.execute(statement, str(make_url(self.url).database))


@pytest.fixture(scope="module")
def server() -> postgresql.PostgresqlServer:
    found = postgresql.server_with_pgvector()
    if found is None:
        pytest.skip("no PostgreSQL with pgvector is installed")
    return found


@pytest.fixture
async def passages(server: postgresql.PostgresqlServer) -> AsyncIterator[Passages]:
    url = await asyncio.to_thread(server.take_database)
    database = Database(url)
    await database.open()
    yield Passages(url, database, server)
    await database.close()


async def found(search: PgvectorSearch, contents: list[str], question: NDArray[np.float32]) -> Any:
    similarities = await search.similarities(tuple(contents), question, SCALE)
    assert similarities is not None
    return similarities


@pytest.fixture(autouse=True)
def long_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pgvector_search, "SEARCH_TIMEOUT_S", 20.0)


@pytest.mark.parametrize("exact", [10_000, 0], ids=["all compared", "by index"])
async def test_the_nearest_passages_of_the_contents_are_found_and_no_others(
    passages: Passages, monkeypatch: pytest.MonkeyPatch, exact: int
) -> None:
    monkeypatch.setattr(pgvector_index, "EXACT_PASSAGES", exact)
    small, own = await passages.add(40)
    await passages.add(600)  # of another organization
    search = PgvectorSearch(passages.database)
    await search.prepare(DIMENSIONS)
    assert await search.is_usable()
    late, more = await passages.add(10)
    hits = 0
    for question in passages.unit(10):
        similarities = await found(search, [small, late], question)
        cosines = passages.exact(own + more, question)
        best = sorted(cosines, key=lambda number: -cosines[number])[: pgvector_search.MAX_NEAREST]
        assert similarities.nearest.keys() <= cosines.keys(), "of these contents alone"
        assert len(similarities.nearest) == pgvector_search.MAX_NEAREST, "the filter does not cost results"
        hits += len(similarities.nearest.keys() & set(best))
        for number, similarity in similarities.nearest.items():
            assert similarity == pytest.approx(SCALE.similarity(cosines[number]), abs=0.01)
        others = await similarities.of_passages([*own, *more, 999_999])
        assert others.keys() == cosines.keys()
    assert hits >= 0.95 * 10 * pgvector_search.MAX_NEAREST


async def test_the_index_is_used_for_many_passages(passages: Passages) -> None:
    await passages.add(500)
    await PgvectorSearch(passages.database).prepare(DIMENSIONS)
    literal = "[" + ",".join(["1"] * DIMENSIONS) + "]"

    def plan(conn: sa.Connection) -> str:
        conn.exec_driver_sql("SET LOCAL enable_seqscan = off")
        rows = conn.exec_driver_sql(
            f"EXPLAIN SELECT chunk_id FROM knowledge_embeddings WHERE dimensions = {DIMENSIONS} "
            f"ORDER BY CAST(embedding AS vector({DIMENSIONS})) <=> CAST('{literal}' AS vector({DIMENSIONS})) LIMIT 5"
        )
        return "\n".join(row[0] for row in rows)

    assert f"ix_knowledge_embeddings_{DIMENSIONS}" in await passages.database.read(plan)


async def test_vectors_from_before_are_copied_and_removed_passages_leave(passages: Passages) -> None:
    content, own = await passages.add(120)
    search = PgvectorSearch(passages.database)
    assert not await search.is_usable()
    with capture_logs() as logs:
        await search.prepare(DIMENSIONS)
    assert [(each["event"], each["by"]) for each in logs] == [("knowledge.vector_search", "pgvector")]
    gone = sa.delete(tables.knowledge_chunks).where(tables.knowledge_chunks.c.id.in_(own[:100]))
    await passages.database.write(lambda conn: conn.execute(gone))
    (question,) = passages.unit(1)
    similarities = await found(search, [content], question)
    assert set(await similarities.of_passages(own)) == set(own[100:])


async def test_without_the_extension_vectors_are_compared_in_memory_until_it_comes(
    passages: Passages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pgvector_index, "_created", lambda _conn: False)
    search = PgvectorSearch(passages.database)
    await search.prepare(DIMENSIONS)
    assert not await search.is_usable()
    state = await passages.database.read(pgvector_index.find)
    assert state.problem == "the extension is not in the database: CREATE EXTENSION vector"
    await asyncio.to_thread(passages.execute, "CREATE EXTENSION vector")
    await search.prepare(DIMENSIONS)
    assert await search.is_usable()


async def test_a_dropped_extension_stops_neither_searches_nor_the_index(passages: Passages) -> None:
    content, _ = await passages.add(5)
    search = PgvectorSearch(passages.database)
    await search.prepare(DIMENSIONS)
    await asyncio.to_thread(passages.execute, "DROP EXTENSION vector CASCADE")
    await passages.add(5)
    (question,) = passages.unit(1)
    assert await search.similarities((content,), question, SCALE) is None
    assert not await search.is_usable()
    await search.prepare(DIMENSIONS)
    similarities = await found(search, [content], question)
    count = await passages.database.read(lambda conn: conn.scalar(sa.text("SELECT count(*) FROM knowledge_embeddings")))
    assert similarities.nearest and count == 10


async def test_a_user_who_may_not_create_the_extension_searches_in_memory(
    server: postgresql.PostgresqlServer,
) -> None:
    url = await asyncio.to_thread(server.empty_database)
    name = str(make_url(url).database)
    for statement in (
        "DROP ROLE IF EXISTS plain", "CREATE ROLE plain LOGIN", f"ALTER DATABASE {name} OWNER TO plain",
    ):  # fmt: skip
        await asyncio.to_thread(server.execute, statement)
    await asyncio.to_thread(server.execute, "ALTER SCHEMA public OWNER TO plain", name)
    database = Database(url.replace("trunkline@", "plain@"))
    await database.open()
    search = PgvectorSearch(database)
    await search.prepare(DIMENSIONS)
    state = await database.read(partial(pgvector_index.find))
    await database.close()
    assert not await search.is_usable() if state.problem is None else state.version is None
