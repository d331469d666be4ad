"""`trunkline backup`: one archive of the database at one moment, the files that its rows speak of, the secret key and
the settings file. Works beside a running server, and does not ask it.

The database comes first, the files follow: a row is never older than its file, so that what the snapshot speaks of is
there unless it was deleted since. Files that no row speaks of are left out.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Final, cast

import sqlalchemy as sa

from config import secrets
from config.clock import iso, utc_now
from config.errors import StartupError
from config.settings import Settings
from media.recording import HEADER_BYTES
from storage import snapshot
from storage.database import key_check, migrate
from storage.database.database import Database
from trunkline.backup.archive import CHUNK_BYTES, DATABASE, KEY, SETTINGS, ArchiveWriter, BackupManifest
from trunkline.backup.atomic_moves import JOURNAL

STDOUT: Final = "-"
PARTIAL: Final = ".partial"
_COMPRESSED: Final = (".gz", ".tgz")
STEP: Final = 8 * 1024 * 1024
"""Bytes that a file grows by until they are taken to the disk."""
_QUICK: Final = 1
"""zlib's level: recordings hardly get smaller with a higher one."""


@dataclass(frozen=True)
class BackupSummary:
    """A backup that was made. `size` in bytes; None on standard output."""

    manifest: BackupManifest
    size: int | None


def back_up(
    settings: Settings, target: str, *, settings_file: Path | None = None, with_key: bool = True
) -> BackupSummary:
    """Write the archive to a file, which appears when it is whole and on the disk, or to standard output (`-`). Names
    that end in .gz or .tgz are compressed. Blocks. `StartupError` when that cannot be; nothing is left of it then."""
    database = Database(settings.database_url).path
    if (settings.data_dir / JOURNAL).exists():
        raise StartupError("a restore was cut off here: start the server, or restore again, before a backup")
    if not database.exists():
        raise StartupError(f"there is no database {database}: nothing to back up")
    beside = settings.data_dir / "backup" if target == STDOUT else Path(target)
    if beside.is_dir():  # told before the database is copied, and a folder as `.` has no name to put the copy beside
        raise StartupError(f"{target or '.'} is no plain file: name a file for the backup")
    try:
        with ExitStack() as stack:
            copy = beside.with_name(f"{beside.name}{PARTIAL}.db")
            scratch = stack.enter_context(_scratch(copy))
            at = utc_now()
            snapshot.take(database, copy, scratch.keep_pace)
            conn = stack.enter_context(snapshot.opened(copy))
            manifest = BackupManifest(version("trunkline"), _revision(conn), iso(at))
            key = _key(settings.secret_key_path, conn) if with_key else None
            out = _standard_output() if target == STDOUT else stack.enter_context(_appearing(beside))
            pace = (lambda: None) if target == STDOUT else _ThroughputLimit(out.fileno()).keep_pace
            with _compressed(out, target) as stream:
                writer = ArchiveWriter(stream, manifest, at.timestamp(), pace)
                _fill(writer, conn, copy, settings.data_dir, key, settings_file)
            return BackupSummary(manifest, None if target == STDOUT else out.tell())
    except OSError as error:
        raise StartupError(f"the backup {target} cannot be written: {error.strerror or error}") from error


def _revision(conn: sa.Connection) -> str:
    found = snapshot.revision(conn)
    if found is None:
        raise StartupError("the database is not one of Trunkline's")
    if not migrate.is_known_revision(found):
        raise StartupError(f"the database was written by a newer version of Trunkline (revision {found})")
    return found


def _key(path: Path, conn: sa.Connection) -> bytes:
    """The key file's content. `StartupError` when stored secrets cannot be read with it: the backup would be worth
    little, and nobody would notice before it is needed."""
    if not path.exists():
        raise StartupError(f"there is no secret_key_file {path}: --without-key makes a backup without it")
    if not key_check.fits(conn, secrets.load_or_create(path)):
        raise StartupError(
            f"secret_key_file {path} is not the one that the stored secrets were encrypted with: put the old file "
            "back, or leave it out with --without-key"
        )
    return path.read_bytes()


def _fill(
    writer: ArchiveWriter, conn: sa.Connection, copy: Path, data_dir: Path, key: bytes | None, settings: Path | None
) -> None:
    """The key comes first: a restore that it stands in the way of is refused before the long files are read."""
    if key is not None:
        writer.add(KEY, len(key), iter([key]))
    if settings is not None:
        _add_file(writer, SETTINGS, settings)
    _add_file(writer, DATABASE, copy)
    for promise in snapshot.referenced_files(conn):
        path = data_dir / promise.name
        if not _add_file(writer, promise.name, path, grows=not promise.certain) and promise.certain:
            writer.manifest.missing.append(promise.name)
    writer.close()


def _add_file(writer: ArchiveWriter, name: str, path: Path, *, grows: bool = False) -> bool:
    """As it is at this moment; False when there is none. `grows`: it is the recording of a live call."""
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        return False
    with file:
        begin = file.read(HEADER_BYTES)
        size = os.fstat(file.fileno()).st_size
        if grows:
            size = _settled(begin, size)
        writer.add(name, size, _pieces(begin[:size], file, size))
    return True


def _settled(begin: bytes, size: int) -> int:
    """How many bytes of a recording that goes on count: those that its header tells of, which is written after them;
    what follows may be half an append (`media.recording`)."""
    if len(begin) < HEADER_BYTES:
        return len(begin)
    riff_size = int.from_bytes(begin[4:8], "little") + 8
    return riff_size if HEADER_BYTES <= riff_size <= size and riff_size < 0xFFFFFFFF else size


def _pieces(begin: bytes, file: io.FileIO, size: int) -> Iterator[bytes]:
    """Exactly `size` bytes; `OSError` when the file has become shorter."""
    yield begin
    left = size - len(begin)
    while left:
        piece = file.read(min(left, CHUNK_BYTES))
        if not piece:
            raise OSError(f"{file.name!s} became shorter while it was read")
        left -= len(piece)
        yield piece


class _ThroughputLimit:
    """Takes a file that grows to the disk in small steps. All of it at once would make the commits of a server on the
    same disk wait behind it, for many times as long."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._there = 0

    def keep_pace(self) -> None:
        """To be called again and again while the file grows."""
        size = os.fstat(self._file).st_size
        if size - self._there >= STEP:
            os.fdatasync(self._file)
            self._there = size


@contextmanager
def _scratch(path: Path) -> Iterator[_ThroughputLimit]:
    """An empty file of ours alone, gone at the end; what a killed backup has left of it is overwritten."""
    with _held(path) as file:
        try:
            yield _ThroughputLimit(file.fileno())
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _appearing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its name, and the place of an older one, when the block ends well."""
    if path.exists() and not path.is_file():
        raise StartupError(f"{path} is no plain file: name a file for the backup")
    partial = path.with_name(f"{path.name}{PARTIAL}")
    with _held(partial) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            partial.rename(path)
            _keep_name(path.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


@contextmanager
def _held(path: Path) -> Iterator[BinaryIO]:
    """The file, empty and open, with mode 0600 from its first moment. `StartupError` while another backup has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "r+b") as file:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            mine = os.path.samestat(path.stat(), os.fstat(handle))
        except (BlockingIOError, FileNotFoundError):
            mine = False
        if not mine:  # or it had just been finished when it was opened
            raise StartupError(f"another backup is being written to {path}")
        os.fchmod(handle, 0o600)
        file.truncate()
        yield file


def _keep_name(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _standard_output() -> BinaryIO:
    if sys.stdout.isatty():
        raise StartupError("a backup is no text: send it to a file or through a pipe")
    return sys.stdout.buffer


@contextmanager
def _compressed(out: BinaryIO, target: str) -> Iterator[BinaryIO]:
    if not target.endswith(_COMPRESSED):
        yield out
        out.flush()
        return
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=_QUICK, filename="", mtime=0) as stream:
        yield cast(BinaryIO, stream)
