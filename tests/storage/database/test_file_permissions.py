"""Only the server's user has access to stored files, under any umask, also in older installations."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from config import secrets
from storage.background_sounds import sounds
from storage.database import server_lock
from storage.database.database import Database
from storage.database.file_permissions import FOLDERS, make_private
from storage.knowledge import files


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder: Path) -> dict[str, str]:
    """Names and modes of files and folders that others have access to."""
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}
    return {str(path.relative_to(folder)): oct(mode) for path, mode in modes.items() if mode & 0o077}


def tighten(data_dir: Path) -> None:
    make_private(data_dir, data_dir / "trunkline.db", data_dir / "secret.key")


def of_before(data_dir: Path) -> Path:
    """An older installation, whose files others can read and write."""
    for name in (*FOLDERS, "recordings/2026", "recordings/2026/11", "replaced-20261120T000000.000000Z"):
        (data_dir / name).mkdir(parents=True, exist_ok=True)
    for name in (
        "trunkline.db", "trunkline.db-wal", "trunkline.db-shm", "trunkline.db-server", "trunkline.db-start",
        "secret.key", "server.lock", "settings-of-backup.toml", "recordings/2026/11/call.wav", "knowledge/document",
        "sounds/sound.wav", "speech/names.key", "replaced-20261120T000000.000000Z/secret.key",
    ):  # fmt: skip
        (data_dir / name).write_text(name)
    for path in (data_dir, *data_dir.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    return data_dir


def test_new_files_are_private_under_any_umask(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with umask(0), server_lock.lock_data_dir(data_dir), server_lock.lock_database(data_dir / "trunkline.db"):
        database = Database(f"sqlite+aiosqlite:///{data_dir / 'trunkline.db'}")

        async def work() -> None:
            await database.open()
            assert (data_dir / "trunkline.db-wal").exists()
            await database.close()

        asyncio.run(work())
        secrets.load_or_create(data_dir / "secret.key")
        files.write(data_dir, "document", b"x")
        sounds.path_of(data_dir, "x").parent.mkdir(mode=0o700)
    assert open_to_others(data_dir) == {}


def test_the_database_file_is_private_before_it_has_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []
    monkeypatch.setattr(
        "storage.database.sqlite.migrate.os.chmod", lambda *_: seen.append(open_to_others(tmp_path / "data"))
    )
    with umask(0):
        asyncio.run(_opened_and_closed(tmp_path / "data" / "trunkline.db"))
    assert seen == [{}]


async def _opened_and_closed(path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{path}")
    await database.open()
    await database.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_created_by_root_belong_to_the_owner_of_the_folder(tmp_path: Path) -> None:
    """So that the owner's server can start later."""
    os.chown(tmp_path, 12345, 12345)
    with server_lock.lock_data_dir(tmp_path), server_lock.lock_database(tmp_path / "trunkline.db"):
        asyncio.run(_opened_and_closed(tmp_path / "trunkline.db"))
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in tmp_path.iterdir()}
    assert {"server.lock", "trunkline.db", "trunkline.db-server"} <= owners.keys()
    assert set(owners.values()) == {(12345, 12345)}, owners


def test_files_of_an_older_installation_become_private_with_one_log_line(tmp_path: Path) -> None:
    data_dir = of_before(tmp_path / "data")
    with capture_logs() as logs:
        tighten(data_dir)
    assert open_to_others(data_dir) == {}
    (line,) = logs
    assert (line["event"], line["changed"]) == ("data.made_private", 1 + len(list(data_dir.rglob("*"))))
    assert (data_dir / "trunkline.db").read_text() == "trunkline.db"
    with capture_logs() as logs:
        tighten(data_dir)
    assert logs == []


def test_a_folder_opened_to_others_becomes_private_again(tmp_path: Path) -> None:
    data_dir = of_before(tmp_path / "data")
    tighten(data_dir)
    (data_dir / "recordings").chmod(0o755)
    (data_dir / "recordings/2026/11/call.wav").chmod(0o644)
    tighten(data_dir)
    assert open_to_others(data_dir) == {}


def test_foreign_files_keep_their_permissions(tmp_path: Path) -> None:
    data_dir, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in (data_dir / "models" / "model.gguf", data_dir / "own" / "notes.txt", elsewhere / "file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
        path.chmod(0o644)
    (data_dir / "knowledge").mkdir(mode=0o755)
    (data_dir / "knowledge" / "link").symlink_to(elsewhere / "file")
    (data_dir / "knowledge" / "second name").hardlink_to(elsewhere / "file")
    tighten(data_dir)
    for path in (data_dir / "models" / "model.gguf", data_dir / "own" / "notes.txt", elsewhere / "file"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o700


def test_a_linked_recordings_folder_becomes_private(tmp_path: Path) -> None:
    data_dir, disk = of_before(tmp_path / "data"), tmp_path / "disk"
    (data_dir / "recordings").rename(disk)
    (data_dir / "recordings").symlink_to(disk)
    tighten(data_dir)
    assert open_to_others(disk) == {}


def test_a_shared_folder_stays_and_is_logged(tmp_path: Path) -> None:
    data_dir = of_before(tmp_path / "data")
    data_dir.chmod(0o1777)
    with capture_logs() as logs:
        tighten(data_dir)
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o1777
    assert set(open_to_others(data_dir)) == {"."}
    lines = {line["event"]: line for line in logs}
    assert lines["data.not_private"]["path"] == str(data_dir)
    assert "chmod" in lines["data.not_private"]["remedy"]


def test_a_failed_change_is_logged_and_does_not_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir = of_before(tmp_path / "data")

    def refuse(handle: int, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("storage.database.file_permissions.os.fchmod", refuse)
    with capture_logs() as logs:
        tighten(data_dir)
    assert [line["event"] for line in logs] == ["data.not_private"]
    assert logs[0]["others"] > 5
