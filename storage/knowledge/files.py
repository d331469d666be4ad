"""Files of knowledge documents, as they were uploaded: `data_dir/knowledge/<document id>`."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from storage.database.errors import StorageUnavailable

_log = structlog.get_logger()


def path_of(data_dir: Path, document_id: str) -> Path:
    """The path of the document's file, whether or not it exists."""
    return data_dir / "knowledge" / document_id


def write(data_dir: Path, document_id: str, content: bytes) -> None:
    """Write the file of a new document: synced to disk when this returns, removed when it raises. A file truncated by a
    crash has no row, and stays, because it may belong to another database. Blocks. Raises `StorageUnavailable`."""
    path = path_of(data_dir, document_id)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            _fsync_folder(path.parent)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageUnavailable(f"a document cannot be written: {error}") from error


def _fsync_folder(folder: Path) -> None:
    """Sync the entries of the folder to disk, which fsync of a file does not do (fsync(2))."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(data_dir: Path, document_id: str) -> bool:
    """Remove the file; returns True if it is gone. Blocks. A disk error is logged."""
    try:
        path_of(data_dir, document_id).unlink(missing_ok=True)
    except OSError as error:
        _log.warning("knowledge.file_not_removed", document_id=document_id, error=str(error))
        return False
    return True
