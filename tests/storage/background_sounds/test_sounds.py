"""Background sounds: rows and files stay consistent, also after crashes and on full disks."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import numpy as np
import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from media.background.files import duration_seconds, read_wav, write_wav
from media.background.presets import PRESETS
from storage import tables
from storage.accounts import organizations
from storage.agents import agents
from storage.agents.agents import Agent
from storage.background_sounds import presets, sounds
from storage.background_sounds.sounds import BackgroundSound, BackgroundSoundFields, path_of
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.tables.agent_fields import AgentFields

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SAMPLES = np.arange(-800, 800, dtype=np.int16)
PRESET_IDS = {
    "7b4e9d31-cace-5a27-bbad-a4ea067fec4c": "Office",
    "f4951405-aa72-529e-bff2-78269a66fd29": "Rain",
    "cc7b9e3c-fb98-5f6e-9c22-35356ba91d00": "Cafe",
    "e018e47f-c3ea-5bf9-b139-83938a4854d5": "White noise",
}


async def sound(database: Database, owner: str | None, name: str = "Harbour", at: datetime = NOON) -> BackgroundSound:
    made = BackgroundSound(
        id=str(uuid4()),
        organization_id=owner,
        name=name,
        description=None,
        file_size=3244,
        duration_ms=100,
        created_at=at,
    )
    await database.write(lambda conn: conn.execute(sa.insert(tables.background_sounds).values(**asdict(made))))
    return made


async def agent(database: Database, owner: str, sound_id: str | None) -> Agent:
    fields = AgentFields(name="a", background_sound_id=sound_id)
    return await database.write(lambda conn: agents.create(conn, owner, fields))


async def again(database: Database, old: Agent) -> Agent:
    found = await database.read(lambda conn: agents.get(conn, old.organization_id, old.id))
    assert found is not None
    return found


async def listed(database: Database, owner: str) -> list[BackgroundSound]:
    return await database.read(lambda conn: sounds.all_for(conn, owner))


async def deleted(database: Database, owner: str, sound_id: str) -> bool:
    return await database.write(lambda conn: sounds.delete(conn, owner, sound_id))


@pytest.fixture
async def other_id(database: Database) -> str:
    return (await database.write(lambda conn: organizations.create(conn, "other"))).id


async def test_own_sounds_and_presets_are_listed_newest_first(
    database: Database, organization_id: str, other_id: str
) -> None:
    made = [(organization_id, "old"), (None, "Rain"), (organization_id, "new"), (other_id, "foreign"), (None, "Cafe")]
    for minute, (owner, name) in enumerate(made):
        await sound(database, owner, name, NOON + timedelta(minutes=minute))
    assert [each.name for each in await listed(database, organization_id)] == ["Cafe", "new", "Rain", "old"]
    assert [each.name for each in await listed(database, other_id)] == ["Cafe", "foreign", "Rain"]


async def test_an_organization_sees_only_its_own_sounds_and_presets(
    database: Database, organization_id: str, other_id: str
) -> None:
    own, preset = await sound(database, organization_id), await sound(database, None)
    for owner, expected in ((organization_id, [own, preset]), (other_id, [None, preset])):
        for each, found in zip((own, preset), expected, strict=True):
            assert await database.read(lambda conn: sounds.get(conn, owner, each.id)) == found  # noqa: B023


async def test_deleting_a_sound_changes_the_agents_that_play_it(database: Database, organization_id: str) -> None:
    removed, kept = await sound(database, organization_id), await sound(database, organization_id)
    playing = [await agent(database, organization_id, removed.id) for _ in range(3)]
    others = [await agent(database, organization_id, each) for each in (kept.id, None)]
    assert await deleted(database, organization_id, removed.id)
    for old in playing:
        new = await again(database, old)
        assert new.background_sound_id is None
        assert new.updated_at > old.updated_at
    assert [await again(database, old) for old in others] == others
    assert await listed(database, organization_id) == [kept]


async def test_presets_and_foreign_sounds_are_not_deleted(
    database: Database, organization_id: str, other_id: str
) -> None:
    foreign = await sound(database, other_id)
    preset = await sound(database, None, at=NOON + timedelta(minutes=1))
    playing = await agent(database, organization_id, preset.id)
    for each in (foreign, preset):
        assert not await deleted(database, organization_id, each.id)
    assert await listed(database, other_id) == [preset, foreign]
    assert await again(database, playing) == playing


def test_removing_a_missing_file_succeeds(tmp_path: Path) -> None:
    size = sounds.write_file(tmp_path, "a", SAMPLES)
    assert path_of(tmp_path, "a").stat().st_size == size
    with capture_logs() as lines:
        for _ in range(2):
            sounds.remove_file(tmp_path, "a")
    assert not path_of(tmp_path, "a").exists()
    assert lines == []


def test_a_disk_error_raises_storage_unavailable_with_its_cause(tmp_path: Path) -> None:
    (tmp_path / "sounds").write_text("in the way")
    with pytest.raises(StorageUnavailable, match="a background sound cannot be written"):
        sounds.write_file(tmp_path, "a", SAMPLES)
    with capture_logs() as lines:
        sounds.remove_file(tmp_path, "a")
    assert [(line["event"], line["sound_id"]) for line in lines] == [("sound.file_not_removed", "a")]


def test_only_temporary_files_of_interrupted_writes_are_removed(tmp_path: Path) -> None:
    sounds.remove_temporary_files(tmp_path)
    sound_id = str(uuid4())
    sounds.write_file(tmp_path, sound_id, SAMPLES)
    folder = tmp_path / "sounds"
    for name in (".sound-x7", ".sounds", "notes.txt", "my.wav"):
        (folder / name).write_text("x")
        os.utime(folder / name, (0, 0))
    (folder / ".sound-x8").write_text("of another node, which writes it now")
    sounds.remove_temporary_files(tmp_path)
    kept = {f"{sound_id}.wav", ".sounds", "notes.txt", "my.wav", ".sound-x8"}
    assert {path.name for path in folder.iterdir()} == kept


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with the files of all presets, by id."""
    data_dir = tmp_path_factory.mktemp("rendered")
    (data_dir / "sounds").mkdir()
    for preset in PRESETS:
        write_wav(path_of(data_dir, presets.preset_id(preset.key)), preset.render())
    return data_dir


@pytest.fixture
async def started(database: Database, tmp_path: Path, rendered: Path) -> dict[str, float]:
    """A data directory after its first start, with copies of the files; returns their modification times, by id."""
    shutil.copytree(rendered / "sounds", tmp_path / "sounds")
    for sound_id, name in PRESET_IDS.items():
        size = path_of(tmp_path, sound_id).stat().st_size
        fields = BackgroundSoundFields(name=name, description=None, file_size=size, duration_ms=1000)
        await database.write(lambda conn: sounds.store_preset(conn, sound_id, fields))  # noqa: B023
    return _written(tmp_path)


def _written(data_dir: Path) -> dict[str, float]:
    return {path.stem: path.stat().st_mtime_ns for path in (data_dir / "sounds").iterdir()}


async def test_the_first_start_computes_every_preset_under_a_fixed_id(
    database: Database, organization_id: str, tmp_path: Path, rendered: Path
) -> None:
    await presets.install_presets(database, tmp_path)
    found = await listed(database, organization_id)
    assert {each.id: each.name for each in found} == PRESET_IDS
    assert set(_written(tmp_path)) == set(PRESET_IDS)
    for each in found:
        path = path_of(tmp_path, each.id)
        assert path.read_bytes() == path_of(rendered, each.id).read_bytes(), "the same each time"
        assert each.file_size == path.stat().st_size
        assert each.duration_ms == duration_seconds(await asyncio.to_thread(read_wav, path)) * 1000
        assert each.description
        assert each.organization_id is None


async def test_a_later_start_computes_no_preset(
    database: Database, organization_id: str, tmp_path: Path, started: dict[str, float]
) -> None:
    before = await listed(database, organization_id)
    await presets.install_presets(database, tmp_path)
    assert _written(tmp_path) == started
    assert await listed(database, organization_id) == before


@pytest.mark.parametrize("harm", ["file missing", "file cut short", "row missing"])
async def test_an_incomplete_preset_is_computed_again(
    database: Database, organization_id: str, tmp_path: Path, rendered: Path, started: dict[str, float], harm: str
) -> None:
    white_noise = "e018e47f-c3ea-5bf9-b139-83938a4854d5"
    path = path_of(tmp_path, white_noise)
    match harm:
        case "file missing":
            path.unlink()
        case "file cut short":
            path.write_bytes(path.read_bytes()[:-2])
        case _:
            table = tables.background_sounds
            await database.write(lambda conn: conn.execute(sa.delete(table).where(table.c.id == white_noise)))
    await presets.install_presets(database, tmp_path)
    assert path.read_bytes() == path_of(rendered, white_noise).read_bytes()
    assert {each.id for each in await listed(database, organization_id)} == set(PRESET_IDS)
    now = _written(tmp_path)
    assert [each for each in now if now[each] != started[each]] == [white_noise]


async def test_a_start_keeps_files_that_the_database_does_not_know(
    database: Database, tmp_path: Path, started: dict[str, float]
) -> None:
    unknown = str(uuid4())
    await asyncio.to_thread(sounds.write_file, tmp_path, unknown, SAMPLES)
    await presets.install_presets(database, tmp_path)
    assert _written(tmp_path).keys() == {*PRESET_IDS, unknown}


@pytest.mark.parametrize("table", ["background_sounds", "organizations"])
async def test_the_next_start_removes_the_file_of_a_deleted_sound(
    database: Database, organization_id: str, other_id: str, tmp_path: Path, started: dict[str, float], table: str
) -> None:
    own, kept = await sound(database, organization_id), await sound(database, other_id)
    for each in (own, kept):
        await asyncio.to_thread(sounds.write_file, tmp_path, each.id, SAMPLES)
    deleted_from: sa.Table = getattr(tables, table)
    item = own.id if table == "background_sounds" else organization_id
    await database.write(lambda conn: conn.execute(sa.delete(deleted_from).where(deleted_from.c.id == item)))
    await presets.install_presets(database, tmp_path)
    assert _written(tmp_path) == {**started, kept.id: path_of(tmp_path, kept.id).stat().st_mtime_ns}
    assert await database.read(sounds.pending_file_removals) == []


async def test_a_file_that_cannot_be_removed_is_removed_by_a_later_start(
    database: Database, organization_id: str, tmp_path: Path, started: dict[str, float]
) -> None:
    own = await sound(database, organization_id)
    path = path_of(tmp_path, own.id)
    path.mkdir()
    assert await deleted(database, organization_id, own.id)
    await presets.install_presets(database, tmp_path)
    assert await database.read(sounds.pending_file_removals) == [own.id]
    path.rmdir()
    await asyncio.to_thread(path.write_bytes, b"x")
    await presets.install_presets(database, tmp_path)
    assert _written(tmp_path) == started
    assert await database.read(sounds.pending_file_removals) == []


async def test_a_disk_error_is_logged_and_the_next_start_computes_the_presets(
    database: Database, organization_id: str, tmp_path: Path
) -> None:
    (tmp_path / "sounds").write_text("in the way")
    with capture_logs() as lines:
        await presets.install_presets(database, tmp_path)
    assert [(line["event"], line["log_level"]) for line in lines] == [("sounds.presets_not_made", "warning")]
    assert await listed(database, organization_id) == []
    (tmp_path / "sounds").unlink()
    await presets.install_presets(database, tmp_path)
    assert len(await listed(database, organization_id)) == 4


async def test_a_database_error_is_logged(tmp_path: Path) -> None:
    with capture_logs() as lines:
        await presets.install_presets(Database(f"sqlite+aiosqlite:///{tmp_path}/closed.db"), tmp_path)
    assert [(line["event"], line["cause"]) for line in lines] == [
        ("sounds.presets_not_stored", "storage: the database is not open")
    ]
