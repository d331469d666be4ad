"""Files of documents are complete or absent."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from storage.database.errors import StorageUnavailable
from storage.knowledge import files
from storage.knowledge.files import path_of


def test_a_written_file_is_complete_and_private(tmp_path: Path) -> None:
    document_id = str(uuid4())
    files.write(tmp_path, document_id, b"content")
    path = path_of(tmp_path, document_id)
    assert path.read_bytes() == b"content"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageUnavailable, match="No space left"):
        files.write(tmp_path, str(uuid4()), b"content")
    assert os.listdir(tmp_path / "knowledge") == []


def test_a_file_is_written_once(tmp_path: Path) -> None:
    document_id = str(uuid4())
    files.write(tmp_path, document_id, b"first")
    with pytest.raises(StorageUnavailable):
        files.write(tmp_path, document_id, b"second")
    assert path_of(tmp_path, document_id).read_bytes() == b"first"


def test_a_file_that_cannot_be_removed_is_logged(tmp_path: Path) -> None:
    stuck, gone = str(uuid4()), str(uuid4())
    path_of(tmp_path, stuck).mkdir(parents=True)
    path_of(tmp_path, gone).write_bytes(b"x")
    with capture_logs() as lines:
        assert [files.remove(tmp_path, each) for each in (stuck, gone, gone)] == [False, True, True]
    assert os.listdir(tmp_path / "knowledge") == [stuck]
    assert [(line["event"], line["document_id"]) for line in lines] == [("knowledge.file_not_removed", stuck)]
