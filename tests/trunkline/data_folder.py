"""Data folders as a first start leaves them: making one takes longer than most tests do."""

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


def furnish(data_dir: Path) -> None:
    """Put tables and preset sounds into a folder."""
    shutil.copytree(_made().name, data_dir, dirs_exist_ok=True)


@cache
def _made() -> tempfile.TemporaryDirectory[str]:
    """Once in a process, on a loop of its own; gone at its end."""
    folder = tempfile.TemporaryDirectory(prefix="trunkline-data-")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, _make(Path(folder.name))).result()
    return folder


async def _make(data_dir: Path) -> None:
    database = Database(Settings(data_dir=data_dir).database_url)
    await database.open()
    try:
        await presets.install_presets(database, data_dir)
    finally:
        await database.close()
