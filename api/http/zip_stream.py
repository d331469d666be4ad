"""Zip archives that are made while they are sent, so that their content may be larger than memory."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, BinaryIO, Final
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from aiohttp import hdrs, web

CHUNK: Final = 64 * 1024
"""Bytes of a file that are read and compressed at a time."""
COMPRESSION_LEVEL: Final = 1
"""A higher level makes audio hardly smaller."""
READ_ONLY: Final = 0o400 << 16
"""File mode of the members."""


@dataclass(frozen=True)
class ZipMember:
    """A file of an archive, with its size in bytes. `content` is read once, then closed."""

    name: str
    content: BinaryIO
    size: int

    @classmethod
    def from_bytes(cls, name: str, content: bytes) -> ZipMember:
        """Returns a member whose content is in memory."""
        return cls(name, io.BytesIO(content), len(content))


class ZipStreamResponse(web.StreamResponse):
    """The response with an archive of these members; `at` is their modification time. The members are closed when the
    last byte is sent, or when the client disconnects."""

    def __init__(self, filename: str, members: Sequence[ZipMember], at: datetime) -> None:
        disposition = f'attachment; filename="{filename}"'
        super().__init__(headers={"Content-Type": "application/zip", "Content-Disposition": disposition})
        self._members = members
        self._chunks = _chunks(members, at)

    async def write_eof(self, data: bytes = b"") -> None:
        """Write the body; aiohttp calls this after the headers."""
        next_chunk: asyncio.Future[bytes] | None = None
        try:
            if self._req is not None and self._req.method != hdrs.METH_HEAD:
                while True:
                    next_chunk = asyncio.get_running_loop().run_in_executor(None, next, self._chunks, b"")
                    if not (chunk := await asyncio.shield(next_chunk)):
                        break
                    await self.write(chunk)
        finally:
            if next_chunk is None or next_chunk.done():
                self._close()
            else:  # the thread that makes the next chunk goes on: no file can be closed before its end
                next_chunk.add_done_callback(self._close)
        await super().write_eof(data)

    def _close(self, last_chunk: asyncio.Future[bytes] | None = None) -> None:
        self._chunks.close()
        for member in self._members:
            member.content.close()
        if last_chunk is not None and not last_chunk.cancelled():
            last_chunk.exception()  # marks it as retrieved: no task awaits it any more


def _chunks(members: Sequence[ZipMember], at: datetime) -> Generator[bytes]:
    """The archive in chunks of some tens of KiB; none is empty."""
    output = _OutputBuffer()
    with ZipFile(output, "w", ZIP_DEFLATED, compresslevel=COMPRESSION_LEVEL) as archive:
        for member in members:
            info = ZipInfo(member.name, at.timetuple()[:6])
            info.compress_type, info.external_attr, info.file_size = ZIP_DEFLATED, READ_ONLY, member.size
            with archive.open(info, "w") as target:
                while content := member.content.read(CHUNK):
                    target.write(content)
                    yield from output.drain()
    yield from output.drain()


class _OutputBuffer(io.RawIOBase):
    """The output of `ZipFile`. It is not seekable, so that `ZipFile` writes sizes after the data."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        """Returns True."""
        return True

    def write(self, data: Any) -> int:
        """Append the bytes."""
        self._parts.append(bytes(data))
        return len(data)

    def drain(self) -> Iterator[bytes]:
        """Yields the bytes written since the last call, if there are any."""
        parts, self._parts = self._parts, []
        if any(parts):
            yield b"".join(parts)
