"""The control socket of a running server: a Unix socket, `control.sock` in the data directory, for the command line.

One request per connection, a JSON object on a line; the response is JSON objects, one per line, the last of them
`{"done": true}` or `{"error": "..."}`. Only the server's user and root may connect. The server never waits for a
client: objects that do not fit into the connection's buffer are dropped, and the client is sent their number.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import structlog

from config.errors import StartupError, TrunklineError

SOCKET_NAME: Final = "control.sock"
MAX_CLIENTS: Final = 16
ROOT: Final = 0
REQUEST_TIMEOUT_S: Final = 5.0
"""Longest time until a client has sent its request."""
MAX_REQUEST_BYTES: Final = 64 * 1024
MAX_RESPONSE_LINE_BYTES: Final = 1024 * 1024
"""Bytes of one line."""
MAX_BUFFERED_BYTES: Final = 1024 * 1024
"""Bytes that a connection buffers for its client."""
_PEER_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user and group (unix(7), SO_PEERCRED)."""

log = structlog.get_logger()


class ControlConnection:
    """The connection to a client, which drops objects while the client reads too slowly. On the event loop."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=MAX_BUFFERED_BYTES)
        self._writer = writer
        self._dropped = 0
        self._reporting_drops: asyncio.Task[None] | None = None

    def send(self, fact: Mapping[str, Any]) -> None:
        """Send an object, or drop it when the client reads too slowly; returns at once."""
        if self._reporting_drops is None and self._writer.transport.get_write_buffer_size() < MAX_BUFFERED_BYTES:
            self._write(fact)
            return
        self._dropped += 1
        if self._reporting_drops is None:
            self._reporting_drops = asyncio.get_running_loop().create_task(self._report_drops())

    async def end(self, fact: Mapping[str, Any]) -> None:
        """Send the last object as soon as the buffer has space for it."""
        if self._reporting_drops is not None:
            await self._reporting_drops
        self._write(fact)
        await self._writer.drain()

    def close(self) -> None:
        """Close the connection."""
        if self._reporting_drops is not None:
            self._reporting_drops.cancel()
        self._writer.close()

    def _write(self, fact: Mapping[str, Any]) -> None:
        self._writer.write(json.dumps(fact, ensure_ascii=False).encode(errors="replace") + b"\n")

    async def _report_drops(self) -> None:
        """Send the number of dropped objects as soon as the buffer has space again."""
        try:
            await self._writer.drain()
        except ConnectionError:  # the client has gone
            return
        lost, self._dropped, self._reporting_drops = self._dropped, 0, None
        self._write({"lost": lost})


CommandHandler = Callable[[Mapping[str, Any], ControlConnection], Awaitable[None]]


class ControlServer:
    """Runs the handler of a request's `command`. The client gets a handler's `TrunklineError` as its last object."""

    def __init__(self, data_dir: Path, handlers: Mapping[str, CommandHandler]) -> None:
        self._path = data_dir / SOCKET_NAME
        self._handlers = handlers
        self._clients: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Accept connections until the block ends. Raises `StartupError`."""
        listener = await asyncio.to_thread(_bind, self._path)
        server = await asyncio.start_unix_server(self._on_connection, sock=listener, limit=MAX_REQUEST_BYTES)
        try:
            yield
        finally:
            server.close()
            for client in self._clients:
                client.cancel()
            if self._clients:
                await asyncio.wait(self._clients)
            await asyncio.to_thread(self._path.unlink, missing_ok=True)

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = ControlConnection(writer)
        try:
            await connection.end(await self._handle(reader, writer, connection))
        except ConnectionError:
            log.debug("control.reader_gone")
        except Exception as error:
            log.error("control.failed", error=repr(error), exc_info=error)
        finally:
            connection.close()

    async def _handle(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: ControlConnection
    ) -> Mapping[str, Any]:
        """Run the handler of the request until it returns or the client disconnects; returns the last object."""
        if (error := self._rejection(writer)) is not None:
            return {"error": error}
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = _parse_request(await reader.readline())
            handler = self._handlers.get(str(request.get("command")))
            if handler is None:
                return {"error": "the server does not know this command: is it of another version?"}
            await _run_until_disconnect(reader, handler(request, connection))
        except TrunklineError as problem:
            return {"error": str(problem)}
        except (TimeoutError, ValueError):
            return {"error": "no valid request was received"}
        return {"done": True}

    def _rejection(self, writer: asyncio.StreamWriter) -> str | None:
        """Why the client of a connection is rejected; None if it is accepted."""
        credentials = writer.get_extra_info("socket").getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size
        )
        _, user, _ = _PEER_CREDENTIALS.unpack(credentials)
        if user not in (os.getuid(), ROOT):
            log.warning("control.refused", user=user)
            return "the server runs as another user"
        return "too many other clients are connected" if len(self._clients) > MAX_CLIENTS else None


def _parse_request(line: bytes) -> Mapping[str, Any]:
    """Raises `ValueError`."""
    request = json.loads(line)
    if not isinstance(request, dict):
        raise ValueError("not a JSON object")
    return request


async def _run_until_disconnect(reader: asyncio.StreamReader, handler: Awaitable[None]) -> None:
    """Run a handler until it returns or the client has closed the connection."""
    handling = asyncio.ensure_future(handler)
    disconnected = asyncio.ensure_future(reader.read(1))
    try:
        await asyncio.wait((handling, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if handling.done():
            handling.result()
    finally:
        handling.cancel()
        disconnected.cancel()
        await asyncio.wait((handling, disconnected))


def _bind(path: Path) -> socket.socket:
    """A bound socket with mode 0600 from the moment it exists. The file of a dead server is removed: the data directory
    is locked, so no live one uses it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        os.fchmod(listener.fileno(), 0o600)  # bind creates the file with the mode of the socket (Linux)
        with short_socket_path(path) as name:
            listener.bind(name)
    except OSError as error:
        listener.close()
        raise StartupError(f"{path} cannot be created: {error.strerror}") from error
    return listener


@contextmanager
def short_socket_path(path: Path) -> Iterator[str]:
    """A path of at most 108 bytes (unix(7)) to a socket in a folder with a path of any length. Raises `OSError`."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


async def query(data_dir: Path, request: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Yields the running server's response, object by object. Raises `StartupError` if no server runs, if it responds
    with an error, or if it disconnects."""
    path = data_dir / SOCKET_NAME
    try:
        with short_socket_path(path) as name:
            reader, writer = await asyncio.open_unix_connection(name, limit=MAX_RESPONSE_LINE_BYTES)
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise StartupError(f"no server runs on {data_dir}: start it with `trunkline serve`") from error
    except OSError as error:
        raise StartupError(f"cannot connect to the server on {data_dir}: {error.strerror}") from error
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        while line := await reader.readline():
            fact: dict[str, Any] = json.loads(line)
            if "error" in fact:
                raise StartupError(str(fact["error"]))
            if "done" in fact:
                return
            yield fact
        raise StartupError("the server closed the connection")
    finally:
        writer.close()


async def notify_server(data_dir: Path, command: str) -> None:
    """Let a running server act on a change that a command made in the database; does nothing if none runs."""
    try:
        async for _ in query(data_dir, {"command": command}):
            pass
    except StartupError:
        return
