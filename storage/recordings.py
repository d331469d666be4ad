"""Where recordings lie: `data_dir/recordings/<yyyy>/<mm>/<call id>.wav`, by the call's creation in UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from storage.calls import CallRow

WAV_HEADER_BYTES: Final = 44


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
