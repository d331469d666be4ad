"""Indexes documents for search: keywords in the language of their agents, and a vector of each passage by the loaded
embeddings model. Searches meanwhile use what is indexed already."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import structlog

from calls.knowledge.vector_search import VectorSearch
from calls.periodic_worker import PeriodicWorker
from config.errors import ModelError
from models.embeddings.vector_index import quantize
from models.protocols import Embeddings
from storage.database.database import Database
from storage.document_reader.terms.tokenizer import terms_of
from storage.knowledge import document_index
from storage.knowledge.document_index import PassageText

TERMS_PER_TRANSACTION: Final = 100
"""Passages whose keywords are indexed in one transaction, some 20 ms."""
VECTORS_PER_TRANSACTION: Final = 16
"""Passages that are embedded between two transactions: a second of one core for a small model."""
REMOVALS_PER_TRANSACTION: Final = 1_000
"""Vectors of another model that one transaction removes, some 5 ms."""
CHECK_EVERY_S: Final = 60.0
"""Interval without a `wake`, because an agent's languageHint may have changed."""
RETRY_S: Final = 30.0
"""The wait after a failure of the database or the model."""

log = structlog.get_logger()


class KnowledgeIndexer:
    """`run` updates the index until it is cancelled. Each step is stored, so that the next start continues from
    there."""

    def __init__(self, database: Database, vectors: VectorSearch | None = None) -> None:
        self._database = database
        self._vectors = vectors
        self._worker = PeriodicWorker("knowledge.not_kept", CHECK_EVERY_S, RETRY_S)

    def wake(self) -> None:
        """Index now, because a document is ready or an agent has changed."""
        self._worker.wake()

    async def wait_idle(self) -> None:
        """Wait until everything is indexed."""
        await self._worker.wait_idle()

    async def run(self) -> None:
        """Index at once, whenever `wake` is called, and every `CHECK_EVERY_S`."""
        await self._worker.run(self._index)

    async def _index(self) -> bool:
        await self._index_terms()
        await self._index_vectors()
        return True

    async def _index_terms(self) -> None:
        for content_id, language in await self._database.read(document_index.contents_to_reindex):
            after = 0
            while batch := await self._texts(content_id, after):
                terms = await asyncio.to_thread(_terms, batch, language)
                index = partial(document_index.set_terms, content_id=content_id, terms=terms)
                await self._database.write(index, deferrable=True)
                after = batch[-1][0]
            note = partial(document_index.set_language, content_id=content_id, language=language)
            await self._database.write(note, deferrable=True)
            log.info("knowledge.words_indexed", content_id=content_id, language=language)

    async def _texts(self, content_id: str, after: int) -> list[PassageText]:
        read = partial(document_index.passage_texts, content_id=content_id, after=after, limit=TERMS_PER_TRANSACTION)
        return await self._database.read(read)

    async def _index_vectors(self) -> None:
        if self._vectors is None:
            return
        await self._vectors.calibrate()
        model = self._vectors.model
        await self._vectors.pgvector.prepare(model.dimensions)
        failed: ModelError | None = None
        for content_id in await self._database.read(partial(document_index.contents_to_embed, model=model.version)):
            try:
                await self._embed(content_id, model)
            except ModelError as error:
                failed = error  # a passage that the model refuses fails its own document alone
            if self._worker.is_woken:  # keywords of newer documents have priority: many vectors take hours
                return
        if failed is not None:
            raise failed

    async def _embed(self, content_id: str, model: Embeddings) -> None:
        """Embed passages until each has a vector, or the worker is woken."""
        begin = partial(document_index.begin_vectors, content_id=content_id, model=model.version)
        while not await self._database.write(partial(begin, limit=REMOVALS_PER_TRANSACTION), deferrable=True):
            pass
        count = 0
        missing = partial(document_index.passages_without_vector, content_id=content_id, limit=VECTORS_PER_TRANSACTION)
        while batch := await self._database.read(missing):
            if count and self._worker.is_woken:
                return
            vectors = await model.embed([text for _, text in batch], query=False)
            rows = [(number, row) for (number, _), row in zip(batch, quantize(vectors), strict=True)]
            add = partial(document_index.add_vectors, content_id=content_id, vectors=rows)
            await self._database.write(add, deferrable=True)
            count += len(batch)
        finish = partial(document_index.finish_vectors, content_id=content_id, model=model.version)
        await self._database.write(finish, deferrable=True)
        log.info("knowledge.vectors_made", content_id=content_id, model=model.name, passages=count)


def _terms(texts: Sequence[PassageText], language: str) -> list[PassageText]:
    return [(number, " ".join(terms_of(text, language))) for number, text in texts]
