"""Uploaded documents are read into passages, whatever becomes of the process that does it, and deleted ones leave
nothing behind. The reading process waits for its file where a test needs it to: its file is a named pipe then."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls import knowledge as worker_module
from calls.knowledge import PASSAGES_AT_ONCE, READ_AT_ONCE, KnowledgeWorker
from config.clock import utc_now
from storage import agents, knowledge, knowledge_files, knowledge_index, organizations
from storage.agents import AgentFields
from storage.database import Database, StorageTrouble
from storage.documents.chunks import Chunk
from storage.knowledge import Document, DocumentFields
from tests.storage.gate import Gate

TEXT = b"We open at nine.\n\nOn Sundays we are closed."
DEADLINE_S = 20.0
T = TypeVar("T")


class Archive:
    """Documents of one agent, rows and files."""

    def __init__(self, database: Database, data_dir: Path, organization_id: str, agent_id: str) -> None:
        self.database = database
        self.data_dir = data_dir
        self.organization_id = organization_id
        self.agent_id = agent_id
        self._pipes: dict[str, int] = {}

    async def upload(self, content: bytes | None = TEXT, mime_type: str = "text/plain") -> Document:
        """A pending document; without content its file is a pipe that nothing has been written to."""
        document_id = str(uuid4())
        await asyncio.to_thread(self._put, document_id, content)
        fields = DocumentFields(
            agent_id=self.agent_id, name="Hours", filename="a", mime_type=mime_type, file_size=0, sha256=""
        )
        create = partial(knowledge.create, organization_id=self.organization_id, fields=fields)
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
        """Give the pipe of a document its content and its end."""
        handle = self._pipes.pop(document.id)
        os.write(handle, content)
        os.close(handle)

    def close(self) -> None:
        """Nobody waits for a pipe any more."""
        for handle in self._pipes.values():
            os.close(handle)

    async def get(self, document: Document) -> Document:
        wanted = partial(knowledge.get, organization_id=self.organization_id, document_id=document.id)
        found = await self.database.read(wanted)
        assert found is not None
        return found

    async def told(self, document: Document) -> tuple[str, int, str | None]:
        found = await self.get(document)
        return found.status, found.chunk_count, found.error

    async def delete(self, document: Document) -> None:
        wanted = partial(knowledge.delete, organization_id=self.organization_id, document_id=document.id)
        assert await self.database.write(wanted)

    async def search(self, text: str) -> list[str]:
        found = await self.database.read(partial(knowledge_index.search, agent_id=self.agent_id, text=text, most=10))
        return [each.content for each in found]

    async def left(self) -> list[int]:
        """Rows of passages, of the index and of removals, and files."""
        names = ("knowledge_chunks", "knowledge_index", "knowledge_removals")

        def count(conn: sa.Connection) -> list[int]:
            return [conn.execute(sa.text(f"SELECT count(*) FROM {name}")).scalar_one() for name in names]

        files = await asyncio.to_thread(os.listdir, self.data_dir / "knowledge")
        return [*await self.database.read(count), len(files)]


@pytest.fixture
async def archive(tmp_path: Path) -> AsyncIterator[Archive]:
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'trunkline.db'}")
    await database.open()
    owner = (await database.write(lambda conn: organizations.create(conn, "default"))).id
    fields = AgentFields(name="Anna", knowledge_search_instructions="always")
    agent = await database.write(lambda conn: agents.create(conn, owner, fields))
    archive = Archive(database, tmp_path, owner, agent.id)
    yield archive
    archive.close()
    await database.close()
    assert not await asyncio.to_thread(_children), "no process stays"


def _children() -> str:
    """Ids of our child processes."""
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().strip()


@asynccontextmanager
async def at_work(archive: Archive) -> AsyncIterator[KnowledgeWorker]:
    """A worker as in a server, from its start to its stop."""
    worker = KnowledgeWorker(archive.database, archive.data_dir)
    await worker.recover()
    task = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield worker
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled(), "it runs until it is stopped"


async def _until(holds: Callable[[], bool]) -> None:
    """Of processes, which tell of nothing."""
    async with asyncio.timeout(DEADLINE_S):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_what_is_pending_at_the_start_is_read_without_a_call(archive: Archive) -> None:
    made = [await archive.upload() for _ in range(3)]
    async with at_work(archive) as worker:
        await worker.idle()
    assert [await archive.told(each) for each in made] == [("ready", 1, None)] * 3
    assert len(await archive.search("open sunday")) == 3


async def test_what_comes_later_is_read_when_the_worker_is_called(archive: Archive) -> None:
    async with at_work(archive) as worker:
        await worker.idle()
        document = await archive.upload()
        worker.wake()
        await worker.idle()
        assert await archive.told(document) == ("ready", 1, None)


async def test_the_worker_looks_by_itself_should_nobody_call(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "LOOK_EVERY_S", 0.01)
    async with at_work(archive) as worker:
        await worker.idle()
        document = await archive.upload(None)
        await _until(lambda: bool(_children()))
        archive.write(document)
        worker.wake()
        await worker.idle()
        assert await archive.told(document) == ("ready", 1, None)


async def test_a_document_of_many_passages_is_stored_in_pieces(archive: Archive) -> None:
    count = 2 * PASSAGES_AT_ONCE + 7
    lines = [f"# Berth {number}\n\nIt costs {number} euros." for number in range(count)]
    document = await archive.upload("\n\n".join(lines).encode(), "text/markdown")
    async with at_work(archive) as worker:
        await worker.idle()
    assert await archive.told(document) == ("ready", count, None)
    for number in (0, PASSAGES_AT_ONCE - 1, PASSAGES_AT_ONCE, count - 1):
        assert (await archive.search(f"berth {number}"))[0] == f"Berth {number}\nIt costs {number} euros."


async def test_a_document_is_read_whole_after_a_crash_in_the_middle_of_it(archive: Archive) -> None:
    lines = [f"# Berth {number}\n\nIt costs {number} euros." for number in range(30)]
    document = await archive.upload("\n\n".join(lines).encode(), "text/markdown")
    async with at_work(archive) as worker:
        await worker.idle()
    documents = "UPDATE knowledge_documents SET status = 'processing', chunk_count = 20"
    chunks = "DELETE FROM knowledge_chunks WHERE position >= 20"
    for statement in (documents, chunks):
        await archive.database.write(lambda conn, said=statement: conn.execute(sa.text(said)))
    assert await archive.search("berth 7") == []
    async with at_work(archive) as worker:
        await worker.idle()
    assert await archive.told(document) == ("ready", 30, None)
    assert await archive.left() == [30, 30, 0, 1]


async def test_a_stop_ends_the_reading_process_and_the_next_start_reads_again(archive: Archive) -> None:
    document = await archive.upload(None)
    async with at_work(archive):
        await _until(lambda: bool(_children()))
        assert (await archive.get(document)).status == "processing"
    assert not _children()
    assert (await archive.get(document)).status == "processing"
    async with at_work(archive) as worker:
        await _until(lambda: bool(_children()))
        archive.write(document)
        await worker.idle()
    assert await archive.told(document) == ("ready", 1, None)


async def test_only_a_few_documents_are_read_at_once_and_the_oldest_first(archive: Archive) -> None:
    made = [await archive.upload(None) for _ in range(READ_AT_ONCE)]
    await _until(lambda: utc_now() > made[-1].created_at)
    made.append(await archive.upload())
    async with at_work(archive) as worker:
        await _until(lambda: len(_children().split()) == READ_AT_ONCE)
        assert [(await archive.get(each)).status for each in made] == ["processing"] * READ_AT_ONCE + ["pending"]
        for document in made[:READ_AT_ONCE]:
            archive.write(document)
        await worker.idle()
    assert [await archive.told(each) for each in made] == [("ready", 1, None)] * len(made)


async def test_a_document_that_is_deleted_while_it_is_read_ends_its_process_and_leaves_nothing(
    archive: Archive,
) -> None:
    kept, gone = await archive.upload(), await archive.upload(None)
    async with at_work(archive) as worker:
        await _until(lambda: bool(_children()))
        await archive.delete(gone)
        worker.wake()
        await worker.idle()
        assert not _children()
        assert await archive.left() == [1, 1, 0, 1]
    assert await archive.told(kept) == ("ready", 1, None)


async def test_a_document_that_is_deleted_while_it_is_stored_leaves_nothing(archive: Archive) -> None:
    lines = [f"# Berth {number}\n\nIt costs {number} euros." for number in range(3 * PASSAGES_AT_ONCE)]
    document = await archive.upload("\n\n".join(lines).encode(), "text/markdown")
    gate, add = Gate(), knowledge.add_chunks
    waits = iter([gate.wait])

    def add_and_wait(conn: sa.Connection, document: Document, chunks: Sequence[Chunk]) -> bool:
        added = add(conn, document, chunks)
        next(waits, bool)()
        return added

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knowledge, "add_chunks", add_and_wait)
        async with at_work(archive) as worker:
            await gate.reached()
            deletion = asyncio.create_task(archive.delete(document))
            await asyncio.sleep(0)  # it stands in line before the next piece
            gate.open()
            await deletion
            worker.wake()
            await worker.idle()
    assert await archive.left() == [0, 0, 0, 0]


async def test_a_deleted_agents_documents_leave_nothing(archive: Archive) -> None:
    for _ in range(3):
        await archive.upload()
    async with at_work(archive) as worker:
        await worker.idle()
        assert await archive.left() == [3, 3, 0, 3]
        delete = partial(agents.delete, organization_id=archive.organization_id, agent_id=archive.agent_id)
        assert await archive.database.write(delete)
        worker.wake()
        await worker.idle()
        assert await archive.left() == [0, 0, 0, 0]


async def test_what_was_deleted_shortly_before_a_crash_is_removed_after_the_next_start(archive: Archive) -> None:
    document = await archive.upload()
    async with at_work(archive) as worker:
        await worker.idle()
    await archive.delete(document)
    assert await archive.left() == [1, 1, 1, 1]
    async with at_work(archive) as worker:
        await worker.idle()
    assert await archive.left() == [0, 0, 0, 0]


async def test_files_without_a_row_are_removed_at_the_start_and_no_others(archive: Archive) -> None:
    document = await archive.upload(b"\x00\x01")
    folder = archive.data_dir / "knowledge"
    for name in (str(uuid4()), "notes.txt", f"{uuid4()}.bak"):
        await asyncio.to_thread((folder / name).write_bytes, b"x")
    async with at_work(archive) as worker:
        await worker.idle()
    names = await asyncio.to_thread(os.listdir, folder)
    assert document.id in names
    assert len(names) == 3


async def test_a_file_that_cannot_be_read_fails_with_a_reason_and_others_go_on(archive: Archive) -> None:
    empty, broken, good = [
        await archive.upload(content, mime_type)
        for content, mime_type in ((b"  \n", "text/plain"), (b"no pdf", "application/pdf"), (TEXT, "text/plain"))
    ]
    unknown = await archive.upload(TEXT, "image/png")
    with capture_logs() as lines:
        async with at_work(archive) as worker:
            await worker.idle()
    assert await archive.told(empty) == ("failed", 0, "No text was found")
    assert await archive.told(unknown) == ("failed", 0, "Files of this type cannot be read")
    status, count, reason = await archive.told(broken)
    assert (status, count) == ("failed", 0)
    assert reason
    assert await archive.told(good) == ("ready", 1, None)
    assert [line for line in lines if line["log_level"] == "error"] == []


async def test_a_text_is_read_in_the_charset_that_its_sender_names(archive: Archive) -> None:
    await archive.upload("Żółw.".encode("iso-8859-2"), 'text/plain; charset="iso-8859-2"')
    async with at_work(archive) as worker:
        await worker.idle()
    assert await archive.search("żółw") == ["Żółw."]


async def test_a_fault_of_ours_stays_with_its_document_and_is_logged_once(archive: Archive) -> None:
    document, good = await archive.upload(), await archive.upload()
    await asyncio.to_thread(knowledge_files.path_of(archive.data_dir, document.id).unlink)
    with capture_logs() as lines:
        async with at_work(archive) as worker:
            await worker.idle()
    assert await archive.told(document) == ("failed", 0, "The file could not be read")
    assert await archive.told(good) == ("ready", 1, None)
    (fault,) = [line for line in lines if line["log_level"] in ("error", "warning")]
    assert fault["event"] == "knowledge.document_broken"


class FullDisk(Database):
    """A database whose next writes find the disk full."""

    refusals = 0

    async def write(self, work: Callable[[sa.Connection], T]) -> T:
        if self.refusals:
            self.refusals -= 1
            raise StorageTrouble("the disk is full")
        return await super().write(work)


@pytest.mark.parametrize("refusals", range(1, 6))
async def test_a_full_disk_only_delays_what_is_to_be_done(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    monkeypatch.setattr(worker_module, "TROUBLE_PAUSE_S", 0.01)
    database = FullDisk(archive.database.url.render_as_string())
    await database.open()
    plain, archive.database = archive.database, database
    try:
        kept, gone = await archive.upload(None), await archive.upload()
        async with at_work(archive) as worker:
            await _until(lambda: bool(_children()))
            await archive.delete(gone)
            database.refusals = refusals
            archive.write(kept)
            worker.wake()
            await worker.idle()
        assert database.refusals == 0
        assert await archive.told(kept) == ("ready", 1, None)
        assert await archive.left() == [1, 1, 0, 1]
    finally:
        archive.database = plain
        await database.close()
