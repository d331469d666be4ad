"""A raw phone over TCP or TLS."""

from __future__ import annotations

import asyncio
import ssl
from typing import Self

from sipcore.settings import TlsFiles
from tests.sipcore.raw.raw_phone import Datagrams, RawPhone, RtpDatagrams, parse
from tests.sipcore.raw.raw_tls import server_context


class Messages(Datagrams):
    """A listener and its connections, with a queue of the messages of all of them. Messages are sent over the latest
    connection."""

    def __init__(self) -> None:
        super().__init__()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, context: ssl.SSLContext | None) -> None:
        """Listen at a free port."""
        self._server = await asyncio.start_server(self.serve, host, 0, ssl=context)

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self._server.sockets[0].getsockname()[1])

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Use this connection from now on."""
        self._writer = writer
        self._reading.add(task := asyncio.create_task(self._read(reader)))
        task.add_done_callback(self._reading.discard)

    def send(self, data: bytes) -> None:
        """Send a message; it is lost when the connection is."""
        assert self._writer is not None, "no connection"
        self._writer.write(data)

    def close(self) -> None:
        """Close the listener and the connections."""
        self._server.close()
        for task in self._reading:
            task.cancel()
        if self._writer is not None:
            self._writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lstrip()
                if head:  # else a keep-alive
                    body = await reader.readexactly(int(parse(head).header("Content-Length") or 0))
                    self.received.put_nowait(head + body)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass  # the peer is gone


class StreamPhone(RawPhone):
    """A raw phone that listens on TCP, or with `tls` on TLS, at a port that its Contact names."""

    def __init__(self, target: str, tls: TlsFiles | None = None) -> None:
        super().__init__(target)
        self.via = "TCP" if tls is None else "TLS"
        self._tls = tls

    @property
    def contact(self) -> str:
        """Where it takes requests."""
        return f"<sip:raw@{self.named}:{self.sip.port};transport={self.via.lower()}>"

    async def __aenter__(self) -> Self:
        self.sip = self._messages = Messages()
        await self._messages.listen(self.host, None if self._tls is None else server_context(self._tls))
        _, self.rtp = await asyncio.get_running_loop().create_datagram_endpoint(RtpDatagrams, local_addr=(self.host, 0))
        self._rtp_target = None
        return self

    async def __aexit__(self, *_: object) -> None:
        self._messages.close()
        self.rtp.transport.close()

    async def connect(self, port: int) -> None:
        """Open a connection to that port of the server, and use it from now on. Its certificate is not verified."""
        context = None if self._tls is None else ssl._create_unverified_context()
        self._messages.serve(*await asyncio.open_connection(self.host, port, ssl=context))

    def send(self, data: bytes) -> None:
        """Over the latest connection."""
        self._messages.send(data)
