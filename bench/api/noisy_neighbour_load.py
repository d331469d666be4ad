"""The load of `bench.api.noisy_neighbour` (a worker process): connections that repeat a request for a large list. Slow
readers have a receive buffer of a few bytes and read nothing of the response; when the server ends a connection,
another is opened."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final
from urllib.parse import urlsplit

import uvloop

from bench.worker_process import serve_commands

RECEIVE_BUFFER: Final = 4096
RECONNECT_S: Final = 0.05
"""Wait after a connection was refused or ended."""
PROBE_S: Final = 0.5
"""Interval of the probes of whether a connection is still open."""
READ_BYTES: Final = 256 * 1024


class _Load:
    """The connections of the load, and their counters."""

    def __init__(self) -> None:
        self._clients: list[asyncio.Task[None]] = []
        self._ended = 0
        self._bytes = 0

    async def start(self, origin: str, key: str, path: str, connections: int, reads: bool) -> dict[str, Any]:
        """Opens the connections and begins to send requests."""
        server = urlsplit(origin)
        head = f"GET {path} HTTP/1.1\r\nHost: {server.netloc}\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        for _ in range(connections):
            client = self._run_client(server.hostname or "", server.port or 80, head, reads)
            self._clients.append(asyncio.create_task(client))
        return {}

    async def stop(self) -> dict[str, Any]:
        """Closes the connections. Returns the number of those that the server has ended, and the MB read."""
        for each in self._clients:
            each.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._clients.clear()
        counters = {"ended": self._ended, "read_mb": round(self._bytes / 1e6, 1)}
        self._ended = self._bytes = 0
        return counters

    async def _run_client(self, host: str, port: int, head: bytes, reads: bool) -> None:
        while True:
            with socket.socket() as client:
                if not reads:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
                client.setblocking(False)
                try:
                    await asyncio.get_running_loop().sock_connect(client, (host, port))
                    await (self._read(client, head) if reads else self._wait(client, head))
                except OSError:
                    self._ended += 1
            await asyncio.sleep(RECONNECT_S)

    async def _wait(self, client: socket.socket, head: bytes) -> None:
        """Sends a request and reads nothing until the server ends the connection, which makes the next probe fail."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, head)
        while True:
            await asyncio.sleep(PROBE_S)
            await loop.sock_sendall(client, b"\r\n")

    async def _read(self, client: socket.socket, head: bytes) -> None:
        """Repeats the request and reads each response at once."""
        loop = asyncio.get_running_loop()
        while True:
            await loop.sock_sendall(client, head)
            response = b""
            while b"\r\n\r\n" not in response:
                response += await self._receive(client)
            fields, _, body = response.partition(b"\r\n\r\n")
            remaining = int(fields.lower().partition(b"content-length:")[2].split()[0]) - len(body)
            while remaining > 0:
                remaining -= len(await self._receive(client))

    async def _receive(self, client: socket.socket) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(client, READ_BYTES)
        if not data:
            raise OSError("ended")
        self._bytes += len(data)
        return data


async def main() -> None:
    """Serves commands from stdin."""
    load = _Load()
    await serve_commands({"start": load.start, "stop": load.stop})


if __name__ == "__main__":
    uvloop.run(main())
