"""Recordings in a bucket of an S3-compatible server, by `obstore`, which a default installation does not have."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from config.errors import StartupError
from config.optional_packages import INSTALL_COMMAND
from storage.recording_store.object_store import ObjectRefused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore.store import S3Store

CONNECT_S: Final = 3.0
REPLY_S: Final = 5.0
"""Time for the store to answer a request that a client of the API waits for."""
READ_S: Final = 10.0
"""Time without any byte of an object; then its transfer has failed."""
PUT_REPLY_S: Final = 120.0
"""Time to send a part of an upload and get its response: a part of `PART_BYTES` at half a Mbit/s."""
TRANSFER: Final = timedelta(days=1)
"""Longest transfer of an object to a slow client."""
PART_BYTES: Final = 8 * 1024 * 1024
"""Larger files are sent in parts of this size (multipart upload)."""
PARTS_AT_ONCE: Final = 2
CHUNK_BYTES: Final = 128 * 1024
"""Least bytes of a chunk that is read, except the last."""
MEDIA_TYPE: Final = "audio/wav"
_STATUS: Final = re.compile(r"status code: (\d{3})(?: ([A-Za-z -]{1,40}))?")
_CODE: Final = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_KIND: Final = re.compile(r"kind: (Connect|Timeout|Interrupted|Request|Decode)\b")
_OF_ONE_OBJECT: Final = frozenset({"400", "405", "409", "411", "412", "413", "416"})
"""Statuses of a request that the store understood and did not accept."""
_KINDS: Final = {
    "Connect": "it cannot be connected to",
    "Timeout": "it does not answer in time",
    "Interrupted": "it has closed the connection",
    "Request": "it has closed the connection",
    "Decode": "its response was cut off",
}


@dataclass(frozen=True)
class S3Bucket:
    """A bucket. `endpoint`: origin of the server, None for AWS; `ca`: further certificate authorities, PEM. Its `repr`
    shows no key."""

    bucket: str
    prefix: str
    endpoint: str | None
    region: str
    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    ca: bytes | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The URL, with the server."""
        url = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        return url if self.endpoint is None else f"{url} at {self.endpoint}"


class S3RecordingStore:
    """An `ObjectStore` in a bucket. Raises `StartupError` when `obstore` is not installed."""

    def __init__(self, bucket: S3Bucket) -> None:
        self._reading = _client(bucket, READ_S, retries=1)
        self._writing = _client(bucket, PUT_REPLY_S, retries=0)
        self._name = bucket.name

    @property
    def name(self) -> str:
        """See `ObjectStore`."""
        return self._name

    async def put(self, key: str, path: Path) -> None:
        """See `ObjectStore`."""
        await asyncio.to_thread(_require_readable, path)
        attributes: Any = {"Content-Type": MEDIA_TYPE}
        with _errors_translated():
            await self._writing.put_async(
                key, path, attributes=attributes, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
            )

    async def size(self, key: str) -> int | None:
        """See `ObjectStore`."""
        from obstore.exceptions import PermissionDeniedError, UnauthenticatedError

        with _errors_translated():
            try:
                async with asyncio.timeout(REPLY_S):
                    return int((await self._reading.head_async(key))["size"])
            except (FileNotFoundError, PermissionDeniedError, UnauthenticatedError):
                pass  # the response to HEAD has no body that says what is missing or wrong
            try:
                async with asyncio.timeout(REPLY_S):
                    return int((await self._reading.get_async(key)).meta["size"])
            except FileNotFoundError as error:
                _require_bucket(error)
                return None

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes] | None:
        """See `ObjectStore`."""
        if start >= end:
            return _nothing()
        with _errors_translated():
            try:
                async with asyncio.timeout(REPLY_S):
                    found = await self._reading.get_async(key, options={"range": (start, end)})
            except FileNotFoundError as error:
                _require_bucket(error)
                return None
        return _chunks(found.stream(min_chunk_size=CHUNK_BYTES))

    async def remove(self, key: str) -> None:
        """See `ObjectStore`."""
        with _errors_translated():
            try:
                async with asyncio.timeout(REPLY_S):
                    await self._reading.delete_async(key)
            except FileNotFoundError as error:
                _require_bucket(error)


def _client(bucket: S3Bucket, read_s: float, *, retries: int) -> S3Store:
    """Every setting that `obstore` would take from an environment variable of AWS is given."""
    try:
        from obstore.store import S3Store
    except ImportError as error:
        raise StartupError(f"recordings.url {bucket.name} needs obstore: {INSTALL_COMMAND} installs it") from error
    endpoint = bucket.endpoint or f"https://s3.{bucket.region}.amazonaws.com"
    key: Any = {
        "access_key_id": bucket.access_key,
        "secret_access_key": bucket.secret_key,
        "token": None,
        "expires_at": None,
    }
    options: Any = {
        "allow_http": endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=CONNECT_S),
        "read_timeout": timedelta(seconds=read_s),
        "timeout": TRANSFER,
    }
    if bucket.ca is not None:
        options["root_certificate"] = bucket.ca
    return S3Store(
        bucket.bucket,
        prefix=bucket.prefix or None,
        endpoint=endpoint,
        aws_endpoint_url_s3=endpoint,
        region=bucket.region,
        credential_provider=lambda: key,
        skip_signature=False,
        virtual_hosted_style_request=False,
        disable_bulk_delete=True,  # not every server has it
        client_options=options,
        retry_config={
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=REPLY_S),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=1),
                "base": 2,
            },
        },
    )


async def _chunks(stream: Any) -> AsyncIterator[bytes]:
    with _errors_translated():
        async for chunk in stream:
            yield bytes(chunk)


async def _nothing() -> AsyncIterator[bytes]:
    chunks: tuple[bytes, ...] = ()
    for chunk in chunks:
        yield chunk


def _require_readable(path: Path) -> None:
    """Raises `OSError`; `obstore` reports an unreadable file as it does a missing bucket."""
    with path.open("rb", buffering=0) as file:
        file.read(1)


def _require_bucket(error: FileNotFoundError) -> None:
    """Raises `StoreUnavailable` when more is missing than the object."""
    code = _CODE.search(str(error))
    if code is not None and code[1] != "NoSuchKey":
        raise StoreUnavailable(_cause(error)) from None


@contextmanager
def _errors_translated() -> Iterator[None]:
    """Turns the errors of `obstore` into `StoreUnavailable`. Their texts are not passed on: a server may repeat the
    access key and what was signed."""
    from obstore.exceptions import BaseError

    try:
        yield
    except TimeoutError:
        raise StoreUnavailable(_KINDS["Timeout"]) from None
    except (BaseError, OSError, ValueError) as error:
        status = _STATUS.search(str(error))
        kind = ObjectRefused if status is not None and status[1] in _OF_ONE_OBJECT else StoreUnavailable
        raise kind(_cause(error)) from None


def _cause(error: Exception) -> str:
    """What is wrong, in a few words: the status and the code of the response, or what happened to the connection."""
    text = str(error)
    status, code, kind = _STATUS.search(text), _CODE.search(text), _KIND.search(text)
    if status is not None or code is not None:
        answer = " ".join(each for each in status.groups() if each).strip() if status is not None else ""
        return ", ".join(each for each in (answer, code[1] if code is not None else "") if each)
    if "certificate" in text.lower():
        return "its certificate is not trusted"
    return _KINDS[kind[1]] if kind is not None else f"the transfer failed ({type(error).__name__})"
