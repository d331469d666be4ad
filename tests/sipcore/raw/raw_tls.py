"""SIP over TLS with Python's own `ssl`: a client and a server of bytes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from sipcore.settings import TlsFiles
from tests.sipcore.raw.raw_phone import Message, parse


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Trusts only the authority of the files."""
    return ssl.create_default_context(cafile=files.authorities)


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Sends the certificate of the files."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    assert files.certificate
    context.load_cert_chain(files.certificate, files.key)
    return context


@dataclass
class Connection:
    """A connection that carries SIP messages."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def connect(
        cls, host: str, port: int, context: ssl.SSLContext, name: str = "localhost", source: str = ""
    ) -> Self:
        """Connect to a server whose certificate must match `name`."""
        local = (source, 0) if source else None
        return cls(*await asyncio.open_connection(host, port, ssl=context, server_hostname=name, local_addr=local))

    @property
    def tls(self) -> ssl.SSLObject:
        """The negotiated session."""
        found = self.writer.get_extra_info("ssl_object")
        assert isinstance(found, ssl.SSLObject)
        return found

    async def next_message(self) -> Message:
        """The next complete message."""
        async with asyncio.timeout(5):
            head = await self.reader.readuntil(b"\r\n\r\n")
            while head.strip() == b"":
                head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(parse(head).header("Content-Length") or 0)
            return parse(head + await self.reader.readexactly(length))

    async def wait_closed(self, timeout_s: float = 5) -> bool:
        """True if the peer closes the connection within that time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.reader.read()  # perhaps an alert, then the end
                return True
        except TimeoutError:
            return False
        except (ConnectionError, ssl.SSLError):
            return True

    def close(self) -> None:
        """Close at once: PJSIP closes when the connection ends, and does not respond to a mere `close_notify`."""
        self.writer.transport.abort()


@asynccontextmanager
async def tls_server(
    context: ssl.SSLContext, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[int, asyncio.Queue[Connection]]]:
    """A server: its port, and a queue of connections with a finished handshake."""
    connections: asyncio.Queue[Connection] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.put_nowait(Connection(reader, writer))

    server = await asyncio.start_server(take, host, 0, ssl=context)
    try:
        yield server.sockets[0].getsockname()[1], connections
    finally:
        server.close()
        while not connections.empty():
            connections.get_nowait().close()
