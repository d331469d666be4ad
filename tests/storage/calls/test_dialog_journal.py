"""The files of the dialog journal: what the next process reads of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from storage.calls.dialog_journal import FOLDER, MAX_ENTRY_BYTES, DialogFiles

ENTRY = {"trunk": "line"}


def former(data_dir: Path) -> dict[str, object]:
    """What a later process finds."""
    files = DialogFiles(data_dir)
    found = dict(files.former_entries())
    files.close()
    return found


def killed_process(data_dir: Path) -> None:
    """Store two entries and remove the first."""
    files = DialogFiles(data_dir)
    files.store(1, ENTRY)
    files.store(2, ENTRY)
    files.remove(1)
    files.remove(3)
    files.close()


def test_the_next_process_reads_what_was_not_removed(tmp_path: Path) -> None:
    killed_process(tmp_path)
    assert list(former(tmp_path).values()) == [ENTRY]
    (name,) = former(tmp_path)
    assert (tmp_path / FOLDER / name).stat().st_mode & 0o777 == 0o600


def test_a_process_does_not_read_its_own_entries(tmp_path: Path) -> None:
    files = DialogFiles(tmp_path)
    files.store(1, ENTRY)
    files.close()
    assert dict(files.former_entries()) == {}


def test_an_entry_is_removed_by_its_name(tmp_path: Path) -> None:
    killed_process(tmp_path)
    files = DialogFiles(tmp_path)
    for name, _ in list(files.former_entries()):
        files.remove_former(name)
        files.remove_former(name)
    files.close()
    assert former(tmp_path) == {}


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 20_000, b'"' + b"a" * MAX_ENTRY_BYTES + b'"'])
def test_a_damaged_entry_has_no_content(tmp_path: Path, content: bytes) -> None:
    killed_process(tmp_path)
    (tmp_path / FOLDER / "0-1.json").write_bytes(content)
    assert former(tmp_path)["0-1.json"] is None


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    killed_process(tmp_path)
    (tmp_path / "other").write_text("{}")
    (tmp_path / FOLDER / "0-1.json").symlink_to(tmp_path / "other")
    assert former(tmp_path)["0-1.json"] is None


def test_what_a_process_was_writing_when_it_died_is_removed(tmp_path: Path) -> None:
    killed_process(tmp_path)
    partial = tmp_path / FOLDER / "0-1.partial"
    partial.write_text("{")
    assert len(former(tmp_path)) == 1
    assert not partial.exists()


def test_a_folder_that_cannot_be_written_is_logged_once(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("")
    with capture_logs() as logs:
        killed_process(tmp_path)
    assert [line["event"] for line in logs] == ["dialogs.not_stored"]
    assert former(tmp_path) == {}
