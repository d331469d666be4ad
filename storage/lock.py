"""One server on one data directory, and on one database. Command line tools work beside it and do not take the locks.

The lock belongs to the open file (Linux, `fcntl(2)`: open file description locks): it ends with the process, and unlike
`flock` it can be asked for without being taken.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.errors import StartupError

LOCK_NAME = "server.lock"
DATABASE_SUFFIX = "-server"
_FLOCK = "hhqqi0q"
"""`struct flock`: type, whence, start, length (0: all of the file), process (0 for these locks)."""


@contextmanager
def hold(data_dir: Path) -> Iterator[None]:
    """Hold the data directory (made when absent) until the block ends or the process dies. `StartupError` when
    another server holds it or it cannot be written."""
    with _holding(data_dir / LOCK_NAME, f"data_dir {data_dir}", "data_dir"):
        yield


@contextmanager
def hold_database(path: Path) -> Iterator[None]:
    """The same for a database file, by a file beside it: its server may have another data directory. A link to the
    database and the database are one."""
    beside = Path(f"{os.path.realpath(path)}{DATABASE_SUFFIX}")
    with _holding(beside, f"the database {path}", "[database] url"):
        yield


@contextmanager
def _holding(path: Path, what: str, setting: str) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = _opened(path)
    except OSError as error:
        raise StartupError(f"{what} cannot be used: {error.strerror}") from error
    try:
        _take(handle, what, setting)
        yield
    finally:
        os.close(handle)


def _opened(path: Path) -> int:
    """The file, made when absent: by root for the folder's owner, whose server is to take the lock another time."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        handle = os.open(path, flags | os.O_EXCL, 0o644)
    except FileExistsError:
        return os.open(path, flags, 0o644)
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.fchown(handle, owner.st_uid, owner.st_gid)
    return handle


def held(data_dir: Path) -> bool:
    """Whether a server holds the data directory; nothing is taken or made. Raises `OSError`."""
    try:
        handle = os.open(data_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        found = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, _whole_file())
    finally:
        os.close(handle)
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


def _whole_file() -> bytes:
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def _take(handle: int, what: str, setting: str) -> None:
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _whole_file())
    except (BlockingIOError, PermissionError) as error:  # EAGAIN or EACCES, as POSIX leaves open
        holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
        raise StartupError(
            f"another server (process {holder or 'unknown'}) uses {what}: stop it, or set another {setting}"
        ) from error
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
