"""Background sounds: rows, and files at `data_dir/sounds/<id>.wav`. A file is created before its row and removed after
it. Triggers list the files to remove in `background_sound_removals`; files that the database does not know stay."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import sqlalchemy as sa
import structlog

from config.clock import utc_now
from media.audio_port import Samples
from media.background.files import TEMPORARY_PREFIX, write_wav
from storage import tables
from storage.agents import agents
from storage.database.errors import StorageUnavailable
from storage.tables.row_mapping import RowMapping


@dataclass(frozen=True, kw_only=True)
class BackgroundSoundFields:
    """Fields of an upload: `file_size` in bytes and `duration_ms` are those of the uploaded file, `stored_bytes` is the
    size of the stored one."""

    name: str
    description: str | None
    file_size: int
    duration_ms: int
    stored_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class BackgroundSound(BackgroundSoundFields):
    """A stored sound; without an organization it is a preset, which all organizations can use."""

    id: str
    organization_id: str | None
    created_at: datetime


BACKGROUND_SOUND: Final = RowMapping(BackgroundSound, tables.background_sounds)
_t = tables.background_sounds
_agents = tables.agents
_removals = tables.background_sound_removals
_IS_PRESET: Final = _t.c.organization_id.is_(None)
INTERRUPTED_AFTER_S: Final = 3600.0
"""A temporary file that is this old, seconds, is of an interrupted write."""
_log = structlog.get_logger()


def create(
    conn: sa.Connection, organization_id: str | None, sound_id: str, fields: BackgroundSoundFields
) -> BackgroundSound:
    """Store a new sound, for one organization or for all, whose file exists already."""
    sound = BackgroundSound(**asdict(fields), id=sound_id, organization_id=organization_id, created_at=utc_now())
    conn.execute(sa.insert(_t).values(**asdict(sound)))
    return sound


def store_preset(conn: sa.Connection, sound_id: str, fields: BackgroundSoundFields) -> None:
    """Store a preset, or its changed fields."""
    updated = conn.execute(sa.update(_t).where(_t.c.id == sound_id, _IS_PRESET).values(**asdict(fields)))
    if updated.rowcount == 0:
        create(conn, None, sound_id, fields)


def get(conn: sa.Connection, organization_id: str, sound_id: str) -> BackgroundSound | None:
    """By id, among the sounds that the organization can use: its own and the presets."""
    query = sa.select(*BACKGROUND_SOUND.columns).where(_t.c.id == sound_id, _usable_by(organization_id))
    row = conn.execute(query).one_or_none()
    return None if row is None else BACKGROUND_SOUND.build(row)


def all_for(conn: sa.Connection, organization_id: str) -> list[BackgroundSound]:
    """All sounds that the organization can use, presets included, newest first."""
    query = sa.select(*BACKGROUND_SOUND.columns).where(_usable_by(organization_id))
    rows = conn.execute(query.order_by(_t.c.created_at.desc(), _t.c.id))
    return [BACKGROUND_SOUND.build(row) for row in rows]


def _usable_by(organization_id: str) -> sa.ColumnElement[bool]:
    return sa.or_(_IS_PRESET, _t.c.organization_id == organization_id)


def file_sizes(conn: sa.Connection) -> dict[str, int]:
    """The `file_size` of every sound of every organization, by id."""
    return {row.id: row.file_size for row in conn.execute(sa.select(_t.c.id, _t.c.file_size))}


def delete(conn: sa.Connection, organization_id: str, sound_id: str, *, author: str | None = None) -> bool:
    """Delete a sound of the organization; the agents that play it lose it, which makes a version of them by `author`.
    False when there is none, and for presets.
    The file stays: remove it after the commit."""
    deleted = conn.execute(sa.delete(_t).where(_t.c.id == sound_id, _t.c.organization_id == organization_id))
    if deleted.rowcount == 0:
        return False
    playing = sa.select(_agents.c.id).where(
        _agents.c.organization_id == organization_id, _agents.c.background_sound_id == sound_id
    )
    for agent_id in conn.execute(playing).scalars().all():
        agents.update(conn, organization_id, agent_id, {"background_sound_id": None}, author=author)
    return True


def pending_file_removals(conn: sa.Connection) -> list[str]:
    """Ids of deleted sounds whose files are still to be removed."""
    return list(conn.execute(sa.select(_removals.c.sound_id)).scalars())


def finish_file_removals(conn: sa.Connection, sound_ids: Collection[str]) -> None:
    """Delete the entries of these sounds, at least one, whose files have been removed."""
    deletion = sa.delete(_removals).where(_removals.c.sound_id == sa.bindparam("gone"))
    conn.execute(deletion, [{"gone": each} for each in sound_ids])


def path_of(data_dir: Path, sound_id: str) -> Path:
    """The path of the sound's file, whether or not it exists; it is one of `media.background.files.write_wav`."""
    return data_dir / "sounds" / f"{sound_id}.wav"


def write_file(data_dir: Path, sound_id: str, samples: Samples) -> int:
    """Write the loop of a sound atomically; returns its size in bytes. Blocks. Raises `StorageUnavailable`."""
    path = path_of(data_dir, sound_id)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_wav(path, samples)
        return path.stat().st_size
    except OSError as error:
        raise StorageUnavailable(f"a background sound cannot be written: {error}") from error


def remove_file(data_dir: Path, sound_id: str) -> bool:
    """Remove the file; returns True if it is gone. Blocks. A disk error is logged."""
    try:
        path_of(data_dir, sound_id).unlink(missing_ok=True)
    except OSError as error:
        _log.warning("sound.file_not_removed", sound_id=sound_id, error=str(error))
        return False
    return True


def remove_temporary_files(data_dir: Path) -> None:
    """Remove the files of interrupted writes, and no others: an unknown file may belong to another database, and a new
    one to a write of another node. Blocks. Raises `OSError`."""
    for path in path_of(data_dir, "").parent.glob(f"{TEMPORARY_PREFIX}*"):
        if path.stat().st_mtime < time.time() - INTERRUPTED_AFTER_S:
            path.unlink()
