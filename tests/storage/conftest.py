"""A real database in a temporary folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.accounts import organizations
from storage.database.database import Database
from tests import database_template


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await database_template.open_copy(tmp_path)
    yield opened
    await opened.close()


@pytest.fixture
async def organization_id(database: Database) -> str:
    return (await database.write(lambda conn: organizations.create(conn, "default"))).id
