"""Initial data directories: copies of what the first start of a server creates, which takes longer than most tests."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from config.settings import Settings
from storage.background_sounds import presets
from storage.database.database import Database


def copy_initial_data(data_dir: Path) -> None:
    """Copy a database with its tables, and the preset sounds, to a data directory."""
    shutil.copytree(_initial_data().name, data_dir, dirs_exist_ok=True)


@cache
def _initial_data() -> tempfile.TemporaryDirectory[str]:
    """The data directory that is copied: created once in a process, on its own event loop, and removed at its end."""
    folder = tempfile.TemporaryDirectory(prefix="trunkline-data-")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _create(Path(folder.name))).result()
    return folder


async def _create(data_dir: Path) -> None:
    database = Database(Settings(data_dir=data_dir).database_url)
    await database.open()
    try:
        await presets.install_presets(database, data_dir)
    finally:
        await database.close()
