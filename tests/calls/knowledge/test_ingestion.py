"""Document ingestion: uploaded documents are read into passages, also after crashes, and deleted ones leave no data."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa

from calls.knowledge import ingestion
from calls.knowledge.ingestion import CONCURRENT_READS_PER_ORGANIZATION, PASSAGES_PER_TRANSACTION
from calls.post_call.retention_worker import RetentionWorker
from config.clock import utc_now
from storage.accounts import organizations
from storage.agents import agents
from storage.document_reader.chunker import Chunk
from storage.knowledge import documents as knowledge
from storage.knowledge import files
from storage.knowledge.documents import Document
from storage.tables.agent_fields import AgentFields
from tests.calls.knowledge.ingestion_harness import TEXT, Archive, children, running_ingester, until_processes
from tests.database_template import sqlite_only
from tests.storage.transaction_gate import Gate


async def test_documents_that_are_pending_at_start_are_read_without_a_wake(archive: Archive) -> None:
    made = [await archive.upload() for _ in range(3)]
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    assert [await archive.told(each) for each in made] == [("ready", 1, None)] * 3
    assert len(await archive.search("open sunday")) == 3


async def test_a_document_uploaded_later_is_read_after_a_wake(archive: Archive) -> None:
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
        document = await archive.upload()
        worker.wake()
        await worker.wait_idle()
        assert await archive.told(document) == ("ready", 1, None)


async def test_the_ingester_checks_by_itself_without_a_wake(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion, "CHECK_EVERY_S", 0.01)
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
        document = await archive.upload(None)
        await until_processes(lambda: bool(children()))
        archive.write(document)
        worker.wake()
        await worker.wait_idle()
        assert await archive.told(document) == ("ready", 1, None)


async def test_a_document_of_many_passages_is_stored_in_batches(archive: Archive) -> None:
    count = 2 * PASSAGES_PER_TRANSACTION + 7
    lines = [f"# Berth {number}\n\nIt costs {number} euros." for number in range(count)]
    document = await archive.upload("\n\n".join(lines).encode(), "text/markdown")
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    assert await archive.told(document) == ("ready", count, None)
    for number in (0, PASSAGES_PER_TRANSACTION - 1, PASSAGES_PER_TRANSACTION, count - 1):
        assert (await archive.search(f"berth {number}"))[0] == f"Berth {number}\nIt costs {number} euros."


async def test_a_document_is_complete_after_a_crash_during_its_storing(archive: Archive) -> None:
    lines = [f"# Berth {number}\n\nIt costs {number} euros." for number in range(30)]
    document = await archive.upload("\n\n".join(lines).encode(), "text/markdown")
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    documents = "UPDATE knowledge_documents SET status = 'processing', chunk_count = 20"
    chunks = "DELETE FROM knowledge_chunks WHERE position >= 20"

    def interrupt(conn: sa.Connection) -> None:
        for statement in (documents, chunks):
            conn.execute(sa.text(statement))

    await archive.database.write(interrupt)
    assert await archive.search("berth 7") == []
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    assert await archive.told(document) == ("ready", 30, None)
    assert await archive.remaining_counts() == [30, 30, 0, 1]


async def test_a_stop_ends_the_reading_process_and_the_next_start_reads_again(archive: Archive) -> None:
    document = await archive.upload(None)
    async with running_ingester(archive):
        await until_processes(lambda: bool(children()))
        assert (await archive.get(document)).status == "processing"
    assert not children()
    assert (await archive.get(document)).status == "processing"
    async with running_ingester(archive) as worker:
        await until_processes(lambda: bool(children()))
        archive.write(document)
        await worker.wait_idle()
    assert await archive.told(document) == ("ready", 1, None)


async def test_only_a_few_documents_are_read_at_once_and_the_oldest_first(archive: Archive) -> None:
    made = [await archive.upload(None) for _ in range(CONCURRENT_READS_PER_ORGANIZATION)]
    await until_processes(lambda: utc_now() > made[-1].created_at)
    made.append(await archive.upload())
    async with running_ingester(archive) as worker:
        await until_processes(lambda: len(children().split()) == CONCURRENT_READS_PER_ORGANIZATION)
        assert [(await archive.get(each)).status for each in made] == [
            "processing"
        ] * CONCURRENT_READS_PER_ORGANIZATION + ["pending"]
        for document in made[:CONCURRENT_READS_PER_ORGANIZATION]:
            archive.write(document)
        await worker.wait_idle()
    assert [await archive.told(each) for each in made] == [("ready", 1, None)] * len(made)


async def test_deleting_a_document_while_it_is_read_ends_its_process_and_leaves_no_data(
    archive: Archive,
) -> None:
    kept, gone = await archive.upload(), await archive.upload(None)
    async with running_ingester(archive) as worker:
        await until_processes(lambda: bool(children()))
        await archive.delete(gone)
        worker.wake()
        await worker.wait_idle()
        assert not children()
        assert await archive.remaining_counts() == [1, 1, 0, 1]
    assert await archive.told(kept) == ("ready", 1, None)


async def test_deleting_a_document_while_it_is_stored_leaves_no_data(archive: Archive) -> None:
    lines = [f"# Berth {number}\n\nIt costs {number} euros." for number in range(3 * PASSAGES_PER_TRANSACTION)]
    document = await archive.upload("\n\n".join(lines).encode(), "text/markdown")
    gate, add = Gate(), knowledge.add_chunks
    waits = iter([gate.wait])

    def add_and_wait(conn: sa.Connection, document: Document, chunks: Sequence[Chunk]) -> bool:
        added = add(conn, document, chunks)
        next(waits, lambda _: None)(conn)
        return added

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(knowledge, "add_chunks", add_and_wait)
        async with running_ingester(archive) as worker:
            await gate.reached()
            deletion = asyncio.create_task(archive.delete(document))
            await asyncio.sleep(0)  # it is queued before the next batch
            gate.open()
            await deletion
            worker.wake()
            await worker.wait_idle()
    assert await archive.remaining_counts() == [0, 0, 0, 0]


async def test_a_deleted_agents_documents_leave_no_data(archive: Archive) -> None:
    for _ in range(3):
        await archive.upload()
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
        assert await archive.remaining_counts() == [3, 3, 0, 3]
        delete = partial(agents.delete, organization_id=archive.organization_id, agent_id=archive.agent_id)
        assert await archive.database.write(delete)
        worker.wake()
        await worker.wait_idle()
        assert await archive.remaining_counts() == [0, 0, 0, 0]


@sqlite_only("the write-ahead log is the server's")
async def test_the_text_of_a_deleted_document_is_not_in_the_write_ahead_log(archive: Archive) -> None:
    retention = RetentionWorker(archive.database, archive.data_dir)
    emptying = asyncio.create_task(retention.run())
    await retention.wait_idle()
    async with running_ingester(archive, retention.request_wal_truncation) as worker:
        document = await archive.upload()
        await worker.wait_idle()
        log = Path(f"{archive.database.path}-wal")
        assert await asyncio.to_thread(log.read_bytes) != b""
        await archive.delete(document)
        worker.wake()
        await worker.wait_idle()
        await retention.wait_idle()
        assert await asyncio.to_thread(log.read_bytes) == b""
    emptying.cancel()
    await asyncio.wait([emptying])


async def test_a_document_deleted_before_a_crash_is_removed_after_the_next_start(archive: Archive) -> None:
    document = await archive.upload()
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    await archive.delete(document)
    assert await archive.remaining_counts() == [1, 1, 1, 1]
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    assert await archive.remaining_counts() == [0, 0, 0, 0]


async def test_files_without_a_row_are_not_removed(archive: Archive) -> None:
    document, gone, unknown = await archive.upload(), await archive.upload(), str(uuid4())
    await asyncio.to_thread(files.write, archive.data_dir, unknown, TEXT)
    await archive.delete(gone)
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    names = await asyncio.to_thread(os.listdir, archive.data_dir / "knowledge")
    assert set(names) == {document.id, unknown}


async def test_a_file_that_cannot_be_removed_is_removed_later(archive: Archive) -> None:
    stuck, gone = await archive.upload(), await archive.upload()
    path = files.path_of(archive.data_dir, stuck.id)
    path.unlink()
    path.mkdir()
    for each in (stuck, gone):
        await archive.delete(each)
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
        assert await archive.remaining_counts() == [0, 0, 1, 1]
        path.rmdir()
        await asyncio.to_thread(path.write_bytes, TEXT)
        worker.wake()
        await worker.wait_idle()
        assert await archive.remaining_counts() == [0, 0, 0, 0]


async def test_a_text_is_read_in_the_charset_that_its_sender_names(archive: Archive) -> None:
    await archive.upload("Żółw.".encode("iso-8859-2"), 'text/plain; charset="iso-8859-2"')
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    assert await archive.search("żółw") == ["Żółw."]


async def test_identical_files_are_read_once_even_if_the_first_document_is_deleted_meanwhile(archive: Archive) -> None:
    first = await archive.upload(None, same="file")
    async with running_ingester(archive) as worker:
        await until_processes(lambda: bool(children()))
        second = await archive.upload(same="file")
        await archive.delete(first)
        worker.wake()
        archive.write(first)
        await worker.wait_idle()
    assert await archive.told(second) == ("ready", 1, None)
    assert await archive.remaining_counts() == [1, 1, 0, 1]
    assert await archive.search("sunday") == [TEXT.decode().replace("\n\n", "\n")]


async def test_a_hundred_uploads_of_one_organization_do_not_delay_anothers_first_one(
    archive: Archive,
) -> None:
    hog = [await archive.upload(None) for _ in range(CONCURRENT_READS_PER_ORGANIZATION)] + [
        await archive.upload() for _ in range(98)
    ]
    other = await second_archive(archive)
    async with running_ingester(archive) as worker:
        await until_processes(lambda: len(children().split()) == CONCURRENT_READS_PER_ORGANIZATION)
        late = await other.upload()
        worker.wake()
        async with asyncio.timeout(20):
            while (await other.get(late)).status != "ready":  # noqa: ASYNC110 - another process reads it
                await asyncio.sleep(0.02)
        assert {(await archive.get(each)).status for each in hog[:CONCURRENT_READS_PER_ORGANIZATION]} == {"processing"}
        assert {(await archive.get(each)).status for each in hog[CONCURRENT_READS_PER_ORGANIZATION:]} == {"pending"}
        for document in hog[CONCURRENT_READS_PER_ORGANIZATION:]:
            await archive.delete(document)
        for document in hog[:CONCURRENT_READS_PER_ORGANIZATION]:
            archive.write(document)
        await worker.wait_idle()


async def second_archive(archive: Archive) -> Archive:
    """An archive of another organization, with the same ingester."""

    def make(conn: sa.Connection) -> tuple[str, str]:
        organization = organizations.create(conn, "other")
        agent = agents.create(conn, organization.id, AgentFields(name="a", knowledge_search_instructions="search"))
        return organization.id, agent.id

    return Archive(archive.database, archive.data_dir, *await archive.database.write(make))
