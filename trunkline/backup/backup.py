"""`trunkline backup`: writes one archive with a snapshot of the database, the files that its rows reference, the secret
key and the settings file. Works while a server runs, without its help. The archive's database is a file of SQLite, also
when the installation's is of PostgreSQL.

The snapshot is taken first and the files are read after it: no row is older than its file, so every referenced file
exists unless it was deleted since. Files without a row are left out.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Final, cast

import sqlalchemy as sa

from config import secrets
from config.clock import iso, utc_now
from config.errors import StartupError
from config.settings import Settings
from media.recording import WAV_HEADER_BYTES
from storage import database_snapshot
from storage.database import migrations, secret_key
from storage.database.database import Database
from storage.database.sqlite import database_copy
from storage.row_copy import snapshot_file
from trunkline.backup.archive import CHUNK_BYTES, DATABASE, KEY, SETTINGS, ArchiveWriter, BackupManifest
from trunkline.backup.restore_journal import JOURNAL, fsync_folder

STDOUT: Final = "-"
PARTIAL: Final = ".partial"
_GZIP_SUFFIXES: Final = (".gz", ".tgz")
SYNC_BYTES: Final = 8 * 1024 * 1024
"""A growing file is synced to the disk each time that it has grown by this."""
_GZIP_LEVEL: Final = 1
"""Recordings hardly get smaller with a higher one."""


@dataclass(frozen=True)
class BackupSummary:
    """A written backup. `size` in bytes; None if written to standard output. `in_store`: the number of recordings that
    are in the store of the settings, and not in the backup."""

    manifest: BackupManifest
    size: int | None
    in_store: int


OnProgress = Callable[[int, int], None]
"""Called with the bytes that are done, and their total when the work began."""


def back_up(
    settings: Settings,
    target: str,
    *,
    settings_file: Path | None = None,
    with_key: bool = True,
    on_progress: OnProgress | None = None,
) -> BackupSummary:
    """Write the archive to a file, which gets its name when it is complete and synced, or to standard output (`-`).
    Names that end in .gz or .tgz are compressed. Blocks. Raises `StartupError`, and then leaves no file behind."""
    database = Database(settings.database_url)
    if (settings.data_dir / JOURNAL).exists():
        raise StartupError("a restore was interrupted here: start the server, or restore again, before a backup")
    if database.is_sqlite and not database.path.exists():
        raise StartupError(f"there is no database {database.path}: nothing to back up")
    path = settings.data_dir / "backup" if target == STDOUT else Path(target)
    if path.is_dir():  # checked before the database is copied; a folder such as `.` has no name for the copy
        raise StartupError(f"{target or '.'} is no plain file: name a file for the backup")
    try:
        with ExitStack() as stack:
            copy = path.with_name(f"{path.name}{PARTIAL}.db")
            copy_sync = stack.enter_context(_scratch_file(copy))
            at = utc_now()
            if database.is_sqlite:
                database_copy.create(database.path, copy, copy_sync.sync_if_due)
            else:
                snapshot_file.create(database.url, copy, copy_sync.sync_if_due)
            conn = stack.enter_context(database_snapshot.open_snapshot(copy))
            manifest = BackupManifest(version("trunkline"), _revision(conn), iso(at))
            key = _read_key(settings.secret_key_path, conn) if with_key else None
            out = _standard_output() if target == STDOUT else stack.enter_context(_atomic_file(path))
            after_chunk = (lambda: None) if target == STDOUT else _IncrementalSync(out.fileno()).sync_if_due
            with _compressed(out, target) as stream:
                writer = ArchiveWriter(stream, manifest, at.timestamp(), after_chunk)
                if on_progress is not None:
                    total = _total_bytes(conn, copy, settings.data_dir)
                    writer.on_added = lambda added_bytes: on_progress(added_bytes, max(added_bytes, total))
                in_store = _write_archive(writer, conn, copy, settings, key, settings_file)
            return BackupSummary(manifest, None if target == STDOUT else out.tell(), in_store)
    except OSError as error:
        raise StartupError(f"the backup {target} cannot be written: {error.strerror or error}") from error


def _revision(conn: sa.Connection) -> str:
    """The revision of the database's schema. Raises `StartupError` if it is unknown."""
    revision = database_snapshot.revision(conn)
    if revision is None:
        raise StartupError("the database is not one of Trunkline's")
    if not migrations.is_known_revision(revision):
        raise StartupError(f"the database was written by a newer version of Trunkline (revision {revision})")
    return revision


def _read_key(path: Path, conn: sa.Connection) -> bytes:
    """The key file's content. Raises `StartupError` if it does not decrypt the stored secrets, because that would be
    noticed only when the backup is needed."""
    if not path.exists():
        raise StartupError(f"there is no secret_key_file {path}: --without-key makes a backup without it")
    if not secret_key.matches_proof(conn, secrets.load_or_create(path)):
        raise StartupError(
            f"secret_key_file {path} is not the one that the stored secrets were encrypted with: put the old file "
            "back, or leave it out with --without-key"
        )
    return path.read_bytes()


def _write_archive(
    writer: ArchiveWriter,
    conn: sa.Connection,
    copy: Path,
    settings: Settings,
    key: bytes | None,
    settings_file: Path | None,
) -> int:
    """Returns the number of recordings that are in their store. The key is the first file, so that a restore that
    another key prevents fails before it reads the long files."""
    in_store = 0
    if key is not None:
        writer.add(KEY, len(key), iter([key]))
    if settings_file is not None:
        _add_file(writer, SETTINGS, settings_file)
    _add_file(writer, DATABASE, copy)
    for referenced in database_snapshot.referenced_files(conn):
        path = settings.data_dir / referenced.name
        if _add_file(writer, referenced.name, path, grows=not referenced.certain) or not referenced.certain:
            continue
        if settings.recordings.url is not None and referenced.name.startswith("recordings/"):
            in_store += 1
        else:
            writer.manifest.missing.append(referenced.name)
    writer.close()
    return in_store


def _total_bytes(conn: sa.Connection, copy: Path, data_dir: Path) -> int:
    """The size of all files of a backup."""
    total = copy.stat().st_size
    for referenced in database_snapshot.referenced_files(conn):
        with suppress(OSError):
            total += (data_dir / referenced.name).stat().st_size
    return total


def _add_file(writer: ArchiveWriter, name: str, path: Path, *, grows: bool = False) -> bool:
    """Add a file as it is now; returns False if it does not exist. `grows`: it is the recording of a live call."""
    try:
        file = path.open("rb", buffering=0)
    except FileNotFoundError:
        return False
    with file:
        start = file.read(WAV_HEADER_BYTES)
        size = os.fstat(file.fileno()).st_size
        if grows:
            size = _complete_bytes(start, size)
        writer.add(name, size, _chunks(start[:size], file, size))
    return True


def _complete_bytes(wav_header: bytes, size: int) -> int:
    """The length of a growing recording without a partial append: that of its WAV header, which is rewritten after each
    append (`media.recording`)."""
    if len(wav_header) < WAV_HEADER_BYTES:
        return len(wav_header)
    riff_size = int.from_bytes(wav_header[4:8], "little") + 8
    return riff_size if WAV_HEADER_BYTES <= riff_size <= size and riff_size < 0xFFFFFFFF else size


def _chunks(start: bytes, file: io.FileIO, size: int) -> Iterator[bytes]:
    """Yields exactly `size` bytes, `start` and the rest of the file. Raises `OSError` if the file has become
    shorter."""
    yield start
    remaining = size - len(start)
    while remaining:
        chunk = file.read(min(remaining, CHUNK_BYTES))
        if not chunk:
            raise OSError(f"{file.name!s} became shorter while it was read")
        remaining -= len(chunk)
        yield chunk


class _IncrementalSync:
    """Syncs a growing file to the disk in small steps, because one large sync would block the commits of a server on
    the same disk."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._synced_bytes = 0

    def sync_if_due(self) -> None:
        """Sync if the file has grown by `SYNC_BYTES` since the last sync. To be called repeatedly while it grows."""
        size = os.fstat(self._file).st_size
        if size - self._synced_bytes >= SYNC_BYTES:
            os.fdatasync(self._file)
            self._synced_bytes = size


@contextmanager
def _scratch_file(path: Path) -> Iterator[_IncrementalSync]:
    """An empty, locked file that is removed at the end of the block; one that a killed backup has left is
    overwritten."""
    with _locked_file(path) as file:
        try:
            yield _IncrementalSync(file.fileno())
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def _atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name, and replaces an older file of that name, if the block succeeds."""
    if path.exists() and not path.is_file():
        raise StartupError(f"{path} is no plain file: name a file for the backup")
    partial = path.with_name(f"{path.name}{PARTIAL}")
    with _locked_file(partial) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            partial.rename(path)
            fsync_folder(path.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


@contextmanager
def _locked_file(path: Path) -> Iterator[BinaryIO]:
    """The file, empty, open and locked, with mode 0600 from its creation. Raises `StartupError` while another backup
    has it locked."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "r+b") as file:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = os.path.samestat(path.stat(), os.fstat(handle))
        except (BlockingIOError, FileNotFoundError):
            is_locked = False
        if not is_locked:  # or another backup has renamed it since it was opened
            raise StartupError(f"another backup is being written to {path}")
        os.fchmod(handle, 0o600)
        file.truncate()
        yield file


def _standard_output() -> BinaryIO:
    if sys.stdout.isatty():
        raise StartupError("a backup is not text: redirect it to a file or a pipe")
    return sys.stdout.buffer


@contextmanager
def _compressed(out: BinaryIO, target: str) -> Iterator[BinaryIO]:
    if not target.endswith(_GZIP_SUFFIXES):
        yield out
        out.flush()
        return
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=_GZIP_LEVEL, filename="", mtime=0) as stream:
        yield cast(BinaryIO, stream)
