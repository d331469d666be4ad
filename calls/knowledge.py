"""Reads uploaded documents into passages, and removes what deleted ones leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from config.clock import utc_now
from storage import knowledge, knowledge_files, knowledge_index
from storage.database import Database, StorageTrouble
from storage.documents.chunks import Chunk
from storage.documents.errors import BROKEN, Unreadable
from storage.documents.extract import extract
from storage.documents.kinds import charset_of, kind_of
from storage.knowledge import Document

READ_AT_ONCE: Final = 2
"""Documents; each is a process of its own while its file is read."""
PASSAGES_AT_ONCE: Final = 100
"""Stored or removed in one transaction: some 20 ms, then others have their turn."""
LOOK_EVERY_S: Final = 60.0
"""Should nobody call."""
TROUBLE_PAUSE_S: Final = 5.0
"""Wait after the database was in trouble."""

log = structlog.get_logger()


class KnowledgeWorker:
    """`run` reads what is pending and removes what is gone until it is cancelled; what was being read then is read
    again after the next start."""

    def __init__(self, database: Database, data_dir: Path) -> None:
        self._database = database
        self._data_dir = data_dir
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._to_read = _Round()
        self._to_remove = _Round()

    async def recover(self) -> None:
        """After a start, before anybody uploads: take up what the last process did not finish."""
        await self._database.write(knowledge.begin_again)

    def wake(self) -> None:
        """Documents were uploaded or deleted."""
        self._to_read.wake()
        self._to_remove.wake()

    async def idle(self) -> None:
        """Wait until nothing is pending, processing or to be removed."""
        await self._to_read.idle()
        await self._to_remove.idle()

    async def run(self) -> None:
        """Work, at once and whenever `wake` is called."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._to_remove.repeat(self._remove_gone))
            await self._to_read.repeat(partial(self._read_pending, group))

    async def _read_pending(self, group: asyncio.TaskGroup) -> bool:
        """Start what there is room for, end what is deleted. Whether nothing is under way."""
        if self._reading:
            for document_id in await self._database.read(partial(knowledge.gone_of, document_ids=list(self._reading))):
                if document_id in self._reading:
                    self._reading[document_id].cancel()
        room = READ_AT_ONCE - len(self._reading)
        if room > 0:
            for document in await self._database.write(partial(knowledge.begin, most=room)):
                self._reading[document.id] = group.create_task(self._read(document))
        return not self._reading

    async def _read(self, document: Document) -> None:
        """Until it is ready or failed. A fault of ours in it stays with this document."""
        structlog.contextvars.bind_contextvars(document_id=document.id)
        try:
            await self._keep(document, await self._passages(document))
        except Exception as error:
            log.error("knowledge.document_broken", error=repr(error), exc_info=error)
            await self._give_up(document)
        finally:
            del self._reading[document.id]
            self._to_read.wake()

    async def _give_up(self, document: Document) -> None:
        """It has failed; where not even that can be stored, it is as if cut off: the next start reads it again."""
        try:
            await self._keep(document, BROKEN)
        except Exception as error:
            log.error("knowledge.not_given_up", error=repr(error), exc_info=error)

    async def _passages(self, document: Document) -> list[Chunk] | str:
        """What is in the file, or why it cannot be read."""
        kind = kind_of(document.mime_type)
        path = knowledge_files.path_of(self._data_dir, document.id)
        if kind is None:
            return "Files of this type cannot be read"
        try:
            return await extract(path, kind, charset=charset_of(document.mime_type))
        except Unreadable as unreadable:
            return unreadable.message

    async def _keep(self, document: Document, outcome: list[Chunk] | str) -> None:
        """Store it; trouble with the database only delays that."""
        while True:
            try:
                await self._store(document, outcome)
                return
            except StorageTrouble as trouble:
                log.error("knowledge.not_stored", cause=trouble.cause, again_in_s=TROUBLE_PAUSE_S)
            await asyncio.sleep(TROUBLE_PAUSE_S)

    async def _store(self, document: Document, outcome: list[Chunk] | str) -> None:
        """In pieces, from the beginning: what an earlier attempt has stored goes first."""
        await self._remove_passages(document.id)
        if isinstance(outcome, str):
            await self._database.write(partial(knowledge.fail, document_id=document.id, reason=outcome))
            return
        for first in range(0, len(outcome), PASSAGES_AT_ONCE):
            some = outcome[first : first + PASSAGES_AT_ONCE]
            if not await self._database.write(partial(knowledge.add_chunks, document=document, chunks=some)):
                return
        if await self._database.write(partial(knowledge.finish, document_id=document.id)):
            seconds = (utc_now() - document.updated_at).total_seconds()
            log.info("knowledge.ready", passages=len(outcome), seconds=seconds)

    async def _remove_gone(self) -> bool:
        """The files and passages of deleted documents. True: nothing is under way after it. A file that the disk does
        not give up stays noted: the next round tries again."""
        last = ""
        while gone := await self._database.read(partial(knowledge.to_remove, most=100, after=last)):
            for document_id in gone:
                file_gone = await asyncio.to_thread(knowledge_files.remove, self._data_dir, document_id)
                await self._remove_passages(document_id)
                if file_gone:
                    await self._database.write(partial(knowledge.removed, document_id=document_id))
                    log.info("knowledge.removed", document_id=document_id)
            last = gone[-1]
        return True

    async def _remove_passages(self, document_id: str) -> None:
        remove = partial(knowledge_index.remove, document_id=document_id, most=PASSAGES_AT_ONCE)
        while await self._database.write(remove) == PASSAGES_AT_ONCE:
            pass


class _Round:
    """Work that is done whenever there is news, and from time to time."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self._idle = asyncio.Event()

    def wake(self) -> None:
        """There is news."""
        self._idle.clear()
        self._news.set()

    async def idle(self) -> None:
        """Wait until there is no news, and nothing under way."""
        await self._idle.wait()

    async def repeat(self, work: Callable[[], Awaitable[bool]]) -> None:
        """Do it forever; it says whether nothing is under way after it."""
        while True:
            self._news.clear()
            wait_s = LOOK_EVERY_S
            try:
                at_rest = await work()
                if at_rest and not self._news.is_set():
                    self._idle.set()
            except StorageTrouble as trouble:
                log.error("knowledge.storage_trouble", cause=trouble.cause, again_in_s=TROUBLE_PAUSE_S)
                wait_s = TROUBLE_PAUSE_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
