"""Data directories of released versions (`released/`, made by `make_release_data.py`) open in this version, with all
their rows and files."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from config.settings import Settings
from storage.accounts import api_keys, organizations
from storage.database.sqlite import migrate
from storage.tables import metadata
from tests.fakes.fake_models import ready_models
from tests.trunkline.api_client import Client
from tests.trunkline.server_process import LOOPBACK, merged
from tests.trunkline.upgrade.make_release_data import RELEASED, tables_of
from trunkline.backup.restore import restore
from trunkline.server.startup import running_server

ARCHIVES = sorted(RELEASED.glob("*.tar.gz"))
LISTS = ("agents", "tools", "phone-numbers", "background-sounds", "calls")


def _counts(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as conn:
        return {table: conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables_of(conn)}


def _problems(path: Path) -> list[object]:
    """Differences from the tables of this version, broken references and damages."""
    options = {"compare_type": True, "include_name": lambda name, *_: not str(name).startswith("knowledge_index")}
    engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.pool.NullPool)
    with engine.connect() as conn:
        differences = compare_metadata(MigrationContext.configure(conn, opts=options), metadata)
        broken = conn.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        damage = conn.exec_driver_sql("PRAGMA integrity_check").scalar_one()
    return [*differences, *broken, *([] if damage == "ok" else [damage])]


def _restored(archive: Path, data_dir: Path) -> Settings:
    """A data directory of the released version, as a backup of it holds it."""
    settings = Settings(data_dir=data_dir).with_changes(
        merged(LOOPBACK, {"sip": {"port": 0}, "api": {"port": 0}, "standby": True})
    )
    restored = restore(settings, str(archive))
    assert (restored.key_missing, restored.manifest.missing) == (None, [])
    return settings


def _create_key(conn: sa.Connection) -> str:
    owner = organizations.by_name(conn, "office")
    assert owner is not None
    return api_keys.create(conn, owner.id, requests_per_minute=100_000)[1]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=ARCHIVES, ids=lambda path: path.name)
async def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A client of a server of this version on the data, with a new key."""
    settings = await asyncio.to_thread(_restored, request.param, tmp_path_factory.mktemp("released") / "data")
    async with running_server(settings, ready_models) as server:
        key = await server.database.write(_create_key)
        async with Client(server.api_origin, key, set()) as client:
            yield client


def test_there_is_data_of_the_first_release() -> None:
    assert ARCHIVES[0].name == "0.1.0.tar.gz"


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_migrations_of_released_data_lose_no_row(archive: Path, tmp_path: Path) -> None:
    path = _restored(archive, tmp_path / "data").data_dir / "trunkline.db"
    before = _counts(path)
    assert all(before.values()), "each table of that version has a row"
    migrate.migrate(path)
    assert _problems(path) == []
    after = _counts(path)
    assert {table: after.get(table) for table in before} == before


@pytest.mark.asyncio(loop_scope="module")
async def test_a_server_serves_released_data(client: Client) -> None:
    items = {name: await client.v1("GET", name) for name in LISTS}
    assert all(items.values()), "each list has an item"
    for name in ("agents", "tools", "phone-numbers", "calls"):
        for item in items[name]:
            assert (await client.v1("GET", f"{name}/{item['id']}"))["id"] == item["id"]
    (talked,) = (call for call in items["calls"] if call["direction"] == "inbound")
    assert (await client.call(talked["id"]))["transferCalls"]
    assert len(await client.recording(talked["id"])) > 1000
    assert await client.v1("GET", f"calls/{talked['id']}/webhook-deliveries")
    (agent_id,) = {agent["id"] for agent in items["agents"] if agent["transferTargets"]}
    (document,) = await client.v1("GET", f"knowledge?agentId={agent_id}")
    assert document["status"] == "ready"
