"""Where recordings lie: `data_dir/recordings/<yyyy>/<mm>/<call id>.wav`, by the call's creation in UTC."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from storage.calls.calls import CallRow

WAV_HEADER_BYTES: Final = 44
_log = structlog.get_logger()


def path_of(data_dir: Path, call_id: str, created_at: datetime) -> Path:
    """The recording's file, whether or not it exists."""
    at = created_at.astimezone(UTC)
    return data_dir / "recordings" / f"{at:%Y}" / f"{at:%m}" / f"{call_id}.wav"


def last_written(data_dir: Path, call: CallRow) -> datetime | None:
    """When the call's recording was last written; None when there is none or it holds no sound (a bare header)."""
    try:
        facts = path_of(data_dir, call.id, call.created_at).stat()
    except FileNotFoundError:
        return None
    return datetime.fromtimestamp(facts.st_mtime, UTC) if facts.st_size > WAV_HEADER_BYTES else None


def size(data_dir: Path, call_id: str, created_at: datetime) -> int:
    """Bytes of the recording's file; 0 when there is none, or it cannot be looked at. Blocks."""
    try:
        return path_of(data_dir, call_id, created_at).stat().st_size
    except OSError:
        return 0


def remove(data_dir: Path, gone: Sequence[tuple[str, datetime]]) -> list[str]:
    """Remove the files of calls, given by id and creation; the ids of those that are gone, for good, also should the
    power fail now. Blocks. When the disk refuses one, it is logged."""
    removed: dict[Path, list[str]] = {}
    for call_id, created_at in gone:
        path = path_of(data_dir, call_id, created_at)
        try:
            path.unlink(missing_ok=True)
            removed.setdefault(path.parent, []).append(call_id)
        except OSError as error:
            _log.warning("recording.not_removed", call_id=call_id, error=str(error))
    return [call_id for folder, ids in removed.items() if _fsync_folder(folder) for call_id in ids]


def _fsync_folder(folder: Path) -> bool:
    """What is not in the folder any more is not there after a power failure either (fsync(2))."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except FileNotFoundError:
        return True
    except OSError as error:
        _log.warning("recording.folder_not_stored", folder=str(folder), error=str(error))
        return False
    return True
