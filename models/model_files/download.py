"""Downloads one large file over HTTP, with retries that resume where the last one broke off.

What has come lies in a file of its own until it is whole and its SHA-256 is right. Beside it lies a note of what it is
a part of: the rest is asked for with `If-Range` (RFC 9110, 13.1.5), so that a file that has changed meanwhile comes
from its beginning.

Model hubs answer with a redirect to a store, and tell of the file behind it in headers: `X-Linked-ETag` is its SHA-256
and `X-Linked-Size` its size (for files in Git LFS). These count only from the host that the address names.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
from pydantic import BaseModel, ConfigDict, ValidationError
from yarl import URL

from config.errors import ModelFileError
from models.model_files.known_models import is_loopback
from models.model_files.store import sha256_of, write_whole

RETRY_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Before each try that follows one that brought nothing; one that brought something is followed at once."""
MIN_FREE_BYTES: Final = 256 * 1024 * 1024
"""Bytes that are left on the disk: calls are recorded on it, and the database may lie there."""
LARGEST: Final = 1 << 37
"""Bytes of a file whose size nobody knows."""
MAX_REDIRECTS: Final = 5
_BLOCK: Final = 1 << 20
"""Bytes that are written at a time."""
_TRY_LATER: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class DownloadRequest:
    """A file at an address; its `size` in bytes and its SHA-256 where they are known."""

    url: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class DownloadedFile:
    """A file that has come. `announced`: its host said that this is its SHA-256."""

    size: int
    sha256: str
    announced: bool


OnProgress = Callable[[int, int | None], None]
"""Is told the bytes that are there, and how many there will be if that is known."""


class _PartState(BaseModel):
    """What a part is a part of."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    url: str
    etag: str | None = None
    size: int | None = None
    announced: str | None = None


@dataclass(frozen=True)
class _Response:
    """An answer, and what the named host said of the file on the way to it."""

    response: aiohttp.ClientResponse
    size: int | None
    sha256: str | None


class _BrokenOffError(Exception):
    """This try has ended early; another one may go on. The message is the cause."""


def session() -> aiohttp.ClientSession:
    """A client for `fetch`. It uses the environment's proxies, and trusts the authorities that the system trusts."""
    limits = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
    headers = {"Accept-Encoding": "identity", "User-Agent": "trunkline"}
    return aiohttp.ClientSession(timeout=limits, headers=headers, auto_decompress=False, trust_env=True)


async def fetch(
    client: aiohttp.ClientSession,
    wanted: DownloadRequest,
    part: Path,
    on_progress: OnProgress = lambda _done, _total: None,
    *,
    pauses_s: Sequence[float] = RETRY_PAUSES_S,
    keep_free: int = MIN_FREE_BYTES,
) -> DownloadedFile:
    """Have the file at `part`, whole and checked; its folder is there. What is there already is not asked for again.
    Raises `ModelFileError`, and `OSError` when it cannot be written; what has come stays, unless it is wrong."""
    idle, furthest = 0, await asyncio.to_thread(_length, part)
    while True:
        try:
            return await _Attempt(client, wanted, part, on_progress, keep_free).run()
        except _BrokenOffError as broken:
            there = await asyncio.to_thread(_length, part)
            idle, furthest = (0, there) if there > furthest else (idle + 1, furthest)
            if idle > len(pauses_s):
                rest = f"it goes on after {there} bytes" if there else "or take the file from elsewhere with `import`"
                again = f"run the command again later, {rest}"
                raise ModelFileError(f"{wanted.url} does not come: {broken}: {again}") from broken
        if idle:
            await asyncio.sleep(pauses_s[idle - 1])


class _Attempt:
    """One request for what is missing."""

    def __init__(
        self,
        client: aiohttp.ClientSession,
        wanted: DownloadRequest,
        part: Path,
        on_progress: OnProgress,
        keep_free: int,
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._part = part
        self._on_progress = on_progress
        self._keep_free = keep_free
        self._note_path = part.with_name(f"{part.name}.note")

    async def run(self) -> DownloadedFile:
        note = await asyncio.to_thread(self._read_note)
        have = await asyncio.to_thread(self._resumable_bytes, note)
        size = self._wanted.size or note.size
        if have and have == size:
            self._on_progress(have, size)
            return await self._check(await asyncio.to_thread(sha256_of, self._part), note, went_on=True)
        async with self._answer(have, note) as hop:
            if hop.response.status == 416:  # what is here is no part of what is there
                await asyncio.to_thread(self._forget)
                raise _BrokenOffError("it has become shorter")
            note = self._update_state(hop, note)
            have, total = await self._begin(hop, have, note)
            note = note.model_copy(update={"size": total})
            await asyncio.to_thread(write_whole, self._note_path, note.model_dump_json().encode())
            digest = await self._receive(hop.response, have, total)
        return await self._check(digest, note, went_on=have > 0)

    def _read_note(self) -> _PartState:
        try:
            note = _PartState.model_validate_json(self._note_path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return _PartState(url=self._wanted.url)
        return note if note.url == self._wanted.url else _PartState(url=self._wanted.url)

    def _resumable_bytes(self, note: _PartState) -> int:
        """How many bytes can be gone on from. Without a SHA-256 or a tag nobody could tell a mixture of two files."""
        have = _length(self._part)
        size = self._wanted.size or note.size
        known = self._wanted.sha256 or note.announced or note.etag
        if have and (not known or (size is not None and have > size)):
            self._part.unlink()
            return 0
        return have

    @asynccontextmanager
    async def _answer(self, have: int, note: _PartState) -> AsyncIterator[_Response]:
        """The answer at the end of all redirects. Raises `ModelFileError` and `_BrokenOffError`."""
        headers = {"Range": f"bytes={have}-"} if have else {}
        if have and note.etag is not None:
            headers["If-Range"] = note.etag
        url, size, sha256 = URL(self._wanted.url), None, None
        try:
            for _ in range(MAX_REDIRECTS + 1):
                async with self._client.get(url, headers=headers, allow_redirects=False) as response:
                    if url.origin() == URL(self._wanted.url).origin():
                        size = _linked_size(response) or size
                        sha256 = _linked_sha256(response) or sha256
                    location = response.headers.get("Location")
                    if response.status not in (301, 302, 303, 307, 308) or location is None:
                        yield _Response(response, size, sha256)
                        return
                    url = self._next(url, location)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _BrokenOffError(_short_message(error)) from error
        raise ModelFileError(f"{self._wanted.url} leads from one address to the next: tell whoever keeps it")

    def _next(self, url: URL, location: str) -> URL:
        """Where a redirect leads. To plain HTTP it may lead on this machine alone, from where it began there."""
        target = url.join(URL(location, encoded=True))
        if target.scheme == "https" or (target.scheme == "http" and is_loopback(str(target)) and is_loopback(str(url))):
            return target
        raise ModelFileError(
            f"{self._wanted.url} leads to {target.scheme}://{target.host}, which is not safe: nothing was taken"
        )

    def _update_state(self, hop: _Response, note: _PartState) -> _PartState:
        """What is known of the file now. Raises `ModelFileError` when it is not the one that is wanted."""
        wanted, response = self._wanted, hop.response
        self._check_status(response)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise ModelFileError(f"{wanted.url} comes in another form than it is: is a proxy between?")
        if wanted.sha256 is not None and hop.sha256 not in (None, wanted.sha256):
            raise ModelFileError(
                f"{wanted.url} is another file today: its SHA-256 is {hop.sha256} there, "
                f"and should be {wanted.sha256}: nothing was taken"
            )
        if wanted.size is not None and hop.size not in (None, wanted.size):
            raise ModelFileError(
                f"{wanted.url} is another file today: it has {hop.size} bytes there, and should have {wanted.size}: "
                "nothing was taken"
            )
        etag = response.headers.get("ETag")
        strong = etag if etag is not None and etag.startswith('"') else None
        return _PartState(url=wanted.url, etag=strong, size=hop.size or note.size, announced=hop.sha256)

    def _check_status(self, response: aiohttp.ClientResponse) -> None:
        url, status = self._wanted.url, response.status
        if status in (200, 206):
            return
        if status in _TRY_LATER:
            raise _BrokenOffError(f"its host answers {status}")
        if status in (401, 403):
            raise ModelFileError(
                f"{url} is not given to everybody (HTTP {status}): get it by hand, then `trunkline models import`"
            )
        if status in (404, 410):
            raise ModelFileError(f"{url} is not there any more (HTTP {status}): get the file elsewhere, then import it")
        raise ModelFileError(f"{url} is not to be had: HTTP {status}")

    async def _begin(self, hop: _Response, have: int, note: _PartState) -> tuple[int, int | None]:
        """Where the answer begins in the file, and the size of the whole, if it tells."""
        response = hop.response
        length = response.content_length
        if response.status == 206:
            first, total = _content_range(response)
            if first != have:
                raise _BrokenOffError("its host sends another part than was asked for")
        else:
            have, total = 0, length
        expected = self._wanted.size or hop.size
        if expected is not None and total not in (None, expected):
            raise ModelFileError(f"{self._wanted.url} has {total} bytes and should have {expected}: nothing was taken")
        total = total if total is not None else expected
        if total is not None:
            await asyncio.to_thread(need_space, self._part.parent, total - have, self._keep_free)
        return have, total

    async def _receive(self, response: aiohttp.ClientResponse, have: int, total: int | None) -> hashlib._Hash:
        """Write what comes behind the first `have` bytes; the hash of all. Raises `_BrokenOffError`."""
        digest = await asyncio.to_thread(sha256_of, self._part) if have else hashlib.sha256()
        limit = LARGEST if total is None else total
        waiting = bytearray()
        handle = await asyncio.to_thread(_open_at, self._part, have)
        try:
            self._on_progress(have, total)
            async for piece in response.content.iter_any():
                waiting += piece
                if have + len(waiting) > limit:
                    raise ModelFileError(f"{self._wanted.url} does not end after {limit} bytes: it was left at that")
                if len(waiting) >= _BLOCK:
                    have += await asyncio.to_thread(_write, handle, waiting, have, digest)
                    waiting = bytearray()
                    self._on_progress(have, total)
            have += await asyncio.to_thread(_write, handle, waiting, have, digest)
        except (aiohttp.ClientError, TimeoutError) as error:
            await asyncio.to_thread(_write, handle, waiting, have, digest)
            raise _BrokenOffError(_short_message(error)) from error
        finally:
            await asyncio.shield(asyncio.to_thread(_close, handle))
        self._on_progress(have, total)
        if total is not None and have < total:
            raise _BrokenOffError(f"{have} of {total} bytes came")
        return digest

    async def _check(self, digest: hashlib._Hash, note: _PartState, *, went_on: bool) -> DownloadedFile:
        """Whether what has come is what is wanted. What is wrong is thrown away: put together from two tries it may be
        of two files, and is got once more; got in one go it is an error."""
        right = self._wanted.sha256 or note.announced
        got = digest.hexdigest()
        if right is not None and got != right:
            await asyncio.to_thread(self._forget)
            if went_on:
                raise _BrokenOffError("its parts do not belong together")
            raise ModelFileError(
                f"{self._wanted.url} is not what it should be: its SHA-256 is {got} in the place of {right}: "
                "it was thrown away, nothing else has changed"
            )
        size = await asyncio.to_thread(_length, self._part)
        return DownloadedFile(size, got, announced=note.announced == got)

    def _forget(self) -> None:
        for path in (self._part, self._note_path):
            path.unlink(missing_ok=True)


def need_space(folder: Path, size: int, keep_free: int = MIN_FREE_BYTES) -> None:
    """Raise `ModelFileError` unless `size` more bytes fit on the folder's disk and `keep_free` are left."""
    free = shutil.disk_usage(folder).free
    if size > 0 and free < size + keep_free:
        raise ModelFileError(
            f"{folder} has {free >> 20} MiB free, and {(size + keep_free + (1 << 20) - 1) >> 20} MiB are needed: "
            "free some, or set [models] dir to another disk"
        )


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _open_at(path: Path, have: int) -> int:
    """The file, open; what is behind the first `have` bytes goes."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    os.ftruncate(handle, have)
    return handle


def _write(handle: int, data: bytearray, at: int, digest: hashlib._Hash) -> int:
    """Write all of it, from a place on that does not depend on what was written before: a full disk may take a part."""
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, at)
        view, at = view[written:], at + written
    digest.update(data)
    return len(data)


def _close(handle: int) -> None:
    """Have all of it on the disk, and close."""
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _linked_sha256(response: aiohttp.ClientResponse) -> str | None:
    match = re.fullmatch(r'"?([0-9a-f]{64})"?', response.headers.get("X-Linked-ETag", ""))
    return match[1] if match else None


def _linked_size(response: aiohttp.ClientResponse) -> int | None:
    text = response.headers.get("X-Linked-Size", "")
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


def _content_range(response: aiohttp.ClientResponse) -> tuple[int, int | None]:
    """First byte and size of the whole (RFC 9110, 14.4). Raises `_BrokenOffError`."""
    match = re.fullmatch(r"bytes ([0-9]{1,15})-[0-9]{1,15}/([0-9]{1,15}|\*)", response.headers.get("Content-Range", ""))
    if match is None:
        raise _BrokenOffError("its host does not say which part it sends")
    return int(match[1]), None if match[2] == "*" else int(match[2])


def _short_message(error: BaseException) -> str:
    """An error on the way, in few words."""
    if isinstance(error, TimeoutError):
        return "nothing comes any more"
    return re.sub(r"\s+", " ", str(error)).strip() or type(error).__name__
