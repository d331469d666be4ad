"""Downloads one large file over HTTP, with retries that resume where the last attempt broke off.

The received bytes are in a part file until it is complete and its SHA-256 verified. Its state file has the URL, ETag
and size: the rest is requested with `If-Range` (RFC 9110, 13.1.5), so that a file that has changed is sent from its
beginning.

Model hubs redirect to a file store, and describe the file in headers: `X-Linked-ETag` is its SHA-256 and
`X-Linked-Size` its size (for files in Git LFS). These are trusted only from the host of the requested URL.
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
from models.model_files.store import sha256_of, write_atomically

RETRY_PAUSES_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0)
"""Seconds before each retry after an attempt without new bytes; after one with new bytes the retry is immediate."""
MIN_FREE_BYTES: Final = 256 * 1024 * 1024
"""Bytes that stay free on the disk, because it may hold recordings and the database."""
MAX_FILE_BYTES: Final = 1 << 37
"""Bytes of a file of unknown size, at most."""
MAX_REDIRECTS: Final = 5
_BLOCK_BYTES: Final = 1 << 20
"""Bytes of a write."""
_RETRYABLE_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class DownloadRequest:
    """A file to download; `size` in bytes and SHA-256 if known."""

    url: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class DownloadedFile:
    """A downloaded file. `announced`: the host announced this SHA-256."""

    size: int
    sha256: str
    announced: bool


OnProgress = Callable[[int, int | None], None]
"""Called with the bytes received so far, and the total if known."""


OnRetry = Callable[[str, float], None]
"""Called with the cause of an interruption, and the seconds until the next attempt."""


def _report_nothing(cause: str, pause_s: float) -> None:
    """Interruptions are not shown."""


class _PartState(BaseModel):
    """The state file of a partial file: the download that it belongs to."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    url: str
    etag: str | None = None
    size: int | None = None
    announced: str | None = None


@dataclass(frozen=True)
class _Response:
    """A response, and the size and SHA-256 that the requested host announced."""

    response: aiohttp.ClientResponse
    size: int | None
    sha256: str | None


class _InterruptedDownloadError(Exception):
    """The attempt broke off and can be retried. The message is the cause."""


def download_session() -> aiohttp.ClientSession:
    """An HTTP client for `download_file`, with the environment's proxies and the system's certificate authorities."""
    limits = aiohttp.ClientTimeout(total=None, sock_connect=30, sock_read=60)
    headers = {"Accept-Encoding": "identity", "User-Agent": "trunkline"}
    return aiohttp.ClientSession(timeout=limits, headers=headers, auto_decompress=False, trust_env=True)


async def download_file(
    client: aiohttp.ClientSession,
    request: DownloadRequest,
    part: Path,
    on_progress: OnProgress = lambda _done, _total: None,
    *,
    on_retry: OnRetry = _report_nothing,
    pauses_s: Sequence[float] = RETRY_PAUSES_S,
    keep_free: int = MIN_FREE_BYTES,
) -> DownloadedFile:
    """Download a file to `part`, whose folder exists, and verify it. Bytes that are there already are not requested
    again. Raises `ModelFileError`, and `OSError` if it cannot be written; received bytes stay, unless they are
    wrong."""
    failed_tries, received = 0, await asyncio.to_thread(_length, part)
    while True:
        try:
            return await _Attempt(client, request, part, on_progress, keep_free).run()
        except _InterruptedDownloadError as error:
            received_now = await asyncio.to_thread(_length, part)
            failed_tries, received = (0, received_now) if received_now > received else (failed_tries + 1, received)
            if failed_tries > len(pauses_s):
                resume_hint = (
                    f"it resumes after {received_now} bytes"
                    if received_now
                    else "or get the file elsewhere and import it"
                )
                advice = f"try again later, {resume_hint}"
                raise ModelFileError(f"{request.url} cannot be downloaded: {error}: {advice}") from error
            pause_s = pauses_s[failed_tries - 1] if failed_tries else 0
            on_retry(str(error), pause_s)
        await asyncio.sleep(pause_s)


class _Attempt:
    """One attempt to download the missing bytes."""

    def __init__(
        self,
        client: aiohttp.ClientSession,
        request: DownloadRequest,
        part: Path,
        on_progress: OnProgress,
        keep_free: int,
    ) -> None:
        self._client = client
        self._request = request
        self._part = part
        self._on_progress = on_progress
        self._keep_free = keep_free
        self._state_path = part.with_name(f"{part.name}.note")

    async def run(self) -> DownloadedFile:
        state = await asyncio.to_thread(self._read_state)
        offset = await asyncio.to_thread(self._resumable_bytes, state)
        size = self._request.size or state.size
        if offset and offset == size:
            self._on_progress(offset, size)
            return await self._verify(await asyncio.to_thread(sha256_of, self._part), state, resumed=True)
        async with self._open_response(offset, state) as response:
            if response.response.status == 416:  # the part is longer than the file
                await asyncio.to_thread(self._discard)
                raise _InterruptedDownloadError("it has become shorter")
            state = self._checked_state(response, state)
            offset, total = await self._start_receiving(response, offset, state)
            state = state.model_copy(update={"size": total})
            await asyncio.to_thread(write_atomically, self._state_path, state.model_dump_json().encode())
            digest = await self._receive(response.response, offset, total)
        return await self._verify(digest, state, resumed=offset > 0)

    def _read_state(self) -> _PartState:
        try:
            state = _PartState.model_validate_json(self._state_path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return _PartState(url=self._request.url)
        return state if state.url == self._request.url else _PartState(url=self._request.url)

    def _resumable_bytes(self, state: _PartState) -> int:
        """Bytes of the part to resume from; 0 without a SHA-256 or an ETag, because parts of two files could be
        mixed."""
        offset = _length(self._part)
        size = self._request.size or state.size
        known = self._request.sha256 or state.announced or state.etag
        if offset and (not known or (size is not None and offset > size)):
            self._part.unlink()
            return 0
        return offset

    @asynccontextmanager
    async def _open_response(self, offset: int, state: _PartState) -> AsyncIterator[_Response]:
        """The response after all redirects. Raises `ModelFileError` and `_InterruptedDownloadError`."""
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        if offset and state.etag is not None:
            headers["If-Range"] = state.etag
        url, size, sha256 = URL(self._request.url), None, None
        try:
            for _ in range(MAX_REDIRECTS + 1):
                async with self._client.get(url, headers=headers, allow_redirects=False) as response:
                    if url.origin() == URL(self._request.url).origin():
                        size = _linked_size(response) or size
                        sha256 = _linked_sha256(response) or sha256
                    location = response.headers.get("Location")
                    if response.status not in (301, 302, 303, 307, 308) or location is None:
                        yield _Response(response, size, sha256)
                        return
                    url = self._redirect_target(url, location)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise _InterruptedDownloadError(_network_error_text(error)) from error
        raise ModelFileError(f"{self._request.url} has too many redirects: report it to its host")

    def _redirect_target(self, url: URL, location: str) -> URL:
        """The target of a redirect. Plain HTTP is allowed from loopback to loopback only."""
        target = url.join(URL(location, encoded=True))
        if target.scheme == "https" or (target.scheme == "http" and is_loopback(str(target)) and is_loopback(str(url))):
            return target
        raise ModelFileError(
            f"{self._request.url} redirects to {target.scheme}://{target.host}, which is not safe: "
            "nothing was downloaded"
        )

    def _checked_state(self, received: _Response, state: _PartState) -> _PartState:
        """The part's state by the response. Raises `ModelFileError` if it is not the requested file."""
        request, response = self._request, received.response
        self._check_status(response)
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise ModelFileError(f"{request.url} has a content encoding: check for a proxy")
        if request.sha256 is not None and received.sha256 not in (None, request.sha256):
            raise ModelFileError(
                f"{request.url} has changed: its SHA-256 is {received.sha256} there, "
                f"and should be {request.sha256}: nothing was downloaded"
            )
        if request.size is not None and received.size not in (None, request.size):
            raise ModelFileError(
                f"{request.url} has changed: it has {received.size} bytes there, and should have "
                f"{request.size}: nothing was downloaded"
            )
        etag = response.headers.get("ETag")
        strong_etag = etag if etag is not None and etag.startswith('"') else None
        return _PartState(
            url=request.url, etag=strong_etag, size=received.size or state.size, announced=received.sha256
        )

    def _check_status(self, response: aiohttp.ClientResponse) -> None:
        url, status = self._request.url, response.status
        if status in (200, 206):
            return
        if status in _RETRYABLE_STATUSES:
            raise _InterruptedDownloadError(f"its host answers {status}")
        if status in (401, 403):
            raise ModelFileError(
                f"{url} needs authorization (HTTP {status}): download it by hand, then `trunkline models import`"
            )
        if status in (404, 410):
            raise ModelFileError(f"{url} no longer exists (HTTP {status}): get the file elsewhere, then import it")
        raise ModelFileError(f"{url} cannot be downloaded: HTTP {status}")

    async def _start_receiving(self, received: _Response, offset: int, state: _PartState) -> tuple[int, int | None]:
        """The offset of the response's content in the file, and the file's size if known."""
        response = received.response
        length = response.content_length
        if response.status == 206:
            first, total = _content_range(response)
            if first != offset:
                raise _InterruptedDownloadError("its host sends another part than was asked for")
        else:
            offset, total = 0, length
        expected = self._request.size or received.size
        if expected is not None and total not in (None, expected):
            raise ModelFileError(
                f"{self._request.url} has {total} bytes and should have {expected}: nothing was downloaded"
            )
        total = total if total is not None else expected
        if total is not None:
            await asyncio.to_thread(require_free_space, self._part.parent, total - offset, self._keep_free)
        return offset, total

    async def _receive(self, response: aiohttp.ClientResponse, offset: int, total: int | None) -> hashlib._Hash:
        """Write the content after the first `offset` bytes. Returns the hash of the file. Raises
        `_InterruptedDownloadError`."""
        digest = await asyncio.to_thread(sha256_of, self._part) if offset else hashlib.sha256()
        limit = MAX_FILE_BYTES if total is None else total
        buffer = bytearray()
        handle = await asyncio.to_thread(_open_at, self._part, offset)
        try:
            self._on_progress(offset, total)
            async for piece in response.content.iter_any():
                buffer += piece
                if offset + len(buffer) > limit:
                    raise ModelFileError(f"{self._request.url} is longer than {limit} bytes: the download was stopped")
                if len(buffer) >= _BLOCK_BYTES:
                    offset += await asyncio.to_thread(_write, handle, buffer, offset, digest)
                    buffer = bytearray()
                    self._on_progress(offset, total)
            offset += await asyncio.to_thread(_write, handle, buffer, offset, digest)
        except (aiohttp.ClientError, TimeoutError) as error:
            await asyncio.to_thread(_write, handle, buffer, offset, digest)
            raise _InterruptedDownloadError(_network_error_text(error)) from error
        finally:
            await asyncio.shield(asyncio.to_thread(_close, handle))
        self._on_progress(offset, total)
        if total is not None and offset < total:
            raise _InterruptedDownloadError(f"{offset} of {total} bytes came")
        return digest

    async def _verify(self, digest: hashlib._Hash, state: _PartState, *, resumed: bool) -> DownloadedFile:
        """Verify the SHA-256. A wrong part is discarded: a resumed one may mix two files and is retried, one of a
        single attempt is an error."""
        expected = self._request.sha256 or state.announced
        actual = digest.hexdigest()
        if expected is not None and actual != expected:
            await asyncio.to_thread(self._discard)
            if resumed:
                raise _InterruptedDownloadError("its parts do not belong together")
            raise ModelFileError(
                f"{self._request.url} is not what it should be: its SHA-256 is {actual} instead of {expected}: "
                "it was discarded, nothing else has changed"
            )
        size = await asyncio.to_thread(_length, self._part)
        return DownloadedFile(size, actual, announced=state.announced == actual)

    def _discard(self) -> None:
        for path in (self._part, self._state_path):
            path.unlink(missing_ok=True)


def require_free_space(folder: Path, size: int, keep_free: int = MIN_FREE_BYTES) -> None:
    """Raises `ModelFileError` unless `size` more bytes fit on the folder's disk and leave `keep_free`."""
    free_bytes = shutil.disk_usage(folder).free
    if size > 0 and free_bytes < size + keep_free:
        raise ModelFileError(
            f"{folder} has {free_bytes >> 20} MiB free, and {(size + keep_free + (1 << 20) - 1) >> 20} MiB are needed: "
            "free some, or set [models] dir to another disk"
        )


def _length(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _open_at(path: Path, offset: int) -> int:
    """Open the file, truncated to `offset` bytes. Returns the descriptor."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    os.ftruncate(handle, offset)
    return handle


def _write(handle: int, data: bytearray, at: int, digest: hashlib._Hash) -> int:
    """Write all of `data` at an absolute offset, because a full disk may take a part of it. Returns its length."""
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, at)
        view, at = view[written:], at + written
    digest.update(data)
    return len(data)


def _close(handle: int) -> None:
    """Sync the file to disk, and close it."""
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
    """The first byte and the file's size of `Content-Range` (RFC 9110, 14.4). Raises `_InterruptedDownloadError`."""
    match = re.fullmatch(r"bytes ([0-9]{1,15})-[0-9]{1,15}/([0-9]{1,15}|\*)", response.headers.get("Content-Range", ""))
    if match is None:
        raise _InterruptedDownloadError("its host does not say which part it sends")
    return int(match[1]), None if match[2] == "*" else int(match[2])


def _network_error_text(error: BaseException) -> str:
    """A short text of a network error."""
    if isinstance(error, TimeoutError):
        return "the server stopped sending"
    return re.sub(r"\s+", " ", str(error)).strip() or type(error).__name__
