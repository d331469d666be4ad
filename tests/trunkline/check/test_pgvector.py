"""The check of a PostgreSQL database says whether it has pgvector."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from config.settings import Settings
from storage.database.database import Database
from tests.peers import postgresql
from trunkline.check import check


async def test_the_check_of_the_database_says_how_it_is_searched_by_meaning(tmp_path: Path) -> None:
    server = await asyncio.to_thread(postgresql.server_with_pgvector)
    if server is None:
        pytest.skip("no PostgreSQL with pgvector is installed")
    url = await asyncio.to_thread(server.take_database)
    settings = Settings().with_changes({"data_dir": tmp_path, "database": {"url": url}})
    name = Database(url).name

    async def line() -> str:
        shown, _, text = (await check._database(settings)).partition("\n")
        assert shown == name
        return text

    assert await line() == (
        "knowledge by meaning: pgvector is not used: vectors are compared in the server's memory "
        "(the extension is not in the database: CREATE EXTENSION vector)"
    )
    await asyncio.to_thread(server.execute, "CREATE EXTENSION vector", str(make_url(url).database))
    assert (await line()).startswith("knowledge by meaning: pgvector is used (version 0.")
