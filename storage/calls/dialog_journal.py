"""Dialog journal: a small file for each live SIP dialog of this process, from which the next one ends the dialogs that
a killed process has left.

The files are written by a thread of their own and not synced: they survive the end of the process, and a power failure
takes at most the last ones. They are no part of a backup: another machine must not end this one's dialogs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import structlog

from storage.database import file_permissions

FOLDER: Final = "dialogs"
MAX_ENTRY_BYTES: Final = 64 * 1024
"""A larger file is damaged."""
_SUFFIX: Final = ".json"
_PARTIAL: Final = ".partial"

log = structlog.get_logger()


class DialogFiles:
    """The journal of one process. `store` and `remove` return at once; any thread. `former_entries` reads what an
    earlier process has left."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / FOLDER
        self._process = uuid4().hex
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dialog journal")
        self._failing = False
        self._writer.submit(self._guarded, lambda: file_permissions.make_folder(self._folder))

    def store(self, key: int, entry: Mapping[str, Any]) -> None:
        """Store the entry of a call in place of an earlier one."""
        self._submit(key, json.dumps(entry).encode())

    def remove(self, key: int) -> None:
        """Remove the entry of a call; harmless without one."""
        self._submit(key, None)

    def close(self) -> None:
        """Finish all writes. Blocks."""
        self._writer.shutdown()

    def former_entries(self) -> Iterator[tuple[str, object]]:
        """The name and content of each entry of earlier processes; None is the content of a damaged one. Removes what a
        process was writing when it died. Blocks; an unreadable folder has none."""
        try:
            names = sorted(os.listdir(self._folder))
        except OSError:
            return
        for name in names:
            if name.startswith(self._process):
                continue
            if name.endswith(_SUFFIX):
                yield name, _read(self._folder / name)
            elif name.endswith(_PARTIAL):
                self.remove_former(name)

    def remove_former(self, name: str) -> None:
        """Remove an entry of an earlier process. Blocks."""
        with suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)

    def _submit(self, key: int, content: bytes | None) -> None:
        with suppress(RuntimeError):  # closed
            self._writer.submit(self._write, f"{self._process}-{key}", content)

    def _write(self, name: str, content: bytes | None) -> None:
        path = self._folder / f"{name}{_SUFFIX}"
        if content is None:
            self._guarded(lambda: path.unlink(missing_ok=True))
        else:
            self._guarded(lambda: _replace(path, path.with_suffix(_PARTIAL), content))

    def _guarded(self, action: Callable[[], object]) -> None:
        """An error is logged once until an action succeeds."""
        try:
            action()
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.error("dialogs.not_stored", error=error.strerror, folder=str(self._folder))
            self._failing = True


def _replace(path: Path, partial: Path, content: bytes) -> None:
    handle = _create(partial)
    try:
        os.write(handle, content)
    finally:
        os.close(handle)
    partial.rename(path)


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, file_permissions.FILE)


def _read(path: Path) -> object:
    """None if the file is no JSON, or cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            content = file.read(MAX_ENTRY_BYTES + 1)
        return None if len(content) > MAX_ENTRY_BYTES else json.loads(content)
    except (OSError, ValueError, RecursionError):
        return None
