"""TLS for a SIP peer that has TCP only."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Self

from sipcore.settings import TlsFiles
from tests.peers.ports import free_port

HOST = "127.0.0.1"


class TlsRelay:
    """Carries the bytes of a peer's TCP connections over TLS, and those of TLS connections to the peer over TCP; use
    `async with`. `port` is where the peer appears to be: connections are accepted there, and those to the server come
    from there, so that the server uses them again for its own requests (RFC 5923). `tcp_port`: where the peer connects
    to, to reach the server."""

    def __init__(self, files: TlsFiles, *, peer_port: int = 0, server_port: int = 0) -> None:
        """`peer_port`: where the peer takes calls; `server_port`: where the server listens on TLS. One of both."""
        self.port, self.tcp_port = free_port(), free_port()
        self._files = files
        self._peer_port = peer_port
        self._server_port = server_port
        self._carrying: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        if self._peer_port:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            assert self._files.certificate
            context.load_cert_chain(self._files.certificate, self._files.key)
            self._server = await asyncio.start_server(self._to_peer, HOST, self.port, ssl=context)
        else:
            self._server = await asyncio.start_server(self._to_server, HOST, self.tcp_port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    async def _to_peer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._carry(reader, writer, *await asyncio.open_connection(HOST, self._peer_port))

    async def _to_server(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        context = ssl.create_default_context(cafile=self._files.authorities)
        connection = await asyncio.open_connection(
            HOST, self._server_port, ssl=context, server_hostname=HOST, local_addr=(HOST, self.port)
        )
        await self._carry(reader, writer, *connection)

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        other_reader: asyncio.StreamReader,
        other_writer: asyncio.StreamWriter,
    ) -> None:
        for source, sink in ((reader, other_writer), (other_reader, writer)):
            self._carrying.add(task := asyncio.create_task(_copy(source, sink)))
            task.add_done_callback(self._carrying.discard)


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Copy until either side closes; then the sink is closed, too."""
    with suppress(ConnectionError, ssl.SSLError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()
