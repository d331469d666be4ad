"""A server with scripted bytes as responses, and a remote model behind it."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from calls.http_egress.client import HttpEgressClient
from models.remote.client import RemoteModelClient
from models.remote.config import RemoteKind, RemoteModel, RemoteTimeouts, RemoteVoice
from tests.calls.http_server import LOOPBACK, system_tls

KEY = "sk-secret-of-the-gpu"
QUICK = RemoteTimeouts(connect_s=5, first_word_s=8, between_words_s=8, total_s=20)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class RawServer:
    """Sends `answers` in order, one per request; the last one repeats."""

    answers: Sequence[Answer]
    port: int = 0
    requests: list[bytes] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client has closed its connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        self.requests.append(head + await reader.readexactly(int(length[1]) if length else 0))
        self.asked.set()
        answer = self.answers[min(len(self.requests), len(self.answers)) - 1]
        try:
            await answer(writer)
            await writer.drain()
        except ConnectionError:
            self.left.set()
        finally:
            writer.close()


def event(**delta: Any) -> bytes:
    """A chunk of a response."""
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


def text(*pieces: str) -> bytes:
    """A complete response."""
    return HEAD + b"".join(event(content=piece) for piece in pieces) + b"data: [DONE]\n\n"


def responds_with(*pieces: bytes) -> Answer:
    """Sends these bytes, and closes the connection."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return answer


def responds_then_hangs(*pieces: bytes) -> Answer:
    """Sends these bytes, and nothing more."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        await responds_with(*pieces)(writer)
        await asyncio.sleep(30)

    return answer


def responds_then_resets(*pieces: bytes) -> Answer:
    """Sends these bytes, and resets the connection."""

    async def answer(writer: asyncio.StreamWriter) -> None:
        await responds_with(*pieces)(writer)
        await asyncio.sleep(0.05)  # what was sent is to be read before the reset throws it away
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    return answer


def status(code: int, body: bytes = b"", **headers: str) -> Answer:
    """An error response."""
    named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {code} Status\r\nConnection: close\r\nContent-Length: {len(body)}\r\n{named}\r\n"
    return responds_with(head.encode() + body)


@asynccontextmanager
async def remote(
    *answers: Answer,
    kind: RemoteKind = "llm",
    limits: RemoteTimeouts = QUICK,
    voices: Sequence[RemoteVoice] = (),
    **extra: Any,
) -> AsyncIterator[tuple[RemoteModelClient, RawServer]]:
    """The client of a model whose server sends these responses."""
    server = RawServer(answers)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(server.serve(reader, writer)))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    url = f"http://127.0.0.1:{server.port}/v1"
    model = RemoteModel("gpu", kind, url, "m", key=KEY, timeouts=limits, voices=tuple(voices), extra=extra)
    client = HttpEgressClient(LOOPBACK, await asyncio.to_thread(system_tls))
    endpoint = RemoteModelClient(model, client)
    endpoint.pauses_s = (0.0, 0.0)
    try:
        yield endpoint, server
    finally:
        await client.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        listening.close()
