"""The store of recordings in `trunkline check` and `trunkline doctor`: whether an object can be written, read and
deleted."""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from config.settings import Settings
from storage.recording_store.object_store import ObjectStore, StoreUnavailable
from trunkline.wiring.storage.recordings import open_store

_T = TypeVar("_T")
CONTENT: Final = b"trunkline check"
TIMEOUT_S: Final = 15.0
_REMEDIES: Final = {
    "NoSuchBucket": "create the bucket, or correct recordings.url",
    "InvalidAccessKeyId": "correct recordings.access_key_file",
    "SignatureDoesNotMatch": "correct recordings.secret_key_file, and see that the clock is right",
    "RequestTimeTooSkewed": "set the clock",
    "AccessDenied": "permit the keys to put, get and delete objects of the bucket",
    "AuthorizationHeaderMalformed": "correct recordings.region",
    "PermanentRedirect": "correct recordings.region and recordings.endpoint",
    "mounted": "create the folder, or mount it",
    "certificate": "name its authority in recordings.ca_file",
    "connected": "is the server up, is recordings.endpoint right, does a firewall block it?",
    "answer": "is the server up, is recordings.endpoint right, does a firewall block it?",
}
"""What to do, by a word of the cause."""


def checks(settings: Settings) -> list[tuple[str, Callable[[Settings], Awaitable[str]]]]:
    """The check of the store, by the name of its line; none if recordings stay in the data directory."""
    return [] if settings.recordings.url is None else [("recordings", _check_store)]


async def _check_store(settings: Settings) -> str:
    """Raises `StartupError`, and `OSError` with what failed and its remedy."""
    store = await open_store(settings, reads_only=settings.standby)
    assert store is not None
    if settings.standby:
        return await _step(store, "read", _read_any(store))
    key = f"trunkline-check-{secrets.token_hex(8)}.tmp"
    path = await asyncio.to_thread(_local_file)
    try:
        await _step(store, "written", store.put(key, path))
    finally:
        await asyncio.to_thread(path.unlink)
    is_intact = await _step(store, "read", _reads_back(store, key))
    await _step(store, "deleted", store.remove(key))
    if not is_intact:
        raise OSError(f"{store.name} returns other bytes than were written: use another store")
    return f"{store.name}: an object was written, read and deleted"


def _local_file() -> Path:
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(CONTENT)
    return Path(file.name)


async def _step(store: ObjectStore, what: str, work: Awaitable[_T]) -> _T:
    try:
        async with asyncio.timeout(TIMEOUT_S):
            return await work
    except TimeoutError:
        cause = "it does not answer in time"
    except StoreUnavailable as error:
        cause = error.cause
    remedy = next((text for word, text in _REMEDIES.items() if word in cause), "see the log of the store")
    raise OSError(f"{store.name} cannot be {what}: {cause}: {remedy}")


async def _read_any(store: ObjectStore) -> str:
    await store.size("recordings/probe")
    return f"{store.name} can be read; a standby server writes nothing to it"


async def _reads_back(store: ObjectStore, key: str) -> bool:
    chunks = await store.read(key, 0, len(CONTENT))
    return chunks is not None and b"".join([chunk async for chunk in chunks]) == CONTENT
