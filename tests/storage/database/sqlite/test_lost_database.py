"""A lost database is distinguished from a first start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from config.errors import StartupError
from storage.accounts import organizations
from storage.background_sounds import presets
from storage.database.database import Database
from storage.database.sqlite import lost_database

CALL = "recordings/2026/11/3f0b8a52-6c1e-4d5e-8a53-6f6a1c9d2b47.wav"
DOCUMENT = "knowledge/3f0b8a52-6c1e-4d5e-8a53-6f6a1c9d2b47"


def put(data_dir: Path, *names: str) -> Path:
    for name in names:
        path = data_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return data_dir


def check(data_dir: Path, *, key: Path | None = None) -> None:
    lost_database.check_not_lost(data_dir, data_dir / "trunkline.db", key or data_dir / "secret.key")


def with_database(data_dir: Path, work: Callable[[Database], Awaitable[object]]) -> None:
    """Create the database, and await `work` on it."""

    async def run() -> None:
        database = Database(f"sqlite+aiosqlite:///{data_dir / 'trunkline.db'}")
        await database.open()
        try:
            await work(database)
        finally:
            await database.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", [CALL, DOCUMENT, "secret.key", "sounds/a.wav"])
@pytest.mark.parametrize("state", ["missing", "empty"])
def test_a_lost_database_raises_startup_error_with_found_files_and_remedy(
    tmp_path: Path, name: str, state: str
) -> None:
    put(tmp_path, name)
    if state == "empty":
        (tmp_path / "trunkline.db").touch()
    found = tmp_path / name.partition("/")[0]
    with pytest.raises(StartupError, match=rf"trunkline.db is {state}, .* of one: {found}\. .*restore BACKUP .*anew"):
        check(tmp_path)


def test_a_database_without_organizations_beside_their_files_raises_startup_error(tmp_path: Path) -> None:
    with_database(put(tmp_path, CALL, "secret.key"), lambda _: asyncio.sleep(0))
    with pytest.raises(StartupError, match=rf"trunkline.db holds no organization, .* of one: {tmp_path}/recordings\."):
        check(tmp_path)


def test_first_and_later_starts_pass(tmp_path: Path) -> None:
    check(tmp_path / "new")
    (tmp_path / "recordings").mkdir()
    put(tmp_path, "models/model.gguf")
    check(tmp_path)
    with_database(put(tmp_path, "secret.key"), lambda database: presets.install_presets(database, tmp_path))
    assert list((tmp_path / "sounds").iterdir())
    check(tmp_path)
    with_database(tmp_path, lambda database: database.write(lambda conn: organizations.create(conn, "harbour")))
    put(tmp_path, CALL, DOCUMENT)
    check(tmp_path)


def test_a_secret_key_outside_of_the_data_directory_is_no_sign_of_a_lost_database(tmp_path: Path) -> None:
    put(tmp_path, "mounted/secret.key")
    check(tmp_path / "data", key=tmp_path / "mounted" / "secret.key")


def test_a_damaged_database_passes(tmp_path: Path) -> None:
    put(tmp_path, CALL)
    (tmp_path / "trunkline.db").write_bytes(b"no database" * 1000)
    check(tmp_path)
