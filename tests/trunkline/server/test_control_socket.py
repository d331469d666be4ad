"""The control socket: permitted users, the end of responses, and slow clients, which do not block the server."""

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
    MAX_REQUEST_BYTES,
    SOCKET_NAME,
    ControlConnection,
    ControlServer,
    query,
    short_socket_path,
)

LINES = 20_000


async def count(request: Mapping[str, Any], connection: ControlConnection) -> None:
    for number in range(request["to"]):
        connection.send({"number": number, "padding": "x" * request.get("size", 0)})


async def fail(request: Mapping[str, Any], connection: ControlConnection) -> None:
    raise NotFound("there is no such thing")


async def crash(request: Mapping[str, Any], connection: ControlConnection) -> None:
    raise RuntimeError("a fault")


async def run_forever(request: Mapping[str, Any], connection: ControlConnection) -> None:
    connection.send({"here": True})
    await asyncio.Event().wait()


HANDLERS = {"count": count, "fail": fail, "break": crash, "stay": run_forever}


async def responses(data_dir: Path, **request: Any) -> list[dict[str, Any]]:
    return [fact async for fact in query(data_dir, request)]


async def test_a_handlers_objects_are_sent_line_by_line(tmp_path: Path) -> None:
    async with ControlServer(tmp_path, HANDLERS).listening():
        facts = await responses(tmp_path, command="count", to=3)
    assert [fact["number"] for fact in facts] == [0, 1, 2]
    assert not (tmp_path / SOCKET_NAME).exists()


async def test_errors_of_requests_and_handlers_are_sent_to_the_client(tmp_path: Path) -> None:
    async with ControlServer(tmp_path, HANDLERS).listening():
        for request, error in [
            ({"command": "fail"}, "there is no such thing"),
            ({"command": "unheard"}, "does not know this command"),
            ({"command": "x" * MAX_REQUEST_BYTES}, "no valid request was received"),
        ]:
            with pytest.raises(StartupError, match=error):
                await responses(tmp_path, **request)
        with capture_logs() as events, pytest.raises(StartupError, match="the server closed the connection"):
            await responses(tmp_path, command="break")
        assert [event["event"] for event in events] == ["control.failed"]
        assert len(await responses(tmp_path, command="count", to=1)) == 1, "other requests are handled"


async def test_the_socket_is_bound_under_a_long_path_and_over_the_file_of_a_dead_server(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    (folder / SOCKET_NAME).write_text("of a dead server")
    async with ControlServer(folder, HANDLERS).listening():
        assert len(await responses(folder, command="count", to=2)) == 2


async def test_another_user_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.getuid()
    async with ControlServer(tmp_path, HANDLERS).listening():
        monkeypatch.setattr(control_socket, "ROOT", user + 1)
        monkeypatch.setattr(os, "getuid", lambda: user + 2)
        with capture_logs() as events, pytest.raises(StartupError, match="another user"):
            await responses(tmp_path, command="count", to=1)
    assert events == [{"event": "control.refused", "user": user, "log_level": "warning"}]


async def test_a_slow_client_loses_objects_and_gets_their_number(tmp_path: Path) -> None:
    async with ControlServer(tmp_path, HANDLERS).listening():
        with short_socket_path(tmp_path / SOCKET_NAME) as name:
            reader, writer = await asyncio.open_unix_connection(name, limit=1024)
        writer.write(json.dumps({"command": "count", "to": LINES, "size": 200}).encode() + b"\n")
        facts = [json.loads(line) async for line in reader]
        writer.close()
    *facts, lost, last = facts
    assert last == {"done": True}
    assert [fact["number"] for fact in facts] == list(range(len(facts)))
    assert 0 < lost["lost"] == LINES - len(facts)


async def test_a_handler_is_cancelled_when_its_client_disconnects(tmp_path: Path) -> None:
    went = asyncio.Event()

    async def wait(request: Mapping[str, Any], connection: ControlConnection) -> None:
        try:
            await run_forever(request, connection)
        finally:
            went.set()

    async with ControlServer(tmp_path, {"stay": wait}).listening():
        async for _ in (answer := query(tmp_path, {"command": "stay"})):
            break
        await answer.aclose()  # type: ignore[attr-defined]
        await asyncio.wait_for(went.wait(), 5)


async def test_the_number_of_clients_is_limited(tmp_path: Path) -> None:
    async with ControlServer(tmp_path, HANDLERS).listening():
        readers = [query(tmp_path, {"command": "stay"}) for _ in range(MAX_CLIENTS)]
        for reader in readers:
            assert await anext(reader) == {"here": True}
        with pytest.raises(StartupError, match="too many"):
            await responses(tmp_path, command="count", to=1)
        await readers[0].aclose()  # type: ignore[attr-defined]
        async with asyncio.timeout(5):
            while True:
                try:
                    assert len(await responses(tmp_path, command="count", to=1)) == 1
                    break
                except StartupError:
                    await asyncio.sleep(0.01)  # the server has not noticed yet that a client has disconnected


async def test_a_server_that_stops_closes_its_connections(tmp_path: Path) -> None:
    reader = query(tmp_path, {"command": "stay"})
    async with ControlServer(tmp_path, HANDLERS).listening():
        assert await anext(reader) == {"here": True}
    with pytest.raises(StartupError, match="the server closed the connection"):
        await anext(reader)
