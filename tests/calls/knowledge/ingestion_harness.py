"""Knowledge documents of one agent, and their ingester. Where a test needs it, the reading process waits for its file,
which is a named pipe then."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import sqlalchemy as sa

from calls.knowledge.ingestion import DocumentIngester
from storage.accounts import organizations
from storage.agents import agents
from storage.database.database import Database
from storage.knowledge import documents, passages
from storage.knowledge import files as knowledge_files
from storage.knowledge.documents import Document, DocumentFields
from storage.tables.agent_fields import AgentFields
from tests import database_template

TEXT = b"We open at nine.\n\nOn Sundays we are closed."
DEADLINE_S = 20.0


class Archive:
    """The documents of one agent, rows and files."""

    def __init__(self, database: Database, data_dir: Path, organization_id: str, agent_id: str) -> None:
        self.database = database
        self.data_dir = data_dir
        self.organization_id = organization_id
        self.agent_id = agent_id
        self._pipes: dict[str, int] = {}

    async def upload(
        self, content: bytes | None = TEXT, mime_type: str = "text/plain", *, same: str | None = None
    ) -> Document:
        """Store a pending document; without content its file is an empty pipe. Uploads of the `same` file share its
        content."""
        document_id = str(uuid4())
        await asyncio.to_thread(self._put, document_id, content)
        fields = DocumentFields(
            agent_id=self.agent_id,
            name="Hours",
            filename="a",
            mime_type=mime_type,
            file_size=0,
            sha256=same or document_id,
        )
        create = partial(documents.create, organization_id=self.organization_id, fields=fields)
        return await self.database.write(partial(create, document_id=document_id))

    def _put(self, document_id: str, content: bytes | None) -> None:
        if content is not None:
            knowledge_files.write(self.data_dir, document_id, content)
            return
        path = knowledge_files.path_of(self.data_dir, document_id)
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
        self._pipes[document_id] = os.open(path, os.O_RDWR)

    def write(self, document: Document, content: bytes = TEXT) -> None:
        """Write the content of a document into its pipe, and close it."""
        handle = self._pipes.pop(document.id)
        os.write(handle, content)
        os.close(handle)

    def close(self) -> None:
        """Close all pipes. They are removed first: a thread that opened one later would wait for ever."""
        for document_id, handle in self._pipes.items():
            knowledge_files.path_of(self.data_dir, document_id).unlink(missing_ok=True)
            os.close(handle)

    async def get(self, document: Document) -> Document:
        wanted = partial(documents.get, organization_id=self.organization_id, document_id=document.id)
        found = await self.database.read(wanted)
        assert found is not None
        return found

    async def told(self, document: Document) -> tuple[str, int, str | None]:
        found = await self.get(document)
        return found.status, found.chunk_count, found.error

    async def delete(self, document: Document) -> None:
        wanted = partial(documents.delete, organization_id=self.organization_id, document_id=document.id)
        assert await self.database.write(wanted)

    async def search(self, text: str) -> list[str]:
        found = await self.database.read(partial(passages.search, agent_id=self.agent_id, text=text, limit=10))
        return [each.content for each in found]

    async def remaining_counts(self) -> list[int]:
        """Returns the counts of rows of passages, of the index and of removals, and of files."""
        names = ("knowledge_chunks", "knowledge_index", "knowledge_removals")

        def count(conn: sa.Connection) -> list[int]:
            return [conn.execute(sa.text(f"SELECT count(*) FROM {name}")).scalar_one() for name in names]

        files = await asyncio.to_thread(os.listdir, self.data_dir / "knowledge")
        return [*await self.database.read(count), len(files)]


@asynccontextmanager
async def open_archive(data_dir: Path, url: str | None = None) -> AsyncIterator[Archive]:
    """An empty archive; checks at the end that no process is left. `url`: of another migrated database than usual."""
    database = Database(url or await database_template.copy_to(data_dir))
    await database.open()
    owner = (await database.write(lambda conn: organizations.create(conn, "default"))).id
    fields = AgentFields(name="Anna", knowledge_search_instructions="always")
    agent = await database.write(lambda conn: agents.create(conn, owner, fields))
    archive = Archive(database, data_dir, owner, agent.id)
    yield archive
    archive.close()
    await database.close()
    assert not await asyncio.to_thread(children), "no process is left"


def children() -> str:
    """Returns the ids of our child processes."""
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().strip()


@asynccontextmanager
async def running_ingester(
    archive: Archive, on_removed: Callable[[], None] = lambda: None
) -> AsyncIterator[DocumentIngester]:
    """An ingester as in a server, from start to stop."""
    worker = DocumentIngester(archive.database, archive.data_dir, on_removed=on_removed)
    await worker.recover()
    task = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield worker
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled(), "it runs until it is stopped"


async def until_processes(holds: Callable[[], bool]) -> None:
    """Poll a condition about processes."""
    async with asyncio.timeout(DEADLINE_S):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
