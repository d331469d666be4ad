"""Files of recordings: `data_dir/recordings/<yyyy>/<mm>/<call id>.wav`, by the call's creation in UTC."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import structlog

from media.recording import WAV_HEADER_BYTES
from storage.calls.calls import CallRow

_log = structlog.get_logger()


def path_of(data_dir: Path, call_id: str, created_at: datetime) -> Path:
    """The path of the recording, whether or not it exists."""
    at = created_at.astimezone(UTC)
    return data_dir / "recordings" / f"{at:%Y}" / f"{at:%m}" / f"{call_id}.wav"


def last_written(data_dir: Path, call: CallRow) -> datetime | None:
    """Returns when the call's recording was last written; None when there is none or it has no audio."""
    try:
        status = path_of(data_dir, call.id, call.created_at).stat()
    except FileNotFoundError:
        return None
    return datetime.fromtimestamp(status.st_mtime, UTC) if status.st_size > WAV_HEADER_BYTES else None


def size(data_dir: Path, call_id: str, created_at: datetime) -> int:
    """Returns the size of the recording's file in bytes; 0 when there is none, or it cannot be read. Blocks."""
    try:
        return path_of(data_dir, call_id, created_at).stat().st_size
    except OSError:
        return 0


def remove(data_dir: Path, deleted_calls: Sequence[tuple[str, datetime]]) -> list[str]:
    """Remove the recordings of calls, given by id and creation; returns the ids of those whose removal is synced to
    disk. Blocks. A disk error is logged."""
    removed: dict[Path, list[str]] = {}
    for call_id, created_at in deleted_calls:
        path = path_of(data_dir, call_id, created_at)
        try:
            path.unlink(missing_ok=True)
            removed.setdefault(path.parent, []).append(call_id)
        except OSError as error:
            _log.warning("recording.not_removed", call_id=call_id, error=str(error))
    return [call_id for folder, ids in removed.items() if _fsync_folder(folder) for call_id in ids]


def _fsync_folder(folder: Path) -> bool:
    """Makes removals survive a power failure (fsync(2)). False when that fails."""
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
