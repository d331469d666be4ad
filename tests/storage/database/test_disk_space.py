"""Disk space probes, on a real disk of a few MiB."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
import sqlalchemy as sa
from structlog.testing import capture_logs

from config.errors import InsufficientStorage
from storage.accounts import organizations
from storage.database import disk_space
from storage.database.database import Database
from storage.database.disk_space import MIB, DiskSpace
from storage.database.errors import StorageUnavailable
from tests import database_template
from tests.trunkline.small_disk import filled, tiny_disk


@pytest_asyncio.fixture
async def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Database]:
    """A database on a disk of 8 MiB; probes are not cached."""
    monkeypatch.setattr(disk_space, "MIN_PROBE_INTERVAL_S", 0.0)
    with tiny_disk(tmp_path / "data", "8m"):
        database = await database_template.open_copy(tmp_path / "data")
        yield database
        await database.close()


async def test_a_probe_names_the_full_disk(stored: Database) -> None:
    folder = stored.path.parent
    space = DiskSpace(stored, folder, 0)
    assert await space.probe() == {"database": None, "disk": None}
    with filled(folder), capture_logs() as lines:
        found = await space.probe()
        await space.probe()
    assert found == {"database": "the disk is full", "disk": f"the disk is full: {folder}"}
    assert [each["event"] for each in lines] == ["disk.full"], "once"
    freed: list[None] = []
    space.on_space_freed = lambda: freed.append(None)
    assert await space.probe() == {"database": None, "disk": None}
    assert len(freed) == 1


async def test_a_folder_on_a_disk_of_its_own_is_probed(tmp_path: Path) -> None:
    database = await database_template.open_copy(tmp_path)
    with tiny_disk(tmp_path / "recordings", "1m"), filled(tmp_path / "recordings"):
        found = await DiskSpace(database, tmp_path, 0).probe()
    await database.close()
    assert found == {"database": None, "disk": f"the disk is full: {tmp_path / 'recordings'}"}


async def test_a_transaction_that_meets_a_full_disk_triggers_a_probe(stored: Database) -> None:
    space = DiskSpace(stored, stored.path.parent, 0)
    with capture_logs() as lines, filled(stored.path.parent):
        for name in ("one", "two"):
            with pytest.raises(StorageUnavailable):
                await stored.write(partial(organizations.create, name=name * 1000))
    assert [each["event"] for each in lines] == ["disk.full"], "once"
    assert space.rejection_reason is None, "it has not looked yet"


@pytest.mark.parametrize("reserve_mb", [1, 512])
async def test_the_reserve_is_kept_free_and_is_at_most_a_tenth_of_the_disk(stored: Database, reserve_mb: int) -> None:
    folder = stored.path.parent
    space = DiskSpace(stored, folder, reserve_mb)
    await space.check_reserve(4 * MIB)
    with pytest.raises(InsufficientStorage, match="almost full"):
        await space.check_reserve(8 * MIB)
    await space.probe()
    before = space.rejection_reason
    assert before is None
    with capture_logs() as lines, filled(folder):
        await space.probe()
        assert space.rejection_reason is not None
        with pytest.raises(InsufficientStorage):
            await space.check_reserve(0)
    assert [each["event"] for each in lines if "low" in each["event"]] == ["disk.low"]


async def test_concurrent_callers_share_a_probe(stored: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_space, "MIN_PROBE_INTERVAL_S", 2.0)
    space = DiskSpace(stored, stored.path.parent, 0)

    def written(conn: sa.Connection) -> str | None:
        return conn.execute(sa.text("SELECT value FROM facts WHERE name = 'write_probe'")).scalar_one_or_none()

    await space.probe()
    first = await stored.read(written)
    await space.probe()
    assert await stored.read(written) == first is not None
