"""The load of the tenants' bench: connections that ask for a large list again and again. Those that are deaf have room
for a few bytes of an answer and take none of it; when the server ends one, another takes its place."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final
from urllib.parse import urlsplit

import uvloop

from bench.worker_process import obey

RECEIVE_BUFFER: Final = 4096
AGAIN_S: Final = 0.05
"""After a connection was refused or ended."""
PROBE_S: Final = 0.5
"""Between two looks whether a connection is still there."""
PIECE: Final = 256 * 1024


class _Load:
    """What goes on, and what came of it."""

    def __init__(self) -> None:
        self._clients: list[asyncio.Task[None]] = []
        self._ended = 0
        self._bytes = 0

    async def start(self, origin: str, key: str, path: str, connections: int, deaf: bool) -> dict[str, Any]:
        """Connect and ask."""
        place = urlsplit(origin)
        head = f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        for _ in range(connections):
            ask = self._ask(place.hostname or "", place.port or 80, head, deaf)
            self._clients.append(asyncio.create_task(ask))
        return {}

    async def stop(self) -> dict[str, Any]:
        """Go away. Connections that the server has ended, and MB that were read."""
        for each in self._clients:
            each.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._clients.clear()
        told = {"ended": self._ended, "read_mb": round(self._bytes / 1e6, 1)}
        self._ended = self._bytes = 0
        return told

    async def _ask(self, host: str, port: int, head: bytes, deaf: bool) -> None:
        while True:
            with socket.socket() as client:
                if deaf:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
                client.setblocking(False)
                try:
                    await asyncio.get_running_loop().sock_connect(client, (host, port))
                    await (self._wait(client, head) if deaf else self._read(client, head))
                except OSError:
                    self._ended += 1
            await asyncio.sleep(AGAIN_S)

    async def _wait(self, client: socket.socket, head: bytes) -> None:
        """Ask, and take nothing until the server has had enough: then whatever is still sent to it is refused."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, head)
        while True:
            await asyncio.sleep(PROBE_S)
            await loop.sock_sendall(client, b"\r\n")

    async def _read(self, client: socket.socket, head: bytes) -> None:
        """Ask, take everything at once, ask again."""
        loop = asyncio.get_running_loop()
        while True:
            await loop.sock_sendall(client, head)
            answer = b""
            while b"\r\n\r\n" not in answer:
                answer += await self._some(client)
            fields, _, body = answer.partition(b"\r\n\r\n")
            left = int(fields.lower().partition(b"content-length:")[2].split()[0]) - len(body)
            while left > 0:
                left -= len(await self._some(client))

    async def _some(self, client: socket.socket) -> bytes:
        piece = await asyncio.get_running_loop().sock_recv(client, PIECE)
        if not piece:
            raise OSError("ended")
        self._bytes += len(piece)
        return piece


async def main() -> None:
    """Take orders."""
    load = _Load()
    await obey({"start": load.start, "stop": load.stop})


if __name__ == "__main__":
    uvloop.run(main())
