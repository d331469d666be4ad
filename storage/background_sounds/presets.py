"""Installs the presets of `media.background.presets` as stored sounds: computes them at the first start and whenever a
file is missing."""

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
from storage.database.database import Database
from storage.database.errors import StorageUnavailable

_IDS: Final = UUID("0f5b7c0a-3c1e-5d5e-8a53-6f6a1c9d2b47")
"""Namespace of the ids. It must never change, because agents refer to the ids."""
_RenderedPreset = dict[str, BackgroundSoundFields]
_log = structlog.get_logger()


def preset_id(key: str) -> str:
    """Returns the id of a preset, by its key: the same at every start and on every machine (UUID version 5)."""
    return str(uuid5(_IDS, key))


async def install_presets(database: Database, data_dir: Path) -> None:
    """Remove the files of deleted sounds and of interrupted writes, and compute presets that are missing or incomplete
    (1.2 s of CPU time, on a thread). To be called before the API accepts sounds. A disk error is only logged, because
    calls work without presets."""
    try:
        deleted = await database.read(sounds.pending_file_removals)
        if removed := await asyncio.to_thread(_remove_files, data_dir, deleted):
            await database.write(lambda conn: sounds.finish_file_removals(conn, removed))
        sizes = await database.read(sounds.file_sizes)
        if computed := await asyncio.to_thread(_compute_missing, data_dir, sizes):
            await database.write(lambda conn: _store(conn, computed))
    except StorageUnavailable as error:
        _log.warning("sounds.presets_not_stored", cause=str(error))


def _remove_files(data_dir: Path, sound_ids: Sequence[str]) -> list[str]:
    """Remove the files of these sounds; returns the sounds whose files are removed."""
    return [each for each in sound_ids if sounds.remove_file(data_dir, each)]


def _compute_missing(data_dir: Path, sizes: Mapping[str, int]) -> _RenderedPreset:
    """Remove unfinished files, compute missing presets; returns those computed, by id. Stops at the first disk
    error."""
    ids = {preset_id(preset.key): preset for preset in PRESETS}
    computed: _RenderedPreset = {}
    try:
        sounds.remove_temporary_files(data_dir)
        for sound_id, preset in ids.items():
            if not _is_complete(sounds.path_of(data_dir, sound_id), sizes.get(sound_id)):
                computed[sound_id] = _render(data_dir, sound_id, preset)
                _log.info("sounds.preset_made", preset=preset.key)
    except (OSError, StorageUnavailable) as error:
        _log.warning("sounds.presets_not_made", cause=str(error), remedy="start again when the disk takes files")
    return computed


def _is_complete(path: Path, size: int | None) -> bool:
    """True if there is a file of the stored size."""
    try:
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _render(data_dir: Path, sound_id: str, preset: Preset) -> BackgroundSoundFields:
    """Compute a preset and write its file."""
    samples = preset.render()
    size = sounds.write_file(data_dir, sound_id, samples)
    return BackgroundSoundFields(
        name=preset.name,
        description=preset.description,
        file_size=size,
        duration_ms=round(duration_seconds(samples) * 1000),
    )


def _store(conn: sa.Connection, computed: _RenderedPreset) -> None:
    for sound_id, fields in computed.items():
        sounds.store_preset(conn, sound_id, fields)
