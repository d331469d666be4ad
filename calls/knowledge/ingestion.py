"""Document ingestion: reads uploaded documents into passages, and removes files and passages of deleted documents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import structlog

from calls.periodic_worker import PeriodicWorker
from config.clock import utc_now
from storage.database.database import Database
from storage.database.duplicate_filter import DuplicateFilter
from storage.database.errors import StorageUnavailable
from storage.document_reader.base.errors import BROKEN, UnreadableDocument
from storage.document_reader.base.media_types import charset_of, format_of
from storage.document_reader.chunker import Chunk
from storage.document_reader.process.extract import extract
from storage.document_reader.terms.tokenizer import ENGLISH
from storage.knowledge import document_index, documents, files, passages
from storage.knowledge.documents import Document

CONCURRENT_READS: Final = 3
"""Documents that are read at once, each in a process of its own."""
CONCURRENT_READS_PER_ORGANIZATION: Final = 2
"""The same for one organization, so that another organization's first document begins at once."""
PASSAGES_PER_TRANSACTION: Final = 100
"""Passages stored or removed in one transaction, which takes some 20 ms, so that other writers wait no longer."""
REMOVALS_LOCK: Final = "knowledge removals"
"""The lock of the writes that remove what deleted documents have left, of any organization."""
CHECK_EVERY_S: Final = 60.0
"""Interval without a `wake`."""
RETRY_S: Final = 5.0
"""The wait after a failure of the database."""

_STORAGE_FAILURE_EVENT: Final = "knowledge.storage_trouble"

T = TypeVar("T")
log = structlog.get_logger()


class DocumentIngester:
    """`run` reads pending documents and removes deleted ones until it is cancelled. A document whose reading was
    cancelled is read again after the next start."""

    def __init__(
        self,
        database: Database,
        data_dir: Path,
        on_ready: Callable[[], None] = lambda: None,
        on_removed: Callable[[], None] = lambda: None,
        on_changed: Callable[[Document], None] = lambda _: None,
    ) -> None:
        """`on_ready` is called after a document became ready, `on_removed` after the passages of one were removed,
        `on_changed` with each document that has another status."""
        self._on_changed = on_changed
        self._on_ready = on_ready
        self._on_removed = on_removed
        self._database = database
        self._data_dir = data_dir
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._read_worker = PeriodicWorker(_STORAGE_FAILURE_EVENT, CHECK_EVERY_S, RETRY_S)
        self._remove_worker = PeriodicWorker(_STORAGE_FAILURE_EVENT, CHECK_EVERY_S, RETRY_S)

    async def recover(self) -> None:
        """Make the documents pending whose reading a dead process did not finish. Before `run`; it is tried again while
        the database fails."""
        await _with_retries(partial(self._database.write, documents.reset_interrupted))

    def wake(self) -> None:
        """Work now, because documents were uploaded or deleted."""
        self._read_worker.wake()
        self._remove_worker.wake()

    async def wait_idle(self) -> None:
        """Wait until nothing is pending, processing or to be removed."""
        await self._read_worker.wait_idle()
        await self._remove_worker.wait_idle()

    async def run(self) -> None:
        """Work at once, whenever `wake` is called, and every `CHECK_EVERY_S`."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._remove_worker.run(self._remove_deleted))
            await self._read_worker.run(partial(self._read_pending, group))

    async def _read_pending(self, group: asyncio.TaskGroup) -> bool:
        """Start to read documents up to the limits, and cancel deleted ones. Returns True if none is being read."""
        if self._reading:
            for content_id in await self._database.read(
                partial(documents.unreferenced, content_ids=list(self._reading))
            ):
                if content_id in self._reading:
                    self._reading[content_id].cancel()
        free = CONCURRENT_READS - len(self._reading)
        if free > 0 and await self._database.read(documents.has_pending):
            for document in await self._database.write(
                partial(documents.claim_pending, limit=free, limit_per_organization=CONCURRENT_READS_PER_ORGANIZATION)
            ):
                await self._tell(document.content_id)
                self._reading[document.content_id] = group.create_task(self._read(document))
        return not self._reading

    async def _read(self, document: Document) -> None:
        """Read one document until it is ready or failed. A fault in our code fails this document alone."""
        structlog.contextvars.bind_contextvars(document_id=document.id)
        try:
            for_agent = partial(document_index.agent_language, agent_id=document.agent_id)
            language = await _with_retries(partial(self._database.read, for_agent))
            await self._store_until_done(document, await self._passages(document, language), language)
        except Exception as error:
            log.error("knowledge.document_broken", error=repr(error), exc_info=error)
            await self._fail(document)
        finally:
            del self._reading[document.content_id]
            self._read_worker.wake()

    async def _fail(self, document: Document) -> None:
        """Store the document as failed; if that cannot be stored, the next start reads the document again."""
        try:
            await self._store_until_done(document, BROKEN, ENGLISH)
        except Exception as error:
            log.error("knowledge.not_given_up", error=repr(error), exc_info=error)

    async def _passages(self, document: Document, language: str) -> list[Chunk] | str:
        """Returns the passages of the file, or why it cannot be read."""
        kind = format_of(document.mime_type)
        path = files.path_of(self._data_dir, document.content_id)
        if kind is None:
            return "Files of this type cannot be read"
        try:
            return await extract(path, kind, charset=charset_of(document.mime_type), language=language)
        except UnreadableDocument as unreadable:
            return unreadable.message

    async def _store_until_done(self, document: Document, outcome: list[Chunk] | str, language: str) -> None:
        await _with_retries(partial(self._store, document, outcome, language))

    async def _store(self, document: Document, outcome: list[Chunk] | str, language: str) -> None:
        """Store the result in batches, after removing the passages of an earlier attempt."""
        lock = document.organization_id
        await self._remove_passages(document.content_id, lock)
        if isinstance(outcome, str):
            fail = partial(documents.fail, content_id=document.content_id, reason=outcome)
            await self._database.write(fail, lock=lock)
            await self._tell(document.content_id)
            return
        for first in range(0, len(outcome), PASSAGES_PER_TRANSACTION):
            batch = outcome[first : first + PASSAGES_PER_TRANSACTION]
            if not await self._database.write(
                partial(documents.add_chunks, document=document, chunks=batch), lock=lock
            ):
                return
        finish = partial(documents.finish, content_id=document.content_id, language=language)
        if await self._database.write(finish, lock=lock):
            self._on_ready()
            seconds = (utc_now() - document.updated_at).total_seconds()
            log.info("knowledge.ready", passages=len(outcome), seconds=seconds)
            await self._tell(document.content_id)

    async def _tell(self, content_id: str) -> None:
        """Tell the new status of the documents with this content. If the database fails nothing is told."""
        try:
            found = await self._database.read(partial(documents.of_content, content_id=content_id))
        except StorageUnavailable as error:
            log.debug("knowledge.status_not_told", cause=error.cause)
            return
        for document in found:
            self._on_changed(document)

    async def _remove_deleted(self) -> bool:
        """Remove the files and passages of deleted documents, and duplicate files. Always returns True, because nothing
        is under way afterwards. The next run tries a file that cannot be removed again."""
        last, any_removed = "", False
        while deleted := await self._database.read(partial(documents.pending_removals, limit=100, after=last)):
            for document_id in deleted:
                file_removed = await asyncio.to_thread(files.remove, self._data_dir, document_id)
                await self._remove_passages(document_id, REMOVALS_LOCK)
                if file_removed:
                    finish = partial(documents.finish_removal, document_id=document_id)
                    await self._database.write(finish, lock=REMOVALS_LOCK)
                    log.info("knowledge.removed", document_id=document_id)
                    any_removed = True
            last = deleted[-1]
        if any_removed:
            self._on_removed()
        return True

    async def _remove_passages(self, content_id: str, lock: str) -> None:
        remove = partial(passages.delete, content_id=content_id, limit=PASSAGES_PER_TRANSACTION)
        while await self._database.write(remove, lock=lock) == PASSAGES_PER_TRANSACTION:
            pass


async def _with_retries(work: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of `work`, which is tried again while the database fails."""
    duplicates = DuplicateFilter()
    while True:
        try:
            return await work()
        except StorageUnavailable as error:
            write = log.debug if duplicates.is_duplicate(error) else log.error
            write(_STORAGE_FAILURE_EVENT, cause=error.cause, again_in_s=RETRY_S)
        await asyncio.sleep(RETRY_S)
