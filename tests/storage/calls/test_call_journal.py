"""The call journal: whole records survive the process, in order; others are reported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from cryptography.fernet import Fernet
from structlog.testing import capture_logs

from config.secrets import Secrets
from storage.calls.call_journal import FOLDER, CallJournal, JournalSize

SECRETS = Secrets([Fernet.generate_key()])
CALLS = [str(uuid4()) for _ in range(3)]


@asynccontextmanager
async def journal(folder: Path, secrets: Secrets = SECRETS, **settings: Any) -> AsyncIterator[CallJournal]:
    made = CallJournal(folder, secrets, **settings)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def test_records_are_read_by_the_next_process_in_the_order_of_their_first_writing(tmp_path: Path) -> None:
    async with journal(tmp_path) as first:
        for number, call_id in enumerate(CALLS):
            assert await first.write(call_id, {"number": number})
        assert await first.write(CALLS[0], {"number": 10})
        first.remove(CALLS[1])
    async with journal(tmp_path) as second:
        assert await second.calls() == [CALLS[0], CALLS[2]]
        assert await second.read(CALLS[0]) == {"number": 10}
        assert await second.read(CALLS[2]) == {"number": 2}
        assert await second.read(CALLS[1]) is None
        second.remove(CALLS[1])


async def test_a_record_that_was_being_written_is_removed_and_reported(tmp_path: Path) -> None:
    async with journal(tmp_path) as first:
        await first.write(CALLS[0], {"number": 0})
    (file,) = (tmp_path / FOLDER).iterdir()
    file.with_name(f"{file.name}.partial").write_bytes(file.read_bytes()[:50])
    with capture_logs() as lines:
        async with journal(tmp_path) as second:
            assert await second.read(CALLS[0]) == {"number": 0}
    assert [each["event"] for each in lines] == ["call_journal.incomplete"]
    assert list((tmp_path / FOLDER).iterdir()) == [file]


async def test_a_damaged_record_is_put_aside_and_reported_and_the_others_are_read(tmp_path: Path) -> None:
    async with journal(tmp_path) as first:
        for call_id in CALLS[:2]:
            await first.write(call_id, {})
    torn, _ = sorted((tmp_path / FOLDER).iterdir())
    torn.write_bytes(torn.read_bytes()[:-1])
    with capture_logs() as lines:
        async with journal(tmp_path) as second:
            assert await second.read(CALLS[0]) is None
            assert await second.read(CALLS[1]) == {}
            assert await second.calls() == [CALLS[1]]
    assert [(each["event"], each["call_id"]) for each in lines] == [("call_journal.damaged", CALLS[0])]
    assert torn.with_name(f"{torn.name}.damaged").exists()


async def test_a_record_of_another_key_stays(tmp_path: Path) -> None:
    async with journal(tmp_path) as first:
        await first.write(CALLS[0], {})
    with capture_logs() as lines:
        async with journal(tmp_path, Secrets([Fernet.generate_key()])) as second:
            assert await second.read(CALLS[0]) is None
    assert [each["event"] for each in lines] == ["call_journal.unreadable"]
    async with journal(tmp_path) as third:
        assert await third.read(CALLS[0]) == {}


async def test_the_size_is_bounded_and_told(tmp_path: Path) -> None:
    sizes: list[JournalSize] = []
    with capture_logs() as lines:
        async with journal(tmp_path, max_bytes=500) as small:
            small.on_size = sizes.append
            assert await small.write(CALLS[0], {"text": "x" * 100})
            assert not await small.write(CALLS[1], {"text": "x" * 100})
            assert not await small.write(CALLS[2], {"text": "x" * 100})
            small.remove(CALLS[0])
            assert await small.write(CALLS[1], {"text": "x" * 100})
    assert [each.calls for each in sizes] == [1, 0, 1]
    assert 300 < sizes[0].bytes < 500
    assert [(each["event"], each["log_level"]) for each in lines] == [
        ("call_journal.not_written", "error"),
        ("call_journal.not_written", "debug"),
    ]


async def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file")
    with capture_logs() as lines:
        async with journal(tmp_path) as broken:
            assert not await broken.write(CALLS[0], {})
    assert [each["event"] for each in lines] == ["call_journal.not_written"]
