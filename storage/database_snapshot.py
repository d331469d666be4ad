"""Contents of a copy of the database: its revision, the files that its rows refer to, and unfinished work."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
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
"""Folders of the data directory with files that rows refer to."""
_HERE: Final = Path()
_calls = tables.calls
_attempts = tables.webhook_attempts
_numbers = tables.phone_numbers


@dataclass(frozen=True)
class ReferencedFile:
    """A file that a row refers to, by its path in the data directory. `certain` is False for the recording of a live
    call, which may not exist yet."""

    name: str
    certain: bool


@dataclass(frozen=True)
class UnfinishedWork:
    """What a server continues when it starts on this database: pending webhook attempts, registrations, live and queued
    calls."""

    webhook_attempts: int
    registrations: int
    calls: int


@contextmanager
def open_snapshot(path: Path) -> Iterator[sa.Connection]:
    """Opens a snapshot for reading. Raises `StartupError` when it is not a database."""
    source = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    engine = sa.create_engine("sqlite://", creator=lambda: sqlite3.connect(source, uri=True), poolclass=sa.NullPool)
    try:
        with engine.connect() as conn:
            conn.exec_driver_sql("PRAGMA trusted_schema=OFF")
            yield conn
    except sa.exc.DBAPIError as error:
        raise StartupError(f"the database {path.name} cannot be read: {error.orig}") from error


def integrity_problem(conn: sa.Connection) -> str | None:
    """Returns the first problem of the file (`PRAGMA quick_check`), None when it is intact."""
    result = str(conn.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
    return None if result == "ok" else result


def revision(conn: sa.Connection) -> str | None:
    """Returns the revision of the newest migration in the file, None when it is no database of Trunkline."""
    if not sa.inspect(conn).has_table("alembic_version"):
        return None
    found = conn.exec_driver_sql("SELECT version_num FROM alembic_version LIMIT 2").scalars().all()
    return str(found[0]) if len(found) == 1 else None


def referenced_files(conn: sa.Connection) -> Iterator[ReferencedFile]:
    """Every file that rows refer to."""
    ended = _calls.c.ended_at.is_not(None)
    with_recording = sa.select(_calls.c.id, _calls.c.created_at, ended).where(sa.or_(_calls.c.recorded, sa.not_(ended)))
    for call_id, created_at, certain in conn.execute(with_recording):
        yield ReferencedFile(recordings.path_of(_HERE, call_id, created_at).as_posix(), bool(certain))
    for content_id in conn.execute(_files_of_documents(conn)).scalars():
        yield ReferencedFile(knowledge_files.path_of(_HERE, content_id).as_posix(), certain=True)
    for sound_id in conn.execute(_ids_of_sounds(conn)).scalars():
        yield ReferencedFile(sounds.path_of(_HERE, sound_id).as_posix(), certain=True)


def _ids_of_sounds(conn: sa.Connection) -> sa.Select[str] | sa.CompoundSelect[str]:
    """Selects the ids that name the files of background sounds and of hold music, which older revisions have not."""
    background_sounds = sa.select(tables.background_sounds.c.id)
    if not sa.inspect(conn).has_table("hold_music"):
        return background_sounds
    return background_sounds.union_all(sa.select(tables.hold_music.c.id))


def _files_of_documents(conn: sa.Connection) -> sa.Select[str]:
    """Selects the ids that name the files of documents. In older revisions each document has its own file, and no file
    was removed before its row."""
    columns = {each["name"] for each in sa.inspect(conn).get_columns("knowledge_documents")}
    documents = tables.knowledge_documents.c
    files = sa.select(documents["content_id" if "content_id" in columns else "id"]).distinct()
    return files.where(documents.file_removed_at.is_(None)) if "file_removed_at" in columns else files


def unfinished_work(conn: sa.Connection) -> UnfinishedWork:
    """Counts what the next start continues."""
    return UnfinishedWork(
        _count(conn, _attempts.c.status == "pending"),
        _count(conn, sa.and_(_numbers.c.sip_mode == "registration", _numbers.c.source.is_not(None))),
        _count(conn, _calls.c.ended_at.is_(None)),
    )


def _count(conn: sa.Connection, where: sa.ColumnElement[bool]) -> int:
    return int(conn.execute(sa.select(sa.func.count()).where(where)).scalar_one())
