"""The database at one moment, as a file of its own, and the files beside the database that its rows promise."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from config.errors import StartupError
from storage import tables
from storage.background_sounds import sounds
from storage.calls import recordings
from storage.knowledge import files as knowledge_files

FOLDERS: Final = ("recordings", "knowledge", "sounds")
"""Of the data directory; rows promise files in these alone."""
_BUSY_S: Final = 60.0
_PAUSE_STEPS: Final = 1000
"""Of SQLite's machine: some hundred rows."""
_HERE: Final = Path()
_calls = tables.calls
_attempts = tables.webhook_attempts
_numbers = tables.phone_numbers


@dataclass(frozen=True)
class ReferencedFile:
    """A file that a row speaks of, by its name in the data directory. Not `certain`: of a live call, which may have
    said nothing yet."""

    name: str
    certain: bool


@dataclass(frozen=True)
class UnfinishedWork:
    """What a server goes on with when it starts on this database: webhook attempts that wait, numbers that register
    with a provider, calls that are live or queued."""

    webhook_attempts: int
    registrations: int
    calls: int


def take(database: Path, target: Path, pause: Callable[[], None]) -> None:
    """Write what the database holds now into `target`, which is absent or empty. For SQLite it is one long read: the
    server's writes go on meanwhile. Rows that were deleted are not in it, nor what is left of them in free pages.
    `pause` is called again and again. Blocks. `StartupError` when there is no database, or it cannot be read, or the
    copy cannot be written."""
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=rw", uri=True, timeout=_BUSY_S)) as conn:
            conn.isolation_level = None
            conn.set_progress_handler(pause, _PAUSE_STEPS)
            conn.execute("VACUUM INTO ?", (str(target),))
    except sqlite3.Error as error:
        raise StartupError(f"the database {database} cannot be copied: {error}") from error


@contextmanager
def opened(path: Path) -> Iterator[sa.Connection]:
    """A snapshot, for reading. `StartupError` when it is no database."""
    source = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    engine = sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(source, uri=True), poolclass=sa.NullPool)
    try:
        with engine.connect() as conn:
            conn.exec_driver_sql("PRAGMA trusted_schema=OFF")
            yield conn
    except sa.exc.DBAPIError as error:
        raise StartupError(f"the database {path.name} cannot be read: {error.orig}") from error


def integrity_problem(conn: sa.Connection) -> str | None:
    """What is wrong with the file; None when it is whole."""
    found = str(conn.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
    return None if found == "ok" else found


def revision(conn: sa.Connection) -> str | None:
    """The newest migration that it has seen; None: this is no database of ours."""
    if not sa.inspect(conn).has_table("alembic_version"):
        return None
    found = conn.exec_driver_sql("SELECT version_num FROM alembic_version LIMIT 2").scalars().all()
    return str(found[0]) if len(found) == 1 else None


def referenced_files(conn: sa.Connection) -> Iterator[ReferencedFile]:
    """Every file that the rows speak of."""
    ended = _calls.c.ended_at.is_not(None)
    spoken_of = sa.select(_calls.c.id, _calls.c.created_at, ended).where(sa.or_(_calls.c.recorded, sa.not_(ended)))
    for call_id, created_at, certain in conn.execute(spoken_of):
        yield ReferencedFile(recordings.path_of(_HERE, call_id, created_at).as_posix(), bool(certain))
    for content_id in conn.execute(_files_of_documents(conn)).scalars():
        yield ReferencedFile(knowledge_files.path_of(_HERE, content_id).as_posix(), certain=True)
    for sound_id in conn.execute(sa.select(tables.background_sounds.c.id)).scalars():
        yield ReferencedFile(sounds.path_of(_HERE, sound_id).as_posix(), certain=True)


def _files_of_documents(conn: sa.Connection) -> sa.Select[str]:
    """By whose ids the files of documents are called: in older tables each has its own, and none was removed before its
    row."""
    columns = {each["name"] for each in sa.inspect(conn).get_columns("knowledge_documents")}
    documents = tables.knowledge_documents.c
    files = sa.select(documents["content_id" if "content_id" in columns else "id"]).distinct()
    return files.where(documents.file_removed_at.is_(None)) if "file_removed_at" in columns else files


def unfinished(conn: sa.Connection) -> UnfinishedWork:
    """What the next start goes on with."""
    return UnfinishedWork(
        _count(conn, _attempts.c.status == "pending"),
        _count(conn, sa.and_(_numbers.c.sip_mode == "registration", _numbers.c.source.is_not(None))),
        _count(conn, _calls.c.ended_at.is_(None)),
    )


def _count(conn: sa.Connection, where: sa.ColumnElement[bool]) -> int:
    return int(conn.execute(sa.select(sa.func.count()).where(where)).scalar_one())
