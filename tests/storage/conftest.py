"""A real database in a temporary folder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.accounts import organizations
from storage.database.database import Database
from tests import database_template
from tests.peers import postgresql

SQLITE_ALONE = ("tests.storage.database", "tests.storage.document_reader")
"""Packages of tests that are about files of SQLite, or about no database."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with a database on both engines, unless it is marked as `sqlite`."""
    if "database" in metafunc.fixturenames:
        is_alone = metafunc.module.__name__.startswith(SQLITE_ALONE) or metafunc.definition.get_closest_marker("sqlite")
        metafunc.parametrize("database", ["sqlite"] if is_alone else ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
async def database(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Database]:
    if request.param == "sqlite":
        opened = await database_template.open_copy(tmp_path)
        yield opened
        await opened.close()
        return
    server = await asyncio.to_thread(postgresql.server)
    url = await asyncio.to_thread(server.take_database)
    opened = Database(url)
    await opened.open()
    yield opened
    await opened.close()
    await asyncio.to_thread(server.give_back, url)


@pytest.fixture
async def organization_id(database: Database) -> str:
    return (await database.write(lambda conn: organizations.create(conn, "default"))).id
