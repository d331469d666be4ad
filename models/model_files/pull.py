"""Pulls a model: downloads all its files, then puts all of them in place at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp

from models.model_files.download import MIN_FREE_BYTES, RETRY_PAUSES_S, DownloadRequest, fetch, need_space, session
from models.model_files.known_models import KnownFile, KnownModel
from models.model_files.store import FileRecord, ModelStore, Origin, disk_errors

OnProgress = Callable[[KnownFile, int, int | None], None]
"""Is told which file comes, how many of its bytes are here, and how many there will be if that is known."""


async def pull(
    store: ModelStore,
    model: KnownModel,
    on_progress: OnProgress = lambda _file, _done, _total: None,
    on_wait: Callable[[], None] = lambda: None,
    *,
    pauses_s: Sequence[float] = RETRY_PAUSES_S,
    keep_free: int = MIN_FREE_BYTES,
) -> dict[str, FileRecord]:
    """Get what is missing or damaged of a model, and put it in the place of what was there. The records of the files
    that have come, by name: none when all was there. `on_wait` is told when another process is at it. Raises
    `ModelFileError`: then nothing has changed, and what came is gone on from the next time."""
    with disk_errors(store.directory):
        async with store.lock(model.name, on_wait):
            missing = [
                file for file in model.files if await asyncio.to_thread(store.intact_record, model, file) is None
            ]
            await asyncio.to_thread(_prepare, store, model, missing, keep_free)
            files: dict[str, tuple[Path, FileRecord]] = {}
            async with session() as client:
                for file in missing:
                    files[file.name] = await _get(client, store, model, file, on_progress, pauses_s, keep_free)
            if files:
                await asyncio.to_thread(store.install, model, files)
            return {name: record for name, (_, record) in files.items()}


def _prepare(store: ModelStore, model: KnownModel, missing: Sequence[KnownFile], keep_free: int) -> None:
    """Make room for what comes. Raises `ModelFileError` when there is too little."""
    for file in missing:
        store.part(model, file).parent.mkdir(parents=True, exist_ok=True)
    here = sum(part.stat().st_size for file in missing if (part := store.part(model, file)).exists())
    need_space(store.directory, sum(file.size or 0 for file in missing) - here, keep_free)


async def _get(
    client: aiohttp.ClientSession,
    store: ModelStore,
    model: KnownModel,
    file: KnownFile,
    on_progress: OnProgress,
    pauses_s: Sequence[float],
    keep_free: int,
) -> tuple[Path, FileRecord]:
    """A file that lies aside, and its record."""
    part = store.part(model, file)
    fetched = await fetch(
        client,
        DownloadRequest(model.url(file), file.size, file.sha256),
        part,
        lambda done, total: on_progress(file, done, total),
        pauses_s=pauses_s,
        keep_free=keep_free,
    )
    origin: Origin = "list" if file.sha256 is not None else "host" if fetched.announced else "first copy"
    return part, FileRecord(size=fetched.size, sha256=fetched.sha256, origin=origin)
