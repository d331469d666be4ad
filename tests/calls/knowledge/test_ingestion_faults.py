"""Ingestion faults: a failure with one document affects no other, and a temporary one is retried."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls.knowledge import ingestion
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.knowledge import document_index, documents, files
from tests.calls.knowledge.ingestion_harness import TEXT, Archive, children, running_ingester, until_processes

T = TypeVar("T")


async def test_a_file_that_cannot_be_read_fails_with_a_reason_and_others_go_on(archive: Archive) -> None:
    empty, broken, good = [
        await archive.upload(content, mime_type)
        for content, mime_type in ((b"  \n", "text/plain"), (b"no pdf", "application/pdf"), (TEXT, "text/plain"))
    ]
    unknown = await archive.upload(TEXT, "image/png")
    with capture_logs() as lines:
        async with running_ingester(archive) as worker:
            await worker.wait_idle()
    assert await archive.told(empty) == ("failed", 0, "No text was found")
    assert await archive.told(unknown) == ("failed", 0, "Files of this type cannot be read")
    status, count, reason = await archive.told(broken)
    assert (status, count) == ("failed", 0)
    assert reason
    assert await archive.told(good) == ("ready", 1, None)
    assert [line for line in lines if line["log_level"] == "error"] == []


async def test_an_unexpected_exception_fails_its_document_alone_and_is_logged_once(archive: Archive) -> None:
    document, good = await archive.upload(), await archive.upload()
    await asyncio.to_thread(files.path_of(archive.data_dir, document.id).unlink)
    with capture_logs() as lines:
        async with running_ingester(archive) as worker:
            await worker.wait_idle()
    assert await archive.told(document) == ("failed", 0, "The file could not be read")
    assert await archive.told(good) == ("ready", 1, None)
    (fault,) = [line for line in lines if line["log_level"] in ("error", "warning")]
    assert fault["event"] == "knowledge.document_broken"


class FaultyDatabase(Database):
    """A database in which every write for one document raises an unexpected exception."""

    document_id = ""

    async def write(
        self,
        work: Callable[[sa.Connection], T],
        *,
        owner: str | None = None,
        lock: str | None = None,
        deferrable: bool = False,
    ) -> T:
        if isinstance(work, partial) and work.keywords.get("content_id") == self.document_id:
            raise ValueError("unforeseen")
        return await super().write(work, owner=owner, lock=lock, deferrable=deferrable)


async def test_an_unexpected_exception_while_failing_a_document_does_not_affect_others(archive: Archive) -> None:
    database = FaultyDatabase(archive.database.url.render_as_string())
    await database.open()
    plain, archive.database = archive.database, database
    try:
        broken = await archive.upload()
        database.document_id = broken.id
        with capture_logs() as lines:
            async with running_ingester(archive) as worker:
                await worker.wait_idle()
                good = await archive.upload()
                worker.wake()
                await worker.wait_idle()
        faults = [line["event"] for line in lines if line["log_level"] == "error"]
        assert faults == ["knowledge.document_broken", "knowledge.not_given_up"]
        assert await archive.told(good) == ("ready", 1, None)
        database.document_id = ""
        async with running_ingester(archive) as worker:
            await worker.wait_idle()
        assert await archive.told(broken) == ("ready", 1, None)
    finally:
        archive.database = plain
        await database.close()


class FullDiskDatabase(Database):
    """A database whose next writes fail with a full disk."""

    refusals = 0

    async def write(
        self,
        work: Callable[[sa.Connection], T],
        *,
        owner: str | None = None,
        lock: str | None = None,
        deferrable: bool = False,
    ) -> T:
        if self.refusals:
            self.refusals -= 1
            raise StorageUnavailable("the disk is full")
        return await super().write(work, owner=owner, lock=lock, deferrable=deferrable)


@pytest.mark.parametrize("refusals", range(1, 6))
async def test_a_full_disk_only_delays_ingestion(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, refusals: int
) -> None:
    monkeypatch.setattr(ingestion, "RETRY_S", 0.01)
    database = FullDiskDatabase(archive.database.url.render_as_string())
    await database.open()
    plain, archive.database = archive.database, database
    try:
        kept, gone = await archive.upload(None), await archive.upload()
        async with running_ingester(archive) as worker:
            await until_processes(lambda: bool(children()))
            await archive.delete(gone)
            database.refusals = refusals
            archive.write(kept)
            worker.wake()
            await worker.wait_idle()
        assert database.refusals == 0
        assert await archive.told(kept) == ("ready", 1, None)
        assert await archive.remaining_counts() == [1, 1, 0, 1]
    finally:
        archive.database = plain
        await database.close()


async def test_a_database_failure_before_a_file_is_read_only_delays_it(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "RETRY_S", 0.01)
    language_now, troubles = document_index.agent_language, [StorageUnavailable("the disk cannot be read or written")]

    def agent_language(conn: sa.Connection, agent_id: str) -> str:
        if troubles:
            raise troubles.pop()
        return language_now(conn, agent_id)

    monkeypatch.setattr(document_index, "agent_language", agent_language)
    document = await archive.upload()
    async with running_ingester(archive) as worker:
        await worker.wait_idle()
    assert troubles == []
    assert await archive.told(document) == ("ready", 1, None)


async def test_an_outage_of_the_database_at_the_start_only_delays_it_and_is_logged_once(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "RETRY_S", 0.01)
    reset_now = documents.reset_interrupted
    troubles = [StorageUnavailable("the database cannot be reached", unreachable=True)] * 3

    def reset_interrupted(conn: sa.Connection) -> None:
        if troubles:
            raise troubles.pop()
        reset_now(conn)

    monkeypatch.setattr(documents, "reset_interrupted", reset_interrupted)
    document = await archive.upload()
    with capture_logs() as logs:
        async with running_ingester(archive) as worker:
            await worker.wait_idle()
    assert troubles == []
    assert await archive.told(document) == ("ready", 1, None)
    levels = [each["log_level"] for each in logs if each["event"] == "knowledge.storage_trouble"]
    assert levels == ["error", "debug", "debug"]
