"""The presets of `media.background.presets` as stored sounds: computed at the first start, and where a file is missing
later."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import UUID, uuid5

import sqlalchemy as sa
import structlog

from media.background.files import duration_seconds
from media.background.presets import PRESETS, Preset
from storage.background_sounds import sounds
from storage.background_sounds.sounds import BackgroundSoundFields
from storage.database.database import Database, StorageUnavailable

_IDS: Final = UUID("0f5b7c0a-3c1e-5d5e-8a53-6f6a1c9d2b47")
"""Namespace of the ids; changing it changes every id that agents hold."""
_RenderedPreset = dict[str, BackgroundSoundFields]
_log = structlog.get_logger()


def preset_id(key: str) -> str:
    """The id of a preset, by its key: the same on every start and every machine (UUID version 5)."""
    return str(uuid5(_IDS, key))


async def install_presets(database: Database, data_dir: Path) -> None:
    """At start-up, before the API takes sounds: remove what deleted ones and writes that were cut off have left, make
    the presets that are not there whole (1.2 s of computing, on a thread). Calls can do without: a disk that refuses is
    logged."""
    try:
        gone = await database.read(sounds.files_to_remove)
        if removed := await asyncio.to_thread(_without_files, data_dir, gone):
            await database.write(lambda conn: sounds.files_removed(conn, removed))
        sizes = await database.read(sounds.file_sizes)
        if made := await asyncio.to_thread(_tidy, data_dir, sizes):
            await database.write(lambda conn: _store(conn, made))
    except StorageUnavailable as trouble:
        _log.warning("sounds.presets_not_stored", cause=str(trouble))


def _without_files(data_dir: Path, sound_ids: Sequence[str]) -> list[str]:
    """Remove their files; those of them that have none now."""
    return [each for each in sound_ids if sounds.remove_file(data_dir, each)]


def _tidy(data_dir: Path, sizes: Mapping[str, int]) -> _RenderedPreset:
    """Remove what is unfinished, make what is missing; what was made, by id. Goes as far as the disk lets it."""
    ids = {preset_id(preset.key): preset for preset in PRESETS}
    made: _RenderedPreset = {}
    try:
        sounds.remove_unfinished(data_dir)
        for sound_id, preset in ids.items():
            if not _is_whole(sounds.path_of(data_dir, sound_id), sizes.get(sound_id)):
                made[sound_id] = _rendered(data_dir, sound_id, preset)
                _log.info("sounds.preset_made", preset=preset.key)
    except (OSError, StorageUnavailable) as trouble:
        _log.warning("sounds.presets_not_made", cause=str(trouble), remedy="start again when the disk takes files")
    return made


def _is_whole(path: Path, size: int | None) -> bool:
    """Whether there is a file of the stored size."""
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _rendered(data_dir: Path, sound_id: str, preset: Preset) -> BackgroundSoundFields:
    """Compute it and write its file."""
    samples = preset.render()
    size = sounds.write_file(data_dir, sound_id, samples)
    return BackgroundSoundFields(
        name=preset.name,
        description=preset.description,
        file_size=size,
        duration_ms=round(duration_seconds(samples) * 1000),
    )


def _store(conn: sa.Connection, made: _RenderedPreset) -> None:
    for sound_id, fields in made.items():
        sounds.store_preset(conn, sound_id, fields)
