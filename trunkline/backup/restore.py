"""`trunkline restore`: an archive of `trunkline backup` put in place, whole or not at all.

Everything is unpacked beside its place and checked there: each file against the manifest, the database by itself, its
revision, the secret key. Only then it is moved, with what was there kept aside (`trunkline.backup.atomic_moves`).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, cast

from config import secrets
from config.clock import utc_now
from config.errors import StartupError
from config.settings import Settings
from storage import snapshot
from storage.database import key_check, lock, migrate
from storage.database.database import Database
from storage.snapshot import UnfinishedWork
from trunkline.backup.archive import DATABASE, KEY, SETTINGS, ArchiveReader, BackupManifest, BadArchive, Entry
from trunkline.backup.atomic_moves import JOURNAL, Move, finish, give, move_all
from trunkline.backup.backup import STDOUT

SETTINGS_NAME: Final = "settings-of-backup.toml"
"""Where the settings file of the backup lies afterwards: to be read, not in use."""
SPARE_BYTES: Final = 64 * 1024 * 1024
"""Bytes that a restore leaves free on the disk."""
_BESIDE_DATABASE: Final = ("-wal", "-shm", "-journal")
_READY: Final = re.compile(r"restoring-[0-9]{8}T[0-9]{6}\.[0-9]{6}Z")
_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True)
class Restored:
    """What was put in place. `kept`: where the files that were there lie now; `key_missing`: where the key must be put
    before a start; `unfinished`: what a start goes on with; `settings`: where the backup's settings file lies."""

    manifest: BackupManifest
    unfinished: UnfinishedWork
    kept: list[Path]
    key_missing: Path | None
    settings: Path | None


class _RestorePaths:
    """Where each file of an archive belongs on this machine, is made ready, and is kept when another takes its place:
    all of it on one file system."""

    def __init__(self, settings: Settings) -> None:
        self._stamp = f"{utc_now():%Y%m%dT%H%M%S.%fZ}"
        self.data_dir = settings.data_dir
        self.database = _real(Database(settings.database_url).path)
        self.key = _real(settings.secret_key_path)
        named = {DATABASE: self.database, KEY: self.key, SETTINGS: _real(self.data_dir / SETTINGS_NAME)}
        self.roots = {**named, **{name: _real(self.data_dir / name) for name in snapshot.FOLDERS}}
        """By the first part of a name in the archive."""

    def ready(self, name: str) -> Path:
        """Where a file of the archive is unpacked."""
        first, _, rest = name.partition("/")
        root = self.roots[first]
        beside = root.parent / f"restoring-{self._stamp}" / root.name
        return beside / rest if rest else beside

    def aside(self, path: Path) -> Path:
        """Where something is kept that was there."""
        return path.parent / f"replaced-{self._stamp}" / path.name

    def there(self, *, with_key: bool) -> list[Path]:
        """What has to go aside."""
        roots = [root for name, root in self.roots.items() if name != KEY or with_key]
        beside = [Path(f"{self.database}{end}") for end in _BESIDE_DATABASE]
        return [path for path in (*roots, *beside) if os.path.lexists(path)]

    def in_the_way(self) -> Path | None:
        """What only --replace may move."""
        stored = (self.database, *(self.roots[name] for name in snapshot.FOLDERS))
        return next((path for path in stored if os.path.lexists(path) and not _is_empty(path)), None)

    def clear(self) -> None:
        """Remove what is ready and will not be moved, also what a restore that was killed has left."""
        if (self.data_dir / JOURNAL).exists():
            return
        for folder in {root.parent for root in self.roots.values() if root.parent.is_dir()}:
            for path in folder.iterdir():
                if _READY.fullmatch(path.name):
                    shutil.rmtree(path)


def restore(settings: Settings, archive: str, *, replace: bool = False) -> Restored:
    """Put an archive (`-`: from standard input) in place. Blocks. `StartupError` with nothing changed when a server
    runs there, when something is there already and not `replace`, or when the archive is not what `back_up` writes, or
    of a newer version."""
    with ExitStack() as stack:
        source = stack.enter_context(_opened(archive))
        try:
            _hold(settings, stack)
            finish(settings.data_dir)
            places = _RestorePaths(settings)
            if not replace and (found := places.in_the_way()) is not None:
                raise StartupError(f"{found} is there already: --replace keeps it aside, another data_dir leaves it be")
            _check_file_systems(places)
            places.clear()
            stack.callback(places.clear)
            return _restore(ArchiveReader(source), places, replace=replace)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise StartupError(f"the backup cannot be restored: {error.strerror or error}{where}") from error


def _hold(settings: Settings, stack: ExitStack) -> None:
    """No server may start meanwhile."""
    path = Database(settings.database_url).path
    try:
        stack.enter_context(lock.hold(settings.data_dir))
        stack.enter_context(lock.hold_database(path))
    except StartupError as error:
        raise StartupError(f"{error}; a restore needs it stopped: then `trunkline restore FILE --replace`") from error


def _restore(reader: ArchiveReader, places: _RestorePaths, *, replace: bool) -> Restored:
    unpacked: dict[str, Entry] = {}
    owner = places.data_dir.stat()
    for name, size in reader.files():
        ready = places.ready(name)
        unpacked[name] = _unpack(reader, ready, size, owner)
        if name == KEY and not replace and _differs(ready, places.key):
            raise StartupError(f"{places.key} is another key than the backup's: --replace keeps it aside")
    manifest = reader.manifest()
    _compare(manifest, unpacked)
    unfinished, key_missing = _check_contents(manifest, places, with_key=KEY in unpacked)
    going = places.there(with_key=KEY in unpacked)
    aside: list[Move] = [(path, places.aside(path)) for path in going if not _is_empty(path)]
    for path in going:
        if _is_empty(path):
            path.rmdir()
    first = {name.partition("/")[0] for name in unpacked}
    move_all(places.data_dir, aside, [(places.ready(name), places.roots[name]) for name in first])
    kept = sorted({new.parent for _, new in aside})
    return Restored(manifest, unfinished, kept, key_missing, places.roots[SETTINGS] if SETTINGS in unpacked else None)


def _unpack(reader: ArchiveReader, path: Path, size: int, owner: os.stat_result) -> Entry:
    """Write the file that the reader is at, for the data directory's owner alone."""
    _make_folders(path.parent, owner)
    if shutil.disk_usage(path.parent).free < size + SPARE_BYTES:
        raise StartupError(f"the disk of {path.parent.parent} is too small for the backup")
    digest = hashlib.sha256()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError as error:
        raise BadArchive(f"it holds {path.name} twice") from error
    with os.fdopen(handle, "wb") as file:
        give(handle, owner)
        for piece in reader.pieces():
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(handle)
    return Entry(size, digest.hexdigest())


def _make_folders(folder: Path, owner: os.stat_result) -> None:
    for each in (*reversed(folder.parents), folder):
        if not each.exists():
            each.mkdir(mode=0o700)
            give(each, owner)


def _compare(manifest: BackupManifest, unpacked: dict[str, Entry]) -> None:
    """Each file is in both, and the same. Raises `BadArchive`."""
    wrong = next((name for name, entry in manifest.files.items() if unpacked.get(name) != entry), None)
    unknown = next((name for name in unpacked if name not in manifest.files), None)
    if wrong is not None or unknown is not None:
        raise BadArchive(f"{wrong or unknown} is not what was backed up: the archive is damaged")
    if DATABASE not in unpacked:
        raise BadArchive("it holds no database")


def _check_contents(
    manifest: BackupManifest, places: _RestorePaths, *, with_key: bool
) -> tuple[UnfinishedWork, Path | None]:
    """The database is whole, not newer than we are, and the key is its own. What waits in it, and where its key must
    be put, when there is none."""
    with snapshot.opened(places.ready(DATABASE)) as conn:
        if (problem := snapshot.integrity_problem(conn)) is not None:
            raise BadArchive(f"its database is damaged: {problem}")
        revision = snapshot.revision(conn)
        if revision is None or not migrate.is_known_revision(revision):
            raise StartupError(
                f"the backup was made by a newer version of Trunkline ({manifest.version}, tables {revision}): "
                "restore it with that one"
            )
        key = places.ready(KEY) if with_key else places.key
        if not key.exists():
            return snapshot.unfinished(conn), places.key
        if not key_check.fits(conn, secrets.load_or_create(key)):
            raise StartupError(f"{places.key} is not the key of this backup, which has none: put the right one there")
        return snapshot.unfinished(conn), None


def _check_file_systems(places: _RestorePaths) -> None:
    """A folder that is a file system of its own cannot be moved aside."""
    for path in places.roots.values():
        if path.is_dir() and path.is_mount():
            raise StartupError(f"{path} is a file system of its own: restore into a folder on it (--data-dir)")


@contextmanager
def _opened(archive: str) -> Iterator[BinaryIO]:
    """The bytes of the tar file."""
    try:
        file = io.BufferedReader(io.FileIO(sys.stdin.fileno() if archive == STDOUT else archive))
    except OSError as error:
        raise StartupError(f"the backup {archive} cannot be read: {error.strerror}") from error
    with file:
        if file.peek(len(_GZIP))[: len(_GZIP)] != _GZIP:
            yield file
            return
        with gzip.GzipFile(fileobj=file, mode="rb") as stream:
            yield cast(BinaryIO, stream)


def _differs(ready: Path, there: Path) -> bool:
    return there.exists() and there.read_bytes() != ready.read_bytes()


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _real(path: Path) -> Path:
    """Where it really lies: a link to a folder elsewhere stays."""
    return Path(os.path.realpath(path))
