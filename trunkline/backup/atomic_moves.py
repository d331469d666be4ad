"""The last step of a restore: what was there goes aside, and what lies ready takes its place.

What is to be moved is written down first. From then on it happens, whatever kills the process: the next restore and
the next start of a server go on with it.
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
    """First those aside, then those in place; each is an old and a new name on one file system. What the files of the
    latter hold is on the disk already, their names may not be. Raises `OSError` with nothing changed, or `StartupError`
    when all of it is written down and `finish` can go on with it."""
    journal = data_dir / JOURNAL
    partial = data_dir / f"{JOURNAL}.partial"
    for ready, _ in in_place:
        for folder, _, _ in os.walk(ready):
            _keep_names(Path(folder))
        _keep_names(ready.parent)
    partial.unlink(missing_ok=True)
    file_permissions.make_file(partial)
    with partial.open("w") as file:
        give(file.fileno(), data_dir.stat())
        json.dump({"aside": _names(aside), "inPlace": _names(in_place)}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(journal)
    _keep_names(data_dir)
    _finish(data_dir, journal)


def give(what: int | Path, owner: os.stat_result) -> None:
    """Root may restore for the server's user, whose the data directory is."""
    if os.geteuid() == 0:
        os.chown(what, owner.st_uid, owner.st_gid)


def finish(data_dir: Path) -> None:
    """Go on with the moves of a restore that was cut off; mostly there is none. Whoever calls this holds the data
    directory. `StartupError` when a move cannot be made."""
    journal = data_dir / JOURNAL
    if journal.exists():
        _finish(data_dir, journal)
        log.info("restore.finished", data_dir=str(data_dir))


def _finish(data_dir: Path, journal: Path) -> None:
    try:
        recorded = json.loads(journal.read_text())
    except (OSError, ValueError) as error:
        raise StartupError(f"{journal}, which a restore has left, cannot be read: {error}") from error
    aside, in_place = _moves(recorded["aside"]), _moves(recorded["inPlace"])
    try:
        for old, new in aside:
            if os.path.lexists(old) and not os.path.lexists(new):
                _rename(old, new)
        for old, new in in_place:
            if os.path.lexists(old):
                _rename(old, new)
        for folder in {path.parent for move in (*aside, *in_place) for path in move}:
            _keep_names(folder)
        journal.unlink()
        _keep_names(data_dir)
    except OSError as error:
        raise StartupError(f"a restore cannot be finished: {error}") from error


def _rename(old: Path, new: Path) -> None:
    if os.path.lexists(new):
        raise StartupError(f"{new} is in the way of a restore that was cut off: move it away")
    if not new.parent.is_dir():
        new.parent.mkdir(mode=0o700, parents=True)
        give(new.parent, old.parent.stat())
    old.rename(new)


def _names(moves: Sequence[Move]) -> list[list[str]]:
    return [[os.fsdecode(path.absolute()) for path in move] for move in moves]


def _moves(names: Sequence[Sequence[str]]) -> list[Move]:
    return [(Path(old), Path(new)) for old, new in names]


def _keep_names(folder: Path) -> None:
    """What is in the folder is on the disk (fsync(2))."""
    if not folder.is_dir():
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
