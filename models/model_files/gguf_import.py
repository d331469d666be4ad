"""Imports a language model of the operator's own: a GGUF file under a name."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from config.errors import ModelFileError
from models.model_files.download import MIN_FREE_BYTES, require_free_space
from models.model_files.store import ModelStore, disk_errors_as_model_file_errors

GGUF_MAGIC: Final = b"GGUF"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}")
_BLOCK_BYTES: Final = 1 << 20


def is_own_gguf(store: ModelStore, source: Path) -> bool:
    """True for a GGUF file that is not called like a file of a listed model."""
    if source.suffix != ".gguf" or not source.is_file():
        return False
    return all(file.name != source.name for model in store.known for file in model.files)


async def import_gguf(
    store: ModelStore,
    source: Path,
    name: str,
    on_wait: Callable[[], None] = lambda: None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
    *,
    keep_free: int = MIN_FREE_BYTES,
) -> Path:
    """Copy a GGUF file to `NAME.gguf` in the store; returns its path. The caller makes sure that the name is free.
    `on_progress` is called on another thread. Raises `ModelFileError`; nothing has changed then."""
    if not _NAME.fullmatch(name):
        raise ModelFileError(f"{name!r} cannot be the name of a model: letters, digits and _.+- can")
    target = store.directory / f"{name}.gguf"
    with disk_errors_as_model_file_errors(store.directory):
        async with store.lock(name, on_wait):
            await asyncio.to_thread(_copy, source, target, on_progress, keep_free)
    return target


def _copy(source: Path, target: Path, on_progress: Callable[[int, int], None], keep_free: int) -> None:
    if target.exists():
        raise ModelFileError(f"{target} exists already: choose another name, or remove the file")
    try:
        content = source.open("rb")
    except OSError as error:
        raise ModelFileError(f"{source} cannot be read: {error.strerror}") from error
    with content:
        if content.read(len(GGUF_MAGIC)) != GGUF_MAGIC:
            raise ModelFileError(f"{source} is no GGUF file")
        content.seek(0)
        size, done = os.fstat(content.fileno()).st_size, 0
        require_free_space(target.parent, size, keep_free)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".import-", delete=False) as copy:
            try:
                while block := content.read(_BLOCK_BYTES):
                    copy.write(block)
                    done += len(block)
                    on_progress(done, size)
                copy.flush()
                os.fsync(copy.fileno())
                os.fchmod(copy.fileno(), 0o644)
                Path(copy.name).rename(target)
            except BaseException:
                Path(copy.name).unlink(missing_ok=True)
                raise
