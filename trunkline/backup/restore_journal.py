"""Journal of a restore's last step: existing files are moved aside, and the unpacked ones take their place.

The journal lists all moves before the first of them. From then on they are carried out even if the process is killed:
the next restore and the next start of a server resume them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from config.errors import StartupError
from storage.database import file_permissions

JOURNAL: Final = "restore.journal"
Move = tuple[Path, Path]
log = structlog.get_logger()


def move_all(data_dir: Path, aside: Sequence[Move], in_place: Sequence[Move]) -> None:
    """Write the journal and carry out the moves, first those aside, then those in place. A move is an old and a new
    path on one file system. The contents of the files to move in place are synced already, their folders are synced
    here. Raises `OSError` with nothing changed, or `StartupError` if the journal is written and `resume` can go on."""
    journal = data_dir / JOURNAL
    partial = data_dir / f"{JOURNAL}.partial"
    for unpacked, _ in in_place:
        for folder, _, _ in os.walk(unpacked):
            fsync_folder(Path(folder))
        fsync_folder(unpacked.parent)
    partial.unlink(missing_ok=True)
    file_permissions.make_file(partial)
    with partial.open("w") as file:
        chown_if_root(file.fileno(), data_dir.stat())
        json.dump({"aside": _to_json(aside), "inPlace": _to_json(in_place)}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(journal)
    fsync_folder(data_dir)
    _carry_out(data_dir, journal)


def chown_if_root(file: int | Path, owner: os.stat_result) -> None:
    """Give a file to the owner of the data directory, because root may restore for the server's user."""
    if os.geteuid() == 0:
        os.chown(file, owner.st_uid, owner.st_gid)


def resume(data_dir: Path) -> None:
    """Carry out the remaining moves of an interrupted restore, if there is one. The caller holds the data directory's
    lock. Raises `StartupError` if a move fails."""
    journal = data_dir / JOURNAL
    if journal.exists():
        _carry_out(data_dir, journal)
        log.info("restore.finished", data_dir=str(data_dir))


def _carry_out(data_dir: Path, journal: Path) -> None:
    """Carry out the journal's moves, except those that are done, and remove the journal."""
    try:
        recorded = json.loads(journal.read_text())
    except (OSError, ValueError) as error:
        raise StartupError(f"{journal}, the journal of an interrupted restore, cannot be read: {error}") from error
    aside, in_place = _from_json(recorded["aside"]), _from_json(recorded["inPlace"])
    try:
        for old, new in aside:
            if os.path.lexists(old) and not os.path.lexists(new):
                _rename(old, new)
        for old, new in in_place:
            if os.path.lexists(old):
                _rename(old, new)
        for folder in {path.parent for move in (*aside, *in_place) for path in move}:
            fsync_folder(folder)
        journal.unlink()
        fsync_folder(data_dir)
    except OSError as error:
        raise StartupError(f"a restore cannot be finished: {error}") from error


def _rename(old: Path, new: Path) -> None:
    if os.path.lexists(new):
        raise StartupError(f"{new} is in the way of an interrupted restore: move it away")
    if not new.parent.is_dir():
        new.parent.mkdir(mode=0o700, parents=True)
        chown_if_root(new.parent, old.parent.stat())
    old.rename(new)


def _to_json(moves: Sequence[Move]) -> list[list[str]]:
    return [[os.fsdecode(path.absolute()) for path in move] for move in moves]


def _from_json(moves: Sequence[Sequence[str]]) -> list[Move]:
    return [(Path(old), Path(new)) for old, new in moves]


def fsync_folder(folder: Path) -> None:
    """Sync a folder's entries to the disk, if it is a folder (fsync(2))."""
    if not folder.is_dir():
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
