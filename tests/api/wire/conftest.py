"""The API on a real port, on the server's event loop, with clients that send and receive raw bytes."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
import uvloop
from aiohttp import web

from api.app import create_app
from api.serving.listener import listen
from config import logging as our_logging
from tests.api.conftest import Api, StartApi

RATE_HEADERS = {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}
LoopFactory = Callable[[], asyncio.AbstractEventLoop]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    """uvloop, as in the server: it passes on received bytes earlier, and more at once, than asyncio's loop."""
    return {"uvloop": uvloop.new_event_loop}


@dataclass
class Answer:
    """A received response; `text` is its head as received."""

    status: int
    text: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Wire:
    """A client's connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *parts: bytes) -> None:
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    async def answer(self, to: str = "GET") -> Answer:
        """Reads the next response; `to` is the method of its request."""
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("ascii")
        status, *fields = text.rstrip().split("\r\n")
        headers = {name.lower(): value for name, value in (each.split(": ", 1) for each in fields)}
        length = 0 if to == "HEAD" else int(headers.get("content-length", 0))
        return Answer(int(status.split()[1]), text, headers, await self.reader.readexactly(length))

    async def ask(self, *parts: bytes) -> Answer:
        await self.send(*parts)
        return await self.answer()

    async def ended(self) -> bool:
        """Waits for the server to close the connection; True if it sent nothing before."""
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True


@dataclass
class Live:
    """A listening server."""

    api: Api
    port: int
    wires: list[Wire]

    def close(self) -> None:
        """Closes the connections."""
        for wire in self.wires:
            wire.writer.close()

    async def connect(self, **how: Any) -> Wire:
        where: dict[str, Any] = {} if "sock" in how else {"host": "127.0.0.1", "port": self.port}
        wire = Wire(*await asyncio.open_connection(**where, **how))
        self.wires.append(wire)
        return wire

    def head(self, method: str, path: str, *fields: str) -> bytes:
        """The head of a request with the API key."""
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.api.key}", *fields]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def post(self, body: bytes, *fields: str) -> bytes:
        """A complete request that creates an agent."""
        return self.head("POST", "/v1/agents", f"Content-Length: {len(body)}", *fields) + body

    async def agents(self) -> int:
        """The number of agents."""
        _, answer = await self.api("GET", "/agents")
        total: int = answer["pagination"]["total"]
        return total


Serve = Callable[..., Awaitable[Live]]


@pytest.fixture
async def serve(start_api: StartApi) -> AsyncIterator[Serve]:
    """Opens the port: `await serve(head_timeout_s=0.05)` with settings of `[api]` and `[limits]`, and `routes` beside
    those of the API."""
    async with AsyncExitStack() as stack:

        async def start(
            routes: Mapping[str, Handler] | None = None, limits: Mapping[str, Any] | None = None, **api_settings: Any
        ) -> Live:
            own = {"host": "127.0.0.1", "port": 0}
            api: Api = await start_api({"api": {**own, **api_settings}, "limits": {**(limits or {})}})
            app = create_app(api.services)
            for path, handler in (routes or {}).items():
                app.router.add_route("*", path, handler)
            live = Live(api, await stack.enter_async_context(listen(app, api.services.settings.api)), [])
            stack.callback(live.close)
            return live

        yield start


@pytest.fixture
async def live(serve: Serve) -> Live:
    """A server with the default settings."""
    return await serve()


@pytest.fixture
def log_text() -> Iterator[io.StringIO]:
    """All log lines, also of libraries, as JSON lines."""
    root = logging.getLogger()
    handlers, level, structlog_config = root.handlers[:], root.level, structlog.get_config()
    stream = io.StringIO()
    our_logging.configure("debug", "json", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**structlog_config)
