"""The rights of what is stored: the data directory and all files of ours are for the server's own user alone.

New files get their rights when they are made (`UMASK`, and modes where they are made). `make_private` does the rest:
for installations whose files are older than that, and for folders that somebody has opened since.
"""

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
"""Of every process of ours."""
FOLDER: Final = 0o700
FILE: Final = 0o600
OTHERS: Final = 0o077
FOLDERS: Final = ("recordings", "knowledge", "sounds", "speech")
"""Of the data directory. Not the models: they are no secrets, and servers may share them."""
KEPT_ASIDE: Final = ("replaced-*", "restoring-*")
FILES: Final = ("secret.key", ".secret-*", "server.lock", "restore.journal*", "settings-of-backup.toml", "*.partial*")
BESIDE_DATABASE: Final = ("", "-wal", "-shm", "-journal", "-server", "-start")

_log = structlog.get_logger()


@dataclass
class PermissionChanges:
    """What `make_private` has done: how many files and folders others could read until now, and which still can be."""

    changed: int = 0
    refused: list[Path] = field(default_factory=list)


def make_folder(path: Path) -> None:
    """Make a folder for our own user alone, and those above it; one that is there stays as it is. Raises `OSError`."""
    path.mkdir(mode=FOLDER, parents=True, exist_ok=True)


def make_private(data_dir: Path, database: Path, secret_key: Path) -> PermissionChanges:
    """Take from others what rights they have to the data directory and to the files of ours in it, and to the database
    and the key wherever they lie. Folders are gone through only when others could have got into them until now. Logs a
    line when something was changed, and one when something could not be. Blocks."""
    rights = PermissionChanges()
    was_open = _restrict(data_dir, rights, top=True)
    for name in FOLDERS:
        _restrict_all(data_dir / name, rights, anyway=was_open)
    for pattern in KEPT_ASIDE:
        for folder in data_dir.glob(pattern):
            _restrict_all(folder, rights, anyway=was_open)
    for path in _files(data_dir, database, secret_key):
        _restrict(path, rights)
    if rights.changed:
        _log.info("data.made_private", data_dir=str(data_dir), changed=rights.changed)
    if rights.refused:
        _log.warning(
            "data.not_private", path=str(rights.refused[0]), others=len(rights.refused) - 1,
            remedy=f"as its owner: chmod -R go= {rights.refused[0]}",
        )  # fmt: skip
    return rights


def _files(data_dir: Path, database: Path, secret_key: Path) -> Iterator[Path]:
    for pattern in FILES:
        yield from data_dir.glob(pattern)
    for end in BESIDE_DATABASE:
        yield Path(f"{database}{end}")
    if secret_key.parent == data_dir:  # elsewhere it may be somebody's mounted secret; `config.secrets` warns of it
        yield secret_key


def _restrict_all(folder: Path, rights: PermissionChanges, *, anyway: bool) -> None:
    """A folder and, when others could get into it, what is in it. A link to a folder elsewhere is followed, as the
    operator has made it; links in it are not."""
    if not folder.is_dir():
        return
    if not (_restrict(Path(os.path.realpath(folder)), rights) or anyway):
        return
    for where, folders, files in os.walk(os.path.realpath(folder)):
        for name in (*folders, *files):
            _restrict(Path(where, name), rights)


def _restrict(path: Path, rights: PermissionChanges, *, top: bool = False) -> bool:
    """Whether others had rights to it. Links, what has further names, and what belongs to others stay as they are."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if top else os.O_NOFOLLOW))
    except OSError:  # it is not there, or a link, or a socket
        return False
    try:
        facts = os.fstat(handle)
        mode = stat.S_IMODE(facts.st_mode)
        is_folder = stat.S_ISDIR(facts.st_mode)
        if not mode & OTHERS or not (is_folder or (stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1)):
            return False
        if is_folder and _is_shared_folder(path, mode):
            rights.refused.append(path)
        else:
            _change(handle, path, mode & ~OTHERS, rights)
        return True
    finally:
        os.close(handle)


def _change(handle: int, path: Path, mode: int, rights: PermissionChanges) -> None:
    try:
        os.fchmod(handle, mode)
        rights.changed += 1
    except OSError:
        rights.refused.append(path)


def _is_shared_folder(path: Path, mode: int) -> bool:
    """A folder as /tmp, or the root of the file system: to close it would stop the machine."""
    return bool(mode & stat.S_ISVTX) or path.resolve() == Path("/")


def give_to_owner(handle: int, folder: Path) -> None:
    """What root makes in somebody's folder is for the folder's owner, whose server is to use it another time."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.fchown(handle, owner.st_uid, owner.st_gid)


def make_file(path: Path) -> None:
    """An empty file of ours alone where there is none, so that whoever opens it next finds its rights right. Raises
    `OSError`."""
    with suppress(FileExistsError):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE)
        try:
            give_to_owner(handle, path.parent)
        finally:
            os.close(handle)
