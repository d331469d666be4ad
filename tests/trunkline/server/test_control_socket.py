"""The control socket: who may ask, how answers end, and what a slow reader does to the server, which is nothing."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from config.errors import NotFound, StartupError
from trunkline.server import control_socket
from trunkline.server.control_socket import (
    MAX_CLIENTS,
    SOCKET_NAME,
    ControlConnection,
    ControlServer,
    query,
    short_socket_path,
)

LINES = 20_000


async def count(question: Mapping[str, Any], line: ControlConnection) -> None:
    for number in range(question["to"]):
        line.send({"number": number, "padding": "x" * question.get("size", 0)})


async def fail(question: Mapping[str, Any], line: ControlConnection) -> None:
    raise NotFound("there is no such thing")


async def break_down(question: Mapping[str, Any], line: ControlConnection) -> None:
    raise RuntimeError("a fault")


async def stay(question: Mapping[str, Any], line: ControlConnection) -> None:
    line.send({"here": True})
    await asyncio.Event().wait()


ANSWERS = {"count": count, "fail": fail, "break": break_down, "stay": stay}


async def said(data_dir: Path, **question: Any) -> list[dict[str, Any]]:
    return [fact async for fact in query(data_dir, question)]


async def test_a_question_is_answered_line_by_line(tmp_path: Path) -> None:
    async with ControlServer(tmp_path, ANSWERS).listening():
        facts = await said(tmp_path, command="count", to=3)
    assert [fact["number"] for fact in facts] == [0, 1, 2]
    assert not (tmp_path / SOCKET_NAME).exists()


async def test_what_cannot_be_answered_is_told(tmp_path: Path) -> None:
    async with ControlServer(tmp_path, ANSWERS).listening():
        for question, complaint in [
            ({"command": "fail"}, "there is no such thing"),
            ({"command": "unheard"}, "does not know this command"),
            ({"command": "x" * 5000}, "no valid request was received"),
        ]:
            with pytest.raises(StartupError, match=complaint):
                await said(tmp_path, **question)
        with capture_logs() as events, pytest.raises(StartupError, match="the server closed the connection"):
            await said(tmp_path, command="break")
        assert [event["event"] for event in events] == ["control.failed"]
        assert len(await said(tmp_path, command="count", to=1)) == 1, "others are answered"


async def test_a_folder_with_a_long_name_and_a_socket_of_a_dead_server_are_no_hindrance(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    (folder / SOCKET_NAME).write_text("left behind")
    async with ControlServer(folder, ANSWERS).listening():
        assert len(await said(folder, command="count", to=2)) == 2


async def test_who_may_not_ask_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.getuid()
    async with ControlServer(tmp_path, ANSWERS).listening():
        monkeypatch.setattr(control_socket, "ROOT", user + 1)
        monkeypatch.setattr(os, "getuid", lambda: user + 2)
        with capture_logs() as events, pytest.raises(StartupError, match="another user"):
            await said(tmp_path, command="count", to=1)
    assert events == [{"event": "control.refused", "user": user, "log_level": "warning"}]


async def test_a_slow_reader_loses_lines_and_is_told_how_many(tmp_path: Path) -> None:
    async with ControlServer(tmp_path, ANSWERS).listening():
        with short_socket_path(tmp_path / SOCKET_NAME) as name:
            reader, writer = await asyncio.open_unix_connection(name, limit=1024)
        writer.write(json.dumps({"command": "count", "to": LINES, "size": 200}).encode() + b"\n")
        facts = [json.loads(line) async for line in reader]
        writer.close()
    *facts, lost, last = facts
    assert last == {"done": True}
    assert [fact["number"] for fact in facts] == list(range(len(facts)))
    assert 0 < lost["lost"] == LINES - len(facts)


async def test_the_answer_ends_when_its_reader_goes(tmp_path: Path) -> None:
    went = asyncio.Event()

    async def wait(question: Mapping[str, Any], line: ControlConnection) -> None:
        try:
            await stay(question, line)
        finally:
            went.set()

    async with ControlServer(tmp_path, {"stay": wait}).listening():
        async for _ in (answer := query(tmp_path, {"command": "stay"})):
            break
        await answer.aclose()  # type: ignore[attr-defined]
        await asyncio.wait_for(went.wait(), 5)


async def test_only_so_many_are_answered_at_once(tmp_path: Path) -> None:
    async with ControlServer(tmp_path, ANSWERS).listening():
        readers = [query(tmp_path, {"command": "stay"}) for _ in range(MAX_CLIENTS)]
        for reader in readers:
            assert await anext(reader) == {"here": True}
        with pytest.raises(StartupError, match="too many"):
            await said(tmp_path, command="count", to=1)
        await readers[0].aclose()  # type: ignore[attr-defined]
        async with asyncio.timeout(5):
            while True:
                try:
                    assert len(await said(tmp_path, command="count", to=1)) == 1
                    break
                except StartupError:
                    await asyncio.sleep(0.01)  # the server has yet to see that one has gone


async def test_a_server_that_ends_says_goodbye_to_readers(tmp_path: Path) -> None:
    reader = query(tmp_path, {"command": "stay"})
    async with ControlServer(tmp_path, ANSWERS).listening():
        assert await anext(reader) == {"here": True}
    with pytest.raises(StartupError, match="the server closed the connection"):
        await anext(reader)
