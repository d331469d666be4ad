"""Texts with U+0000, which PostgreSQL does not store."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from storage.accounts import organizations
from storage.database.database import Database
from tests.peers import postgresql


@pytest.mark.parametrize("text", ["a\0b", "\0"])
async def test_postgresql_stores_and_compares_u_fffd_in_its_place(text: str) -> None:
    database = Database(_url())
    await database.open()
    try:
        made = await database.write(lambda conn: organizations.create(conn, text))
        found = await database.read(lambda conn: organizations.by_name(conn, text))
        assert found is not None
        assert (found.id, found.name) == (made.id, text.replace("\0", "\ufffd"))
        listed = sa.text("SELECT count(*) FROM organizations WHERE name = ANY(CAST(:names AS text[]))")
        assert await database.read(lambda conn: conn.execute(listed, {"names": ["x", text]}).scalar_one()) == 1
    finally:
        await database.close()


@pytest.fixture(scope="module", autouse=True)
def _server() -> None:
    postgresql.server().take_database()


def _url() -> str:
    return postgresql.server().take_database()
