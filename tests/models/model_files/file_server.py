"""A web server with one large file, with faults that a test chooses."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from tests.calls.http_server import serving


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass
class FileServer:
    """`content` is at every path. `breaks`: after how many bytes of its answer each request's connection is cut.
    `statuses`: what each request is answered instead of the file. `redirects`: where each path leads."""

    content: bytes
    breaks: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    redirects: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    linked: dict[str, str] = field(default_factory=dict)
    """Headers of the redirects."""
    stops_after: int | None = None
    """After so many bytes of an answer nothing comes any more; the connection stays."""
    tag: str | None = "content"
    ignores_range: bool = False
    chunked: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    """What is at other paths."""
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    """Path, `Range` and `If-Range` of every request."""
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    """Somebody has asked."""
    origin: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.path, request.headers.get("Range"), request.headers.get("If-Range")))
        self.begun.set()
        if request.path in self.redirects:
            target = self.redirects[request.path]
            return web.Response(status=302, headers={"Location": target, **self.linked})
        if self.statuses and (status := self.statuses.pop(0)) != 200:
            return web.Response(status=status)
        return await self._file(request, self.files.get(request.path, self.content))

    async def _file(self, request: web.Request, content: bytes) -> web.StreamResponse:
        tag = f'"{sha256(content)[:16]}"' if self.tag == "content" else self.tag
        headers = {**({"ETag": tag} if tag else {}), **self.headers}
        first, status = self._first(request, tag), 200
        if first >= len(content) > 0:
            return web.Response(status=416, headers={"Content-Range": f"bytes */{len(content)}"})
        if first:
            headers["Content-Range"], status = f"bytes {first}-{len(content) - 1}/{len(content)}", 206
        body = content[first:]
        response = web.StreamResponse(status=status, headers=headers)
        if self.chunked:
            response.enable_chunked_encoding()
        elif "Content-Length" not in headers:
            response.content_length = len(body)
        await response.prepare(request)
        if self.stops_after is not None:
            await response.write(body[: self.stops_after])
            await asyncio.sleep(3600)
        cut = self.breaks.pop(0) if self.breaks else None
        await response.write(body if cut is None else body[:cut])
        if cut is not None:
            assert request.transport is not None
            request.transport.close()
        return response

    def _first(self, request: web.Request, tag: str | None) -> int:
        match = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
        condition = request.headers.get("If-Range")
        if match is None or self.ignores_range or (condition is not None and condition != tag):
            return 0
        return int(match[1])


@asynccontextmanager
async def file_server(content: bytes) -> AsyncIterator[FileServer]:
    server = FileServer(content)
    async with serving(server.answer) as server.origin:
        yield server
