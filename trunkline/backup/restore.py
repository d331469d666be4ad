"""`trunkline restore`: puts an archive of `trunkline backup` in place, completely or not at all.

All files are unpacked into folders beside their destinations and checked there: each file against the manifest, the
database's integrity and revision, and the secret key. Then existing files are moved aside and the unpacked ones in
place (`trunkline.backup.restore_journal`).

Where the database is of PostgreSQL, its rows are replaced by those of the archive's file, in one transaction, before
the other files are moved. The previous rows are not kept.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import sqlalchemy as sa

from config import secrets
from config.clock import utc_now
from config.errors import StartupError
from config.settings import Settings
from storage import database_snapshot
from storage.database import migrations, secret_key, server_lock
from storage.database.database import Database
from storage.database.database_url import SQLITE
from storage.database.sqlite.migrate import migrate
from storage.database_snapshot import UnfinishedWork
from storage.row_copy import opening
from storage.row_copy.row_copy import is_empty, replace_rows
from storage.row_copy.side import Side
from trunkline.backup.archive import (
    DATABASE,
    KEY,
    SETTINGS,
    ArchiveEntry,
    ArchiveReader,
    BackupManifest,
    InvalidArchive,
)
from trunkline.backup.backup import STDOUT
from trunkline.backup.restore_journal import JOURNAL, Move, chown_if_root, move_all, resume

SETTINGS_NAME: Final = "settings-of-backup.toml"
"""The name of the backup's settings file after a restore: for reference, no server reads it."""
RESERVE_BYTES: Final = 64 * 1024 * 1024
"""Bytes that a restore leaves free on the disk."""
_DATABASE_SUFFIXES: Final = ("-wal", "-shm", "-journal")
"""Of the files that SQLite keeps beside a database."""
_UNPACK_FOLDER: Final = re.compile(r"restoring-[0-9]{8}T[0-9]{6}\.[0-9]{6}Z")
_GZIP_MAGIC: Final = b"\x1f\x8b"


OnProgress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class RestoreSummary:
    """A finished restore. `replaced`: the folders with the files that were there before; `key_missing`: where the key
    must be put before a start; `unfinished`: the work that a start resumes; `settings`: the backup's settings file;
    `server`: the database of PostgreSQL that has the backup's rows, None where the database is a file."""

    manifest: BackupManifest
    unfinished: UnfinishedWork
    replaced: list[Path]
    key_missing: Path | None
    settings: Path | None
    server: str | None


class _RestorePaths:
    """The paths of a restore: each file's destination, where it is unpacked, and where an existing file is moved aside
    to. The three are on one file system."""

    def __init__(self, settings: Settings) -> None:
        self._timestamp = f"{utc_now():%Y%m%dT%H%M%S.%fZ}"
        self.data_dir = settings.data_dir
        database = Database(settings.database_url)
        self.server = None if database.is_sqlite else database
        """The database of PostgreSQL, if it is one; the archive's file is only unpacked then."""
        self.database = _real_path(database.path if database.is_sqlite else self.data_dir / DATABASE)
        self.key = _real_path(settings.secret_key_path)
        files = {DATABASE: self.database, KEY: self.key, SETTINGS: _real_path(self.data_dir / SETTINGS_NAME)}
        self.destinations = {**files, **{name: _real_path(self.data_dir / name) for name in database_snapshot.FOLDERS}}
        """By the first part of a name in the archive."""

    def placed(self) -> dict[str, Path]:
        """The destinations of what is moved in place."""
        return {name: path for name, path in self.destinations.items() if name != DATABASE or self.server is None}

    def unpacked(self, name: str) -> Path:
        """Where a file of the archive is unpacked."""
        first, _, rest = name.partition("/")
        destination = self.destinations[first]
        unpacked = destination.parent / f"restoring-{self._timestamp}" / destination.name
        return unpacked / rest if rest else unpacked

    def aside(self, path: Path) -> Path:
        """Where an existing file or folder is moved aside to."""
        return path.parent / f"replaced-{self._timestamp}" / path.name

    def existing(self, *, with_key: bool) -> list[Path]:
        """The existing files and folders that have to be moved aside."""
        destinations = [path for name, path in self.placed().items() if name != KEY or with_key]
        beside_database = [Path(f"{self.database}{suffix}") for suffix in _DATABASE_SUFFIXES if self.server is None]
        return [path for path in (*destinations, *beside_database) if os.path.lexists(path)]

    def existing_data(self) -> Path | None:
        """A file or folder with stored data, which only --replace moves aside; None if there is none."""
        data = [self.placed().get(name) for name in (DATABASE, *database_snapshot.FOLDERS)]
        return next((path for path in data if path and os.path.lexists(path) and not _is_empty(path)), None)

    def remove_unpacked(self) -> None:
        """Remove unpacked files that no journal will move, also those of a restore that was killed."""
        if (self.data_dir / JOURNAL).exists():
            return
        for folder in {path.parent for path in self.destinations.values() if path.parent.is_dir()}:
            for path in folder.iterdir():
                if _UNPACK_FOLDER.fullmatch(path.name):
                    shutil.rmtree(path)


def restore(
    settings: Settings, archive: str, *, replace: bool = False, on_progress: OnProgress | None = None
) -> RestoreSummary:
    """Put an archive (`-`: from standard input) in place. Blocks. `on_progress` gets the bytes of the archive that were
    read and its size, None for a pipe. Raises `StartupError` and changes nothing if a server
    runs on the data directory, if there is data and not `replace`, or if the archive is invalid or of a newer
    version."""
    with ExitStack() as stack:
        source = stack.enter_context(_open_archive(archive, on_progress))
        try:
            _lock(settings, stack)
            resume(settings.data_dir)
            paths = _RestorePaths(settings)
            if not replace and (existing := paths.existing_data()) is not None:
                raise StartupError(
                    f"{existing} exists already: --replace moves it aside, another data_dir leaves it as it is"
                )
            _check_file_systems(paths)
            paths.remove_unpacked()
            stack.callback(paths.remove_unpacked)
            target = None if paths.server is None else stack.enter_context(opening.open_target(paths.server.url))
            if target is not None and not replace and not is_empty(target):
                raise StartupError(f"the database {target.name} has rows: --replace deletes them")
            return _restore(ArchiveReader(source), paths, target, replace=replace)
        except OSError as error:
            file = f" ({error.filename})" if error.filename else ""
            raise StartupError(f"the backup cannot be restored: {error.strerror or error}{file}") from error


def _lock(settings: Settings, stack: ExitStack) -> None:
    """Lock the data directory and the database, so that no server starts meanwhile; on a server, make sure that no node
    runs."""
    database = Database(settings.database_url)
    try:
        stack.enter_context(server_lock.lock_data_dir(settings.data_dir))
        if database.is_sqlite:
            stack.enter_context(server_lock.lock_database(database.path))
        else:
            opening.require_no_node(database.url)
    except StartupError as error:
        raise StartupError(f"{error}; a restore needs it stopped: then `trunkline restore FILE --replace`") from error


def _restore(reader: ArchiveReader, paths: _RestorePaths, target: Side | None, *, replace: bool) -> RestoreSummary:
    entries: dict[str, ArchiveEntry] = {}
    owner = paths.data_dir.stat()
    for name, size in reader.files():
        unpacked = paths.unpacked(name)
        entries[name] = _unpack(reader, unpacked, size, owner)
        if name == KEY and not replace and _differs(unpacked, paths.key):
            raise StartupError(f"{paths.key} is another key than the backup's: --replace moves it aside")
    manifest = reader.manifest()
    _check_entries(manifest, entries)
    unfinished, key_missing = _check_contents(manifest, paths, with_key=KEY in entries)
    existing = paths.existing(with_key=KEY in entries)
    aside: list[Move] = [(path, paths.aside(path)) for path in existing if not _is_empty(path)]
    for path in existing:
        if _is_empty(path):
            path.rmdir()
    restored = {name.partition("/")[0] for name in entries}
    placed = [(paths.unpacked(name), path) for name, path in paths.placed().items() if name in restored]
    if target is not None:
        _replace_rows(paths.unpacked(DATABASE), target)
    move_all(paths.data_dir, aside, placed)
    replaced = sorted({new.parent for _, new in aside})
    settings = paths.destinations[SETTINGS] if SETTINGS in entries else None
    server = None if target is None else target.name
    return RestoreSummary(manifest, unfinished, replaced, key_missing, settings, server)


def _replace_rows(file: Path, target: Side) -> None:
    """Replace the rows of a database of PostgreSQL by those of the unpacked file, which is migrated before."""
    migrate(file)
    with opening.open_source(sa.URL.create(SQLITE, database=str(file)), hold=False) as source:
        replace_rows(source, target)


def _unpack(reader: ArchiveReader, path: Path, size: int, owner: os.stat_result) -> ArchiveEntry:
    """Write the reader's current file, readable by the data directory's owner only."""
    _make_folders(path.parent, owner)
    if shutil.disk_usage(path.parent).free < size + RESERVE_BYTES:
        raise StartupError(f"the disk of {path.parent.parent} is too small for the backup")
    digest = hashlib.sha256()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise InvalidArchive(f"it holds {path.name} twice") from error
    with os.fdopen(handle, "wb") as file:
        chown_if_root(handle, owner)
        for chunk in reader.chunks():
            digest.update(chunk)
            file.write(chunk)
        file.flush()
        os.fsync(handle)
    return ArchiveEntry(size, digest.hexdigest())


def _make_folders(folder: Path, owner: os.stat_result) -> None:
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=0o700)
            chown_if_root(each, owner)


def _check_entries(manifest: BackupManifest, entries: dict[str, ArchiveEntry]) -> None:
    """Check that the unpacked files are those of the manifest. Raises `InvalidArchive`."""
    wrong = next((name for name, entry in manifest.files.items() if entries.get(name) != entry), None)
    unknown = next((name for name in entries if name not in manifest.files), None)
    if wrong is not None or unknown is not None:
        raise InvalidArchive(f"{wrong or unknown} is not what was backed up: the archive is damaged")
    if DATABASE not in entries:
        raise InvalidArchive("it holds no database")


def _check_contents(
    manifest: BackupManifest, paths: _RestorePaths, *, with_key: bool
) -> tuple[UnfinishedWork, Path | None]:
    """Check that the database is undamaged and of no newer version, and that the key is its own. Returns the work that
    a start resumes, and where the key must be put if there is none."""
    with database_snapshot.open_snapshot(paths.unpacked(DATABASE)) as conn:
        if (problem := database_snapshot.integrity_problem(conn)) is not None:
            raise InvalidArchive(f"its database is damaged: {problem}")
        revision = database_snapshot.revision(conn)
        if revision is None or not migrations.is_known_revision(revision):
            raise StartupError(
                f"the backup was made by a newer version of Trunkline ({manifest.version}, tables {revision}): "
                "restore it with that one"
            )
        key = paths.unpacked(KEY) if with_key else paths.key
        if not key.exists():
            return database_snapshot.unfinished_work(conn), paths.key
        if not secret_key.matches_proof(conn, secrets.load_or_create(key)):
            raise StartupError(f"{paths.key} is not the key of this backup, which has none: put the right one there")
        return database_snapshot.unfinished_work(conn), None


def _check_file_systems(paths: _RestorePaths) -> None:
    """Raises `StartupError` if a destination is a mount point, which cannot be moved aside."""
    for path in paths.destinations.values():
        if path.is_dir() and path.is_mount():
            raise StartupError(f"{path} is a mount point: restore into a folder on it (--data-dir)")


class _ReportingFile(io.FileIO):
    """A file that reports how much of it was read."""

    def __init__(self, file: str | int, on_progress: OnProgress | None) -> None:
        super().__init__(file)
        self._on_progress = on_progress
        facts = os.fstat(self.fileno())
        self._size = facts.st_size if stat.S_ISREG(facts.st_mode) else None
        self._read_bytes = 0

    def readinto(self, buffer: Any, /) -> int:
        count = super().readinto(buffer) or 0
        self._read_bytes += count
        if self._on_progress is not None:
            self._on_progress(self._read_bytes, self._size)
        return count


@contextmanager
def _open_archive(archive: str, on_progress: OnProgress | None) -> Iterator[BinaryIO]:
    """The tar file, decompressed if it is compressed."""
    try:
        file = io.BufferedReader(_ReportingFile(sys.stdin.fileno() if archive == STDOUT else archive, on_progress))
    except OSError as error:
        raise StartupError(f"the backup {archive} cannot be read: {error.strerror}") from error
    with file:
        if file.peek(len(_GZIP_MAGIC))[: len(_GZIP_MAGIC)] != _GZIP_MAGIC:
            yield file
            return
        with gzip.GzipFile(fileobj=file, mode="rb") as stream:
            yield cast(BinaryIO, stream)


def _differs(unpacked: Path, existing: Path) -> bool:
    return existing.exists() and existing.read_bytes() != unpacked.read_bytes()


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _real_path(path: Path) -> Path:
    """The path with links resolved, so that a link to a folder on another disk stays."""
    return Path(os.path.realpath(path))
