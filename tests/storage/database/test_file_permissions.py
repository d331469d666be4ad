"""What is stored is for the server's own user alone, whatever the umask, also where it is older than that."""

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
from storage.database import lock
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
    """Whatever others have rights to, by its name, with its mode."""
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in (folder, *folder.rglob("*"))}
    return {str(path.relative_to(folder)): oct(mode) for path, mode in modes.items() if mode & 0o077}


def tighten(data_dir: Path) -> None:
    make_private(data_dir, data_dir / "trunkline.db", data_dir / "secret.key")


def of_before(data_dir: Path) -> Path:
    """An installation that anybody could read."""
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


def test_what_is_made_under_any_umask_is_ours_alone(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with umask(0), lock.hold(data_dir), lock.hold_database(data_dir / "trunkline.db"):
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


def test_the_database_is_closed_to_others_before_anything_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, str]] = []
    monkeypatch.setattr("storage.database.migrate.os.chmod", lambda *_: seen.append(open_to_others(tmp_path / "data")))
    with umask(0):
        asyncio.run(_opened_and_closed(tmp_path / "data" / "trunkline.db"))
    assert seen == [{}]


async def _opened_and_closed(path: Path) -> None:
    database = Database(f"sqlite+aiosqlite:///{path}")
    await database.open()
    await database.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_what_root_makes_is_for_the_owner_of_the_folder(tmp_path: Path) -> None:
    """Whose server is to start another time."""
    os.chown(tmp_path, 12345, 12345)
    with lock.hold(tmp_path), lock.hold_database(tmp_path / "trunkline.db"):
        asyncio.run(_opened_and_closed(tmp_path / "trunkline.db"))
    owners = {path.name: (path.stat().st_uid, path.stat().st_gid) for path in tmp_path.iterdir()}
    assert {"server.lock", "trunkline.db", "trunkline.db-server"} <= owners.keys()
    assert set(owners.values()) == {(12345, 12345)}, owners


def test_an_installation_of_before_is_closed_to_others_and_one_line_says_so(tmp_path: Path) -> None:
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


def test_a_folder_that_somebody_has_opened_is_closed_again(tmp_path: Path) -> None:
    data_dir = of_before(tmp_path / "data")
    tighten(data_dir)
    (data_dir / "recordings").chmod(0o755)
    (data_dir / "recordings/2026/11/call.wav").chmod(0o644)
    tighten(data_dir)
    assert open_to_others(data_dir) == {}


def test_what_is_not_ours_keeps_its_rights(tmp_path: Path) -> None:
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


def test_recordings_on_another_disk_are_followed_to(tmp_path: Path) -> None:
    data_dir, disk = of_before(tmp_path / "data"), tmp_path / "disk"
    (data_dir / "recordings").rename(disk)
    (data_dir / "recordings").symlink_to(disk)
    tighten(data_dir)
    assert open_to_others(disk) == {}


def test_a_folder_that_is_everybodys_is_left_and_told(tmp_path: Path) -> None:
    data_dir = of_before(tmp_path / "data")
    data_dir.chmod(0o1777)
    with capture_logs() as logs:
        tighten(data_dir)
    assert stat.S_IMODE(data_dir.stat().st_mode) == 0o1777
    assert set(open_to_others(data_dir)) == {"."}
    told = {line["event"]: line for line in logs}
    assert told["data.not_private"]["path"] == str(data_dir)
    assert "chmod" in told["data.not_private"]["remedy"]


def test_what_cannot_be_changed_stops_nothing_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_dir = of_before(tmp_path / "data")

    def refuse(handle: int, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("storage.database.file_permissions.os.fchmod", refuse)
    with capture_logs() as logs:
        tighten(data_dir)
    assert [line["event"] for line in logs] == ["data.not_private"]
    assert logs[0]["others"] > 5
