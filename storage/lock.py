"""One server on one data directory. Command line tools work beside it and do not take the lock."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.errors import StartupError

LOCK_NAME = "server.lock"


@contextmanager
def hold(data_dir: Path) -> Iterator[None]:
    """Hold the data directory (made when absent) until the block ends or the process dies. `StartupError` when
    another server holds it or it cannot be written."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        handle = os.open(data_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StartupError(f"data_dir {data_dir} cannot be used: {error.strerror}") from error
    try:
        _take(handle, data_dir)
        yield
    finally:
        os.close(handle)


def _take(handle: int, data_dir: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        raise StartupError(
            f"another server (process {holder or 'unknown'}) uses data_dir {data_dir}: stop it, or set another data_dir"
        ) from error
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
