"""A zip archive that is made while it is sent, so that its content may be larger than memory."""

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
LEVEL: Final = 1
"""Compression level: audio hardly shrinks more with a higher one."""
READ_ONLY: Final = 0o400 << 16


@dataclass(frozen=True)
class ZipMember:
    """A file of an archive, with its size in bytes. It is read once, and closed."""

    name: str
    content: BinaryIO
    size: int

    @classmethod
    def from_bytes(cls, name: str, content: bytes) -> ZipMember:
        """A member whose content is in memory."""
        return cls(name, io.BytesIO(content), len(content))


class ZipStreamResponse(web.StreamResponse):
    """An archive of these members, dated `at`. The members are closed when the last byte is sent, or when the client
    disconnects."""

    def __init__(self, filename: str, members: Sequence[ZipMember], at: datetime) -> None:
        disposition = f'attachment; filename="{filename}"'
        super().__init__(headers={"Content-Type": "application/zip", "Content-Disposition": disposition})
        self._members = members
        self._pieces = _chunks(members, at)

    async def write_eof(self, data: bytes = b"") -> None:
        """Write the body; aiohttp calls this after the headers."""
        making: asyncio.Future[bytes] | None = None
        try:
            if self._req is not None and self._req.method != hdrs.METH_HEAD:
                while True:
                    making = asyncio.get_running_loop().run_in_executor(None, next, self._pieces, b"")
                    if not (piece := await asyncio.shield(making)):
                        break
                    await self.write(piece)
        finally:
            if making is None or making.done():
                self._close()
            else:  # the thread that makes the next piece goes on: nothing can be closed before its end
                making.add_done_callback(self._close)
        await super().write_eof(data)

    def _close(self, made: asyncio.Future[bytes] | None = None) -> None:
        self._pieces.close()
        for member in self._members:
            member.content.close()
        if made is not None and not made.cancelled():
            made.exception()  # nobody waits for it any more


def _chunks(members: Sequence[ZipMember], at: datetime) -> Generator[bytes]:
    """The archive in chunks of some tens of KiB; none is empty."""
    made = _WrittenBytes()
    with ZipFile(made, "w", ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for member in members:
            info = ZipInfo(member.name, at.timetuple()[:6])
            info.compress_type, info.external_attr, info.file_size = ZIP_DEFLATED, READ_ONLY, member.size
            with archive.open(info, "w") as target:
                while content := member.content.read(CHUNK):
                    target.write(content)
                    yield from made.drain()
    yield from made.drain()


class _WrittenBytes(io.RawIOBase):
    """The output of `ZipFile`. It is not seekable, so that `ZipFile` writes sizes after the data."""

    def __init__(self) -> None:
        super().__init__()
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        """Always true."""
        return True

    def write(self, data: Any) -> int:
        """Append the bytes."""
        self._pieces.append(bytes(data))
        return len(data)

    def drain(self) -> Iterator[bytes]:
        """What was written since the last call; nothing when there is nothing."""
        pieces, self._pieces = self._pieces, []
        if any(pieces):
            yield b"".join(pieces)
