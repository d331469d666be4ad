"""One server on one data directory, and on one database. Command line tools work beside it and do not take the locks.

The lock belongs to the open file (Linux, `fcntl(2)`: open file description locks): it ends with the process, and unlike
`flock` it can be asked for without being taken.
"""

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
_FLOCK = "hhqqi0q"
"""`struct flock`: type, whence, start, length (0: all of the file), process (0 for these locks)."""


@contextmanager
def hold(data_dir: Path) -> Iterator[None]:
    """Hold the data directory (made when absent) until the block ends or the process dies. `StartupError` when
    another server holds it or it cannot be written."""
    with _locked(data_dir / LOCK_NAME, f"data_dir {data_dir}", "data_dir"):
        yield


@contextmanager
def hold_database(path: Path) -> Iterator[None]:
    """The same for a database file, by a file beside it: its server may have another data directory. A link to the
    database and the database are one."""
    beside = Path(f"{os.path.realpath(path)}{DATABASE_SUFFIX}")
    with _locked(beside, f"the database {path}", "[database] url"):
        yield


@contextmanager
def _locked(path: Path, what: str, setting: str) -> Iterator[None]:
    try:
        file_permissions.make_folder(path.parent)
        handle = _opened(path)
    except OSError as error:
        raise StartupError(f"{what} cannot be used: {error.strerror}") from error
    try:
        _take(handle, what, setting)
        yield
    finally:
        os.close(handle)


def _opened(path: Path) -> int:
    """The file, made when absent: by root for the folder's owner, whose server is to take the lock another time. Nobody
    else may open it: who can read a file can lock it."""
    file_permissions.make_file(path)
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    with suppress(PermissionError):  # it is another's, who let us in
        os.fchmod(handle, file_permissions.FILE)
    return handle


def is_held(data_dir: Path) -> bool:
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
        raise StartupError(_startup_error(handle, what, setting)) from error
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)


def _startup_error(handle: int, what: str, setting: str) -> str:
    """Who holds the lock: a server, whose lock is one for writing, or somebody who could read the file."""
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
    """The process that holds a lock for reading on the file, as far as we may look; "" when none is seen (proc(5))."""
    for facts in Path("/proc").glob("[0-9]*/fdinfo/*"):
        with suppress(OSError):
            locks = [line.split() for line in facts.read_text().splitlines() if line.startswith("lock:")]
            if any("READ" in lock and lock[-3].endswith(f":{inode}") for lock in locks):
                return facts.parts[2]
    return ""
