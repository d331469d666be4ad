"""Vector search by PostgreSQL's extension pgvector, where the database has it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import structlog
from numpy.typing import NDArray
from sqlalchemy.exc import DBAPIError

from models.embeddings.score_calibration import ScoreCalibration
from storage.database.database import Database
from storage.knowledge import pgvector_index
from storage.knowledge.pgvector_index import PassageCosines, PgvectorState

MAX_NEAREST: Final = 32
"""Passages that a search finds by vectors."""
CHECK_EVERY_S: Final = 60.0
"""Interval at which the database is asked whether it has pgvector, because it may be installed at any time."""
SEARCH_TIMEOUT_S: Final = 0.3
"""Time for a search; afterwards it goes on by keywords alone."""
MAX_COUNTS: Final = 1_000
"""Agents whose passages are known to be many or few."""
LOCK: Final = "pgvector"

log = structlog.get_logger()


@dataclass(frozen=True)
class PgvectorSimilarities:
    """See `calls.knowledge.vector_search.Similarities`."""

    nearest: Mapping[int, float]
    _database: Database
    _cosines: PassageCosines
    _scale: ScoreCalibration

    async def of_passages(self, numbers: list[int]) -> Mapping[int, float]:
        """As `Similarities.of_passages`."""
        left = [number for number in numbers if number not in self.nearest]
        if not left:
            return self.nearest
        found = await self._database.read(partial(self._cosines.of_passages, passages=left))
        return {**self.nearest, **{number: self._scale.similarity(cosine) for number, cosine in found.items()}}


class PgvectorSearch:
    """Searches in the vectors of one database. Event loop only."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._state: PgvectorState | None = None
        self._checked_s = float("-inf")
        self._prepared: int | None = None
        """The dimensions whose index was made."""
        self._large: dict[tuple[str, ...], bool] = {}

    async def is_usable(self) -> bool:
        """True if the database has pgvector with all vectors; asks it again after `CHECK_EVERY_S`. Raises
        `StorageUnavailable`."""
        now_s = asyncio.get_running_loop().time()
        if not self._database.is_sqlite and now_s - self._checked_s >= CHECK_EVERY_S:
            self._checked_s = now_s
            self._set(await self._database.read(pgvector_index.find))
        return self._state is not None and self._state.problem is None and self._state.is_whole

    async def prepare(self, dimensions: int) -> None:
        """Let the database have pgvector with all vectors, if it can; for the node that indexes documents. Raises
        `StorageUnavailable`."""
        if self._database.is_sqlite or (self._prepared == dimensions and await self.is_usable()):
            return
        try:
            state = await self._database.write(partial(pgvector_index.prepare, dimensions=dimensions), lock=LOCK)
            if state.problem is None and not state.is_whole:
                while not await self._database.write(pgvector_index.fill, lock=LOCK, deferrable=True):
                    pass
                state = await self._database.read(pgvector_index.find)
        except DBAPIError as error:
            state = PgvectorState(problem=str(error.orig).strip().partition("\n")[0])
        self._prepared = dimensions
        self._set(state)

    async def similarities(
        self, content_ids: tuple[str, ...], question: NDArray[np.float32], scale: ScoreCalibration
    ) -> PgvectorSimilarities | None:
        """Returns the similarities of passages of these contents; None if the search fails or takes too long. Raises
        `StorageUnavailable`."""
        text = f"[{','.join(format(value, '.6g') for value in question.tolist())}]"
        cosines = PassageCosines(content_ids, text, len(question))
        try:
            async with asyncio.timeout(SEARCH_TIMEOUT_S):
                by_index = await self._is_large(content_ids)
                found = await self._database.read(partial(cosines.nearest, limit=MAX_NEAREST, by_index=by_index))
        except TimeoutError:
            log.warning("knowledge.search_too_slow", timeout_s=SEARCH_TIMEOUT_S)
            return None
        except DBAPIError as error:  # the extension has been dropped
            self._set(PgvectorState(problem=str(error.orig).strip().partition("\n")[0]))
            return None
        similarities = {number: scale.similarity(cosine) for number, cosine in found.items()}
        nearest = {number: similarity for number, similarity in similarities.items() if similarity > 0}
        return PgvectorSimilarities(nearest, self._database, cosines, scale)

    async def _is_large(self, content_ids: tuple[str, ...]) -> bool:
        """Counts once for the same contents, because these do not change."""
        known = self._large.get(content_ids)
        if known is None:
            known = await self._database.read(partial(pgvector_index.is_large, content_ids=content_ids))
            while len(self._large) >= MAX_COUNTS:
                del self._large[next(iter(self._large))]
            self._large[content_ids] = known
        return known

    def _set(self, state: PgvectorState) -> None:
        if self._state is None or (state.problem, state.is_whole) != (self._state.problem, self._state.is_whole):
            used = state.problem is None and state.is_whole
            why = state.problem or (None if used else "the vectors are being copied into its index")
            log.info("knowledge.vector_search", by="pgvector" if used else "memory", version=state.version, why=why)
        self._state = state
