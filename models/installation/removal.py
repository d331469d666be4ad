"""Removal of a model's files."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from config.errors import NotFound
from models.installation.inventory import ModelEntry
from models.model_files.load_checker import LoadChecker
from models.model_files.store import MANIFEST, PARTS, ModelStore, disk_errors_as_model_file_errors, fsync_directory


async def remove_model(store: ModelStore, entry: ModelEntry) -> int:
    """Remove the files of a model, also those of an unfinished download. Returns the freed bytes. Raises `NotFound` if
    there are none, `ModelFileError`. The caller makes sure that the model is not in use."""
    with disk_errors_as_model_file_errors(store.directory):
        async with store.lock(entry.name, lambda: None):
            return await asyncio.to_thread(_remove, store, entry)


def _remove(store: ModelStore, entry: ModelEntry) -> int:
    paths = (
        [entry.file] if entry.file is not None else [store.directory / entry.name, store.directory / PARTS / entry.name]
    )
    present = [path for path in paths if path.exists() and not path.is_symlink()]
    if not present:
        raise NotFound(f"{entry.name} has no files on this machine")
    freed = sum(_size(path) for path in present)
    (store.directory / entry.name / MANIFEST).unlink(missing_ok=True)  # first: what is left is not installed
    for path in present:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    fsync_directory(store.directory)
    LoadChecker(store.directory).delete_results(entry.name)
    return freed


def _size(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else (path,)
    return sum(each.stat().st_size for each in files if each.is_file())
