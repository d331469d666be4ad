"""Pulls a model: downloads all its files, then installs them at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp

from models.model_files.download import (
    MIN_FREE_BYTES,
    RETRY_PAUSES_S,
    DownloadRequest,
    download_file,
    download_session,
    require_free_space,
)
from models.model_files.known_models import KnownFile, KnownModel
from models.model_files.store import FileRecord, HashOrigin, ModelStore, disk_errors_as_model_file_errors

OnProgress = Callable[[KnownFile, int, int | None], None]
"""Called with the file, its bytes received so far, and its total if known."""
OnRetry = Callable[[KnownFile, str, float], None]
"""Called with the file, the cause of the interruption, and the seconds until the next attempt."""


async def pull(
    store: ModelStore,
    model: KnownModel,
    on_progress: OnProgress = lambda _file, _done, _total: None,
    on_wait: Callable[[], None] = lambda: None,
    *,
    on_retry: OnRetry = lambda _file, _cause, _pause_s: None,
    pauses_s: Sequence[float] = RETRY_PAUSES_S,
    keep_free: int = MIN_FREE_BYTES,
) -> dict[str, FileRecord]:
    """Download the missing and damaged files of a model and install them. Returns the records of the downloaded files
    by name. `on_wait` is called if another process holds the lock. Raises `ModelFileError`; nothing has changed then,
    and the next pull resumes."""
    with disk_errors_as_model_file_errors(store.directory):
        async with store.lock(model.name, on_wait):
            missing = [
                file for file in model.files if await asyncio.to_thread(store.intact_record, model, file) is None
            ]
            await asyncio.to_thread(_require_space_for_parts, store, model, missing, keep_free)
            files: dict[str, tuple[Path, FileRecord]] = {}
            async with download_session() as client:
                for file in missing:
                    files[file.name] = await _download_part(
                        client, store, model, file, on_progress, on_retry, pauses_s, keep_free
                    )
            if files:
                await asyncio.to_thread(store.install, model, files)
            return {name: record for name, (_, record) in files.items()}


def _require_space_for_parts(
    store: ModelStore, model: KnownModel, missing: Sequence[KnownFile], keep_free: int
) -> None:
    """Create the part folders. Raises `ModelFileError` without enough disk space."""
    for file in missing:
        store.part(model, file).parent.mkdir(parents=True, exist_ok=True)
    received_bytes = sum(part.stat().st_size for file in missing if (part := store.part(model, file)).exists())
    require_free_space(store.directory, sum(file.size or 0 for file in missing) - received_bytes, keep_free)


async def _download_part(
    client: aiohttp.ClientSession,
    store: ModelStore,
    model: KnownModel,
    file: KnownFile,
    on_progress: OnProgress,
    on_retry: OnRetry,
    pauses_s: Sequence[float],
    keep_free: int,
) -> tuple[Path, FileRecord]:
    """Download a file. Returns its part file and its record."""
    part = store.part(model, file)
    fetched = await download_file(
        client,
        DownloadRequest(model.url(file), file.size, file.sha256),
        part,
        lambda done, total: on_progress(file, done, total),
        on_retry=lambda cause, pause_s: on_retry(file, cause, pause_s),
        pauses_s=pauses_s,
        keep_free=keep_free,
    )
    origin: HashOrigin = "list" if file.sha256 is not None else "host" if fetched.announced else "first copy"
    return part, FileRecord(size=fetched.size, sha256=fetched.sha256, origin=origin)
