"""File permissions: only the server's user has access to the data directory and its files.

New files get their mode when they are created (`UMASK`, and explicit modes). `make_private` corrects the files of older
installations, and folders whose mode was changed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

UMASK: Final = 0o077
"""The umask of all processes of this program."""
FOLDER: Final = 0o700
FILE: Final = 0o600
OTHERS_BITS: Final = 0o077
FOLDERS: Final = ("recordings", "knowledge", "sounds", "speech", "dialogs", "call-journal", "tls", "upgrade-backups")
"""Folders of the data directory, without the models, which are no secrets and which servers may share."""
RESTORE_FOLDERS: Final = ("replaced-*", "restoring-*")
FILES: Final = ("secret.key", ".secret-*", "server.lock", "restore.journal*", "settings-of-backup.toml", "*.partial*")
DATABASE_SUFFIXES: Final = ("", "-wal", "-shm", "-journal", "-server", "-start")

_log = structlog.get_logger()


@dataclass
class PermissionChanges:
    """The result of `make_private`: the number of files and folders whose mode was changed, and those whose mode could
    not be changed."""

    changed: int = 0
    refused: list[Path] = field(default_factory=list)


def make_folder(path: Path) -> None:
    """Create a private folder and its parents; an existing one is not changed. Raises `OSError`."""
    path.mkdir(mode=FOLDER, parents=True, exist_ok=True)


def make_private(data_dir: Path, database: Path | None, secret_key: Path) -> PermissionChanges:
    """Remove the permissions of others from the data directory and its files, from a database file, and from a key in
    the data directory. A folder's content is visited only when others had access to the folder. Logs one line for
    changes, and one for failures. Blocks."""
    changes = PermissionChanges()
    was_open = _restrict(data_dir, changes, top=True)
    for name in FOLDERS:
        _restrict_tree(data_dir / name, changes, anyway=was_open)
    for pattern in RESTORE_FOLDERS:
        for folder in data_dir.glob(pattern):
            _restrict_tree(folder, changes, anyway=was_open)
    for path in _files(data_dir, database, secret_key):
        _restrict(path, changes)
    if changes.changed:
        _log.info("data.made_private", data_dir=str(data_dir), changed=changes.changed)
    if changes.refused:
        _log.warning(
            "data.not_private", path=str(changes.refused[0]), others=len(changes.refused) - 1,
            remedy=f"as its owner: chmod -R go= {changes.refused[0]}",
        )  # fmt: skip
    return changes


def _files(data_dir: Path, database: Path | None, secret_key: Path) -> Iterator[Path]:
    for pattern in FILES:
        yield from data_dir.glob(pattern)
    for end in DATABASE_SUFFIXES if database is not None else ():
        yield Path(f"{database}{end}")
    if secret_key.parent == data_dir:  # elsewhere it may be a mounted secret; `config.secrets` logs a warning
        yield secret_key


def _restrict_tree(folder: Path, changes: PermissionChanges, *, anyway: bool) -> None:
    """Restrict a folder and, when others had access to it, its content. A link at its own path is followed, because the
    operator has created it; links inside are not."""
    if not folder.is_dir():
        return
    if not (_restrict(Path(os.path.realpath(folder)), changes) or anyway):
        return
    for where, folders, files in os.walk(os.path.realpath(folder)):
        for name in (*folders, *files):
            _restrict(Path(where, name), changes)


def _restrict(path: Path, changes: PermissionChanges, *, top: bool = False) -> bool:
    """Returns True if others had permissions. Links and files with several names (hard links) are not changed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if top else os.O_NOFOLLOW))
    except OSError:  # absent, a link, or a socket
        return False
    try:
        status = os.fstat(handle)
        mode = stat.S_IMODE(status.st_mode)
        is_folder = stat.S_ISDIR(status.st_mode)
        if not mode & OTHERS_BITS or not (is_folder or (stat.S_ISREG(status.st_mode) and status.st_nlink == 1)):
            return False
        if is_folder and _is_shared_folder(path, mode):
            changes.refused.append(path)
        else:
            _change(handle, path, mode & ~OTHERS_BITS, changes)
        return True
    finally:
        os.close(handle)


def _change(handle: int, path: Path, mode: int, changes: PermissionChanges) -> None:
    try:
        os.fchmod(handle, mode)
        changes.changed += 1
    except OSError:
        changes.refused.append(path)


def _is_shared_folder(path: Path, mode: int) -> bool:
    """True for a sticky folder such as /tmp, and for the root of the file system: restricting them would break the
    machine."""
    return bool(mode & stat.S_ISVTX) or path.resolve() == Path("/")


def chown_to_folder_owner(handle: int, folder: Path) -> None:
    """Give a file that root has created in a user's folder to the folder's owner, whose server uses it later."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.fchown(handle, owner.st_uid, owner.st_gid)


def make_file(path: Path) -> None:
    """Create an empty private file when it is absent, so that it has its mode before it is opened. Raises `OSError`."""
    with suppress(FileExistsError):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE)
        try:
            chown_to_folder_owner(handle, path.parent)
        finally:
            os.close(handle)
