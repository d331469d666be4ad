"""The files of knowledge documents, as they were uploaded: `data_dir/knowledge/<document id>`."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from storage.database.database import StorageUnavailable

_log = structlog.get_logger()


def path_of(data_dir: Path, document_id: str) -> Path:
    """The document's file, whether or not it exists."""
    return data_dir / "knowledge" / document_id


def write(data_dir: Path, document_id: str, content: bytes) -> None:
    """Store the file of a new document: on the disk when this returns, gone when it raises. A file that a crash has
    cut off has no row, and stays: it cannot be told from those of another database. Blocks. Raises
    `StorageUnavailable`."""
    path = path_of(data_dir, document_id)
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with open(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            _keep_names(path.parent)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise StorageUnavailable(f"a document cannot be written: {error}") from error


def _keep_names(folder: Path) -> None:
    """What is in the folder is on the disk; the files' own fsync does not say so (open(2), fsync(2))."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(data_dir: Path, document_id: str) -> bool:
    """Whether it is gone. Blocks. When the disk refuses, it is logged."""
    try:
        path_of(data_dir, document_id).unlink(missing_ok=True)
    except OSError as error:
        _log.warning("knowledge.file_not_removed", document_id=document_id, error=str(error))
        return False
    return True
