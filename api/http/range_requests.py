"""Range requests (RFC 9110, 14) with a single byte range. A header with several ranges, another unit or a malformed
range is ignored, and the whole file is sent."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from config.errors import Unavailable

_BYTES: Final = re.compile(r"bytes=([0-9]*)-([0-9]*)", re.IGNORECASE)
_MAX_DIGITS: Final = 18
"""Digits of a byte position; a position with more digits is beyond the end of every file."""


class RangeFileResponse(web.FileResponse):
    """A file of `size` bytes, or the range of it that the request names. Raises `HTTPRequestRangeNotSatisfiable` if the
    range is outside of the file."""

    def __init__(self, path: Path, size: int, request: web.Request, media_type: str) -> None:
        super().__init__(path, headers={"Content-Type": media_type, "Accept-Ranges": "bytes"})
        self._range = _range(request, size)

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Replaces the Range header by the one that `_range` made, because aiohttp does not parse every form of it."""
        headers = CIMultiDict[Any](request.headers)
        headers.popall(hdrs.RANGE, None)
        if self._range is not None:
            headers[hdrs.RANGE] = self._range
        return await super().prepare(request.clone(headers=headers))


class ByteStreamResponse(web.StreamResponse):
    """A body of `length` bytes, None if it is not known, that is sent as it is read. If reading fails, the connection
    is closed."""

    def __init__(
        self, status: int, headers: dict[str, str], length: int | None, chunks: AsyncIterator[bytes] | None
    ) -> None:
        super().__init__(status=status, headers=headers)
        self.content_length = length
        self._chunks = chunks

    async def write_eof(self, data: bytes = b"") -> None:
        """Write the body; aiohttp calls this after the headers."""
        if self._chunks is not None:
            try:
                async for chunk in self._chunks:
                    await self.write(chunk)
            except Unavailable as error:
                raise ConnectionResetError("the body cannot be read to its end") from error
        await super().write_eof(data)


async def streamed_range_response(
    size: int, read: Callable[[int, int], Awaitable[AsyncIterator[bytes]]], request: web.Request, media_type: str
) -> ByteStreamResponse:
    """A body of `size` bytes, or the range of it that the request names. `read` opens the bytes from a position to
    another (exclusive). Raises what it raises, and `HTTPRequestRangeNotSatisfiable` if the range is outside of the
    body."""
    headers = {"Content-Type": media_type, "Accept-Ranges": "bytes"}
    named = None if hdrs.IF_RANGE in request.headers else _range(request, size)  # there is no validator
    first, last = (int(each) for each in named.removeprefix("bytes=").split("-")) if named else (0, size - 1)
    if named is not None:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    chunks = None if request.method == hdrs.METH_HEAD else await read(first, last + 1)
    return ByteStreamResponse(200 if named is None else 206, headers, last + 1 - first, chunks)


def range_response(content: bytes, request: web.Request, media_type: str) -> web.Response:
    """The content, or the range of it that the request names. Raises `HTTPRequestRangeNotSatisfiable` if the range is
    outside of it."""
    headers = {"Content-Type": media_type, "Accept-Ranges": "bytes"}
    named = None if hdrs.IF_RANGE in request.headers else _range(request, len(content))  # there is no validator
    if named is None:
        return web.Response(body=content, headers=headers)
    first, last = (int(each) for each in named.removeprefix("bytes=").split("-"))
    headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
    return web.Response(status=206, body=content[first : last + 1], headers=headers)


def _range(request: web.Request, size: int) -> str | None:
    """The range in the one form that aiohttp parses; None for the whole file."""
    header = _BYTES.fullmatch(",".join(request.headers.getall(hdrs.RANGE, [])))
    if request.method != hdrs.METH_GET or header is None or not any(header.groups()):
        return None
    first, last = (_position(each) for each in header.groups())
    if first is None:
        first, last = max(size - (last or 0), 0), None
    elif last is not None and last < first:
        return None
    if first >= size:
        raise web.HTTPRequestRangeNotSatisfiable(headers={"Content-Range": f"bytes */{size}"})
    return f"bytes={first}-{size - 1 if last is None else min(last, size - 1)}"


def _position(digits: str) -> int | None:
    if not digits:
        return None
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) <= _MAX_DIGITS else 10**_MAX_DIGITS
