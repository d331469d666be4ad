"""The receivers of docs/start/first-webhook.md, each run as its page says, get events from the real sender."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from calls.webhooks.signing import signature_headers
from config.secrets import Secrets
from storage.database.database import Database
from tests.calls.webhooks.outbox_harness import put, request_manual_attempt, running_sender, stored
from tests.peers.ports import free_port

PAGE = (Path(__file__).parents[3] / "docs/start/first-webhook.md").read_text()
SECRET = "hush · hush"
CALL = "7a0b5d0e-57b2-4a53-9d0e-0c5fd0a0c001"
EVENT = {"event": "call.completed", "callId": CALL, "status": "completed", "durationSeconds": 12, "customerNumber": "·"}
BODY = json.dumps(EVENT, ensure_ascii=False).encode()


@dataclass(frozen=True)
class Program:
    """A receiver of the page: the language of its code block, its file, the tool that runs it."""

    language: str
    file: str
    tool: str

    def __str__(self) -> str:
        return self.language

    def command(self, folder: Path) -> list[str]:
        if self.language == "go":  # `go run` leaves its child behind when it is ended
            return [str(folder / "receiver")]
        return [self.tool, self.file]


PROGRAMS = (
    Program("python", "receiver.py", sys.executable),
    Program("js", "receiver.js", "node"),
    Program("go", "receiver.go", "go"),
)


@dataclass
class Running:
    """A running receiver."""

    port: int
    folder: Path
    process: asyncio.subprocess.Process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def stored_calls(self) -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in (self.folder / "calls").iterdir()}

    async def printed(self) -> str:
        """The next line that the receiver prints."""
        assert self.process.stdout is not None
        async with asyncio.timeout(20):
            return (await self.process.stdout.readline()).decode()

    async def printed_until_stop(self) -> str:
        """Stop the receiver; returns what it has printed since the last line."""
        self.process.terminate()
        return (await self.process.communicate())[0].decode()


def _write(program: Program, folder: Path, port: int) -> None:
    (block,) = re.findall(rf"```{program.language}\n(.*?)```", PAGE, re.DOTALL)
    assert "9001" in block
    (folder / program.file).write_text(block.replace("9001", str(port)))


async def _build(folder: Path) -> None:
    compiler = await asyncio.create_subprocess_exec("go", "build", "-o", "receiver", "receiver.go", cwd=folder)
    assert await compiler.wait() == 0


async def _listens(running: Running) -> None:
    """Wait until the receiver takes connections; no event of another process reports it."""
    async with asyncio.timeout(60):
        while running.process.returncode is None:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", running.port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                return
    raise AssertionError("the receiver has ended")


@asynccontextmanager
async def _running(program: Program, folder: Path) -> AsyncIterator[Running]:
    running_port = free_port()
    await asyncio.to_thread(_write, program, folder, running_port)
    if program.language == "go":
        await _build(folder)
    process = await asyncio.create_subprocess_exec(
        *program.command(folder), cwd=folder, env={**os.environ, "WEBHOOK_SECRET": SECRET},
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        running = Running(running_port, folder, process)
        await _listens(running)
        yield running
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture(params=PROGRAMS, ids=str)
async def receiving(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Running]:
    """Each receiver of the page, running. Set-up does not install Go: Debian's compiler takes 330 MB."""
    program: Program = request.param
    if shutil.which(program.tool) is None:
        pytest.skip(f"`{program.tool}` is not installed: the receiver in this language is not tested here")
    folder = tmp_path / "receiver"
    folder.mkdir()
    async with _running(program, folder) as running:
        yield running


async def test_a_receiver_stores_a_call_once_and_answers_200_each_time(
    database: Database, secrets: Secrets, receiving: Running
) -> None:
    delivery = await put(database, receiving.url, secrets.encrypt(SECRET), body=BODY)
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
        assert await receiving.printed() == "call.completed completed 12\n"
        await request_manual_attempt(database, delivery)
        sender.wake()
        await sender.wait_idle()
    _, attempts = await stored(database, delivery)
    assert [attempt.response_status for attempt in attempts] == [200, 200]
    assert receiving.stored_calls == {f"{CALL}.json": BODY}
    assert await receiving.printed_until_stop() == "", "the second attempt has no effect"


async def test_a_receiver_answers_401_to_a_webhook_signed_with_another_secret(
    database: Database, secrets: Secrets, receiving: Running
) -> None:
    delivery = await put(database, receiving.url, secrets.encrypt("another secret"), body=BODY)
    unsigned = await put(database, receiving.url, body=BODY)
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
    for each in (delivery, unsigned):
        _, (attempt,) = await stored(database, each)
        assert (attempt.status, attempt.response_status) == ("failed", 401)
    assert receiving.stored_calls == {}
    assert await receiving.printed_until_stop() == ""


async def test_a_receiver_answers_401_to_a_body_that_was_altered(receiving: Running) -> None:
    headers = {**signature_headers("1", BODY, SECRET, 0), "Content-Type": "application/json"}
    async with aiohttp.ClientSession() as client:
        for body in (BODY.replace(b"completed", b"Completed"), BODY + b" ", b"{}"):
            async with client.post(receiving.url, data=body, headers=headers) as response:
                assert response.status == 401
        async with client.post(receiving.url, data=BODY, headers=headers) as response:
            assert response.status == 200, "the same headers with the right body"


async def test_a_receiver_takes_other_events_and_stores_none_of_them(
    database: Database, secrets: Secrets, receiving: Running
) -> None:
    body = BODY.replace(b"call.completed", b"call.other")
    delivery = await put(database, receiving.url, secrets.encrypt(SECRET), body=body)
    async with running_sender(database, secrets) as sender:
        await sender.wait_idle()
    _, (attempt,) = await stored(database, delivery)
    assert attempt.response_status == 200
    assert receiving.stored_calls == {}
