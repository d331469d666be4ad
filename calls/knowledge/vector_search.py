"""Vector search: the similarity of an agent's passages to a question. PostgreSQL compares vectors itself where it has
pgvector. Elsewhere the vectors of the agents that were searched last are cached in memory, up to a limit; others are
read at the next question."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import numpy as np
import structlog
from numpy.typing import NDArray

from calls.knowledge.pgvector_search import MAX_NEAREST, PgvectorSearch
from config.errors import ModelError
from models.embeddings.score_calibration import ScoreCalibration, calibrate
from models.embeddings.vector_index import VectorIndex
from models.protocols import Embeddings
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.knowledge import document_index

MAX_CACHE_BYTES: Final = 256 * 1024 * 1024
"""Bytes of cached vectors: 650,000 passages of 384 dimensions."""
READ_TIMEOUT_S: Final = 0.3
"""Time for reading vectors that are not cached; afterwards the search goes on by keywords alone, and the next one has
them."""
EMBED_TIMEOUT_S: Final = 0.5
"""Time for the vector of a question."""
MAX_CHARACTERS: Final = 2_000
"""Characters of a question that are embedded."""
MAX_CONCURRENT_EMBEDDINGS: Final = 8
"""Questions embedded at once; further ones are searched by keywords alone, because with more of them all would exceed
`EMBED_TIMEOUT_S`, and the model would seem to have failed."""
CONCURRENT_READS: Final = 2
"""Agents whose vectors are read at once, because each may take as much memory as the cache."""
_MODEL_RETRY_S: Final = 10.0
"""The wait after a failure of the model."""

log = structlog.get_logger()


class Similarities(Protocol):
    """Similarities of an agent's passages to a question. `nearest` are those of the most similar ones, by id: 0..1;
    unrelated passages are omitted."""

    @property
    def nearest(self) -> Mapping[int, float]:
        """As above."""

    async def of_passages(self, numbers: list[int]) -> Mapping[int, float]:
        """Returns the similarities of these passages; one without a vector is omitted. Raises `StorageUnavailable`."""


class MemorySimilarities:
    """See `Similarities`; all passages are compared."""

    def __init__(self, passages: NDArray[np.int64], cosines: NDArray[np.float32], scale: ScoreCalibration) -> None:
        """`passages` are ids in ascending order, as many as `cosines`, at least one."""
        self._passages, self._cosines, self._scale = passages, cosines, scale
        most = min(MAX_NEAREST, len(cosines))
        best = np.argpartition(-cosines, most - 1)[:most]
        found = {int(passages[index]): scale.similarity(float(cosines[index])) for index in best}
        self.nearest: Final = {number: similarity for number, similarity in found.items() if similarity > 0}

    async def of_passages(self, numbers: list[int]) -> dict[int, float]:
        """As `Similarities.of_passages`."""
        indices = np.searchsorted(self._passages, numbers)
        known = [(number, index) for number, index in zip(numbers, indices.tolist(), strict=True)
                 if index < len(self._passages) and self._passages[index] == number]  # fmt: skip
        return {number: self._scale.similarity(float(self._cosines[index])) for number, index in known}


@dataclass(frozen=True)
class _AgentVectors:
    """An agent's vectors: of these contents, in the order of the passages' ids."""

    content_ids: tuple[str, ...]
    passages: NDArray[np.int64]
    index: VectorIndex


class VectorSearch:
    """Vector search with one embeddings model."""

    def __init__(
        self,
        database: Database,
        model: Embeddings,
        max_cache_bytes: int = MAX_CACHE_BYTES,
        scale: ScoreCalibration | None = None,
    ) -> None:
        """`scale` maps the model's cosines to similarities. Without it, `calibrate` has to be called."""
        self.model: Final = model
        self.pgvector: Final = PgvectorSearch(database)
        self._database = database
        self._max_cache_bytes = max_cache_bytes
        self._cached: OrderedDict[str, _AgentVectors] = OrderedDict()
        self._reading: dict[str, asyncio.Task[_AgentVectors | None]] = {}
        self._scale = scale
        self._not_before = 0.0
        self._embedding = 0
        self._read_slots = asyncio.Semaphore(CONCURRENT_READS)
        self._too_large: dict[str, tuple[str, ...]] = {}

    async def similarities(self, agent_id: str, text: str) -> Similarities | None:
        """Returns the similarities of an agent's passages; None while they are not known. Raises
        `StorageUnavailable`."""
        scale = self._scale
        if scale is None or not scale.is_usable or asyncio.get_running_loop().time() < self._not_before:
            return None
        with_vectors = partial(document_index.contents_with_vectors, agent_id=agent_id, model=self.model.version)
        content_ids = tuple(await self._database.read(with_vectors))
        if not content_ids:
            self._cached.pop(agent_id, None)
            return None
        if await self.pgvector.is_usable():
            question = await self._embed(text)
            return None if question is None else await self.pgvector.similarities(content_ids, question, scale)
        vectors = await self._vectors(agent_id, content_ids)
        if vectors is None:
            return None
        question = await self._embed(text)
        if question is None or len(question) != vectors.index.dimensions:
            return None
        return await asyncio.to_thread(
            lambda: MemorySimilarities(vectors.passages, vectors.index.cosines(question), scale)
        )

    async def _embed(self, text: str) -> NDArray[np.float32] | None:
        """Returns the vector of a question; None if the model fails or takes too long."""
        if self._embedding >= MAX_CONCURRENT_EMBEDDINGS:
            return None
        self._embedding += 1
        try:
            async with asyncio.timeout(EMBED_TIMEOUT_S):
                vectors = await self.model.embed([text[:MAX_CHARACTERS]], query=True)
        except (ModelError, TimeoutError) as error:
            self._not_before = asyncio.get_running_loop().time() + _MODEL_RETRY_S
            log.warning("knowledge.model_failed", model=self.model.name, error=repr(error), again_in_s=_MODEL_RETRY_S)
            return None
        finally:
            self._embedding -= 1
        question: NDArray[np.float32] = vectors[0]
        return question

    async def calibrate(self) -> None:
        """Measure the scale of the model's cosines once; before that, searches use keywords alone. Raises
        `ModelError`."""
        if self._scale is None:
            self._scale = await calibrate(self.model)
            if not self._scale.is_usable:
                log.error("knowledge.model_tells_nothing", model=self.model.name)

    async def _vectors(self, agent_id: str, content_ids: tuple[str, ...]) -> _AgentVectors | None:
        """Returns the agent's current vectors, if they are read in time."""
        vectors = self._cached.get(agent_id)
        if vectors is not None and vectors.content_ids == content_ids:
            self._cached.move_to_end(agent_id)
            return vectors
        if self._too_large.get(agent_id) == content_ids:
            return None
        reading = self._reading.get(agent_id)
        if reading is None:
            reading = self._reading[agent_id] = asyncio.create_task(self._read(agent_id, content_ids))
            reading.add_done_callback(lambda _: self._reading.pop(agent_id, None))
        done, _ = await asyncio.wait((reading,), timeout=READ_TIMEOUT_S)
        return reading.result() if done else None

    async def _read(self, agent_id: str, content_ids: tuple[str, ...]) -> _AgentVectors | None:
        try:
            async with self._read_slots:
                rows = await self._rows(content_ids)
                vectors = await asyncio.to_thread(_agent_vectors, content_ids, rows) if rows else None
        except StorageUnavailable as error:
            log.error("knowledge.vectors_not_read", cause=error.cause)
            return None
        if rows is None or (vectors is not None and vectors.index.size > self._max_cache_bytes):
            self._mark_too_large(agent_id, content_ids)
            return None
        if vectors is not None:
            self._cache(agent_id, vectors)
        return vectors

    async def _rows(self, content_ids: tuple[str, ...]) -> list[tuple[int, bytes]] | None:
        """Returns passages and their vectors; None if they are too large, without reading all."""
        rows: list[tuple[int, bytes]] = []
        size = 0
        for content_id in content_ids:
            read = partial(document_index.vectors_of, content_id=content_id, model=self.model.version)
            some = await self._database.read(read)
            rows += some
            size += sum(len(vector) for _, vector in some)
            if size > self._max_cache_bytes:
                return None
        return rows

    def _cache(self, agent_id: str, vectors: _AgentVectors) -> None:
        """Cache vectors in place of the least recently used ones."""
        self._cached[agent_id] = vectors
        self._cached.move_to_end(agent_id)
        while sum(each.index.size for each in self._cached.values()) > self._max_cache_bytes:
            self._cached.popitem(last=False)

    def _mark_too_large(self, agent_id: str, content_ids: tuple[str, ...]) -> None:
        """Do not read these vectors again until the agent's contents change."""
        self._cached.pop(agent_id, None)
        if agent_id not in self._too_large:
            log.warning("knowledge.too_many_vectors", agent_id=agent_id, documents=len(content_ids))
        self._too_large[agent_id] = content_ids


def _agent_vectors(content_ids: tuple[str, ...], rows: list[tuple[int, bytes]]) -> _AgentVectors:
    rows.sort(key=lambda row: row[0])
    # A remote model may have been replaced under the same name: the newest vectors are those of the current one.
    rows = [row for row in rows if len(row[1]) == len(rows[-1][1])]
    return _AgentVectors(
        content_ids, np.array([number for number, _ in rows], np.int64), VectorIndex([row for _, row in rows])
    )
