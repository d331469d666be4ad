"""Locks of a server on its data directory and its database, one server on each. Command line tools take no locks.

They are open file description locks (Linux, `fcntl(2)`): they end with the process, and unlike `flock` they can be
queried without being acquired."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from config.errors import StartupError
from storage.database import file_permissions

LOCK_NAME = "server.lock"
DATABASE_SUFFIX = "-server"
_held: set[str] = set()
"""Real paths of the lock files that this process has locked."""
_FLOCK = "hhqqi0q"
"""`struct flock`: type, whence, start, length (0: all of the file), process (0 for these locks)."""


@contextmanager
def lock_data_dir(data_dir: Path) -> Iterator[None]:
    """Lock the data directory (created when absent) until the block ends or the process dies. Raises `StartupError`
    when another server has locked it, or it cannot be written."""
    with _locked(data_dir / LOCK_NAME, f"data_dir {data_dir}", "data_dir"):
        yield


@contextmanager
def lock_database(path: Path) -> Iterator[None]:
    """Lock a database file, by a file beside it, because its server may have another data directory. Links to the
    database are resolved. Raises as `lock_data_dir`."""
    beside = Path(f"{os.path.realpath(path)}{DATABASE_SUFFIX}")
    with _locked(beside, f"the database {path}", "[database] url"):
        yield


@contextmanager
def _locked(path: Path, what: str, setting: str) -> Iterator[None]:
    try:
        file_permissions.make_folder(path.parent)
        handle = _open_lock_file(path)
    except OSError as error:
        raise StartupError(f"{what} cannot be used: {error.strerror}") from error
    try:
        _acquire(handle, what, setting)
        _held.add(os.path.realpath(path))
        try:
            yield
        finally:
            _held.discard(os.path.realpath(path))
    finally:
        os.close(handle)


def _open_lock_file(path: Path) -> int:
    """The open lock file, created when absent; root creates it for the folder's owner, whose server locks it later.
    Private, because a process that can read a file can lock it."""
    file_permissions.make_file(path)
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    with suppress(PermissionError):  # a file of another user that this one may write
        os.fchmod(handle, file_permissions.FILE)
    return handle


def is_locked(data_dir: Path) -> bool:
    """True if a server has locked the data directory. Neither locks nor creates anything. Raises `OSError`."""
    try:
        handle = os.open(data_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        found = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, _whole_file())
    finally:
        os.close(handle)
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


def other_server_on(database: Path) -> str | None:
    """The process of a server that has locked the database file, if it is not this one; None if there is none. Raises
    `OSError`."""
    path = f"{os.path.realpath(database)}{DATABASE_SUFFIX}"
    if path in _held:  # process numbers do not tell: in containers, each server is process 1
        return None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        found = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, _whole_file())
        holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
    finally:
        os.close(handle)
    return holder if struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK else None


def _whole_file() -> bytes:
    return struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def _acquire(handle: int, what: str, setting: str) -> None:
    try:
        fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _whole_file())
    except (BlockingIOError, PermissionError) as error:  # EAGAIN or EACCES, as POSIX leaves open
        raise StartupError(_startup_error(handle, what, setting)) from error
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)


def _startup_error(handle: int, what: str, setting: str) -> str:
    """The error text, with the holder of the lock: a server, which has a write lock, or a process that can read the
    file."""
    kind, *_, process = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_OFD_GETLK, _whole_file()))
    if kind == fcntl.F_RDLCK:
        holder = str(process) if process > 0 else _lock_holder(os.fstat(handle).st_ino)
        return (
            f"process {holder or 'unknown'}, which is no server, holds the lock of {what}: end that process, its user "
            "cannot take the lock again"
        )
    holder = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
    return f"another server (process {holder or 'unknown'}) uses {what}: stop it, or set another {setting}"


def _lock_holder(inode: int) -> str:
    """The process with a read lock on the file, found in /proc (proc(5)); "" when it is not visible."""
    for info in Path("/proc").glob("[0-9]*/fdinfo/*"):
        with suppress(OSError):
            locks = [line.split() for line in info.read_text().splitlines() if line.startswith("lock:")]
            if any("READ" in lock and lock[-3].endswith(f":{inode}") for lock in locks):
                return info.parts[2]
    return ""
