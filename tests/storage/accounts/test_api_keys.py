"""API keys and the proof of the secret key."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from config.clock import utc_now
from config.errors import Conflict, StartupError
from config.secrets import Secrets
from storage.accounts import api_keys, organizations
from storage.accounts.api_keys import ApiKey
from storage.database import secret_key
from storage.database.database import Database


async def test_a_key_is_found_until_it_is_revoked(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        made, text = api_keys.create(conn, organization_id, name="ci", requests_per_minute=5)
        assert api_keys.find(conn, text) == made
        assert api_keys.find(conn, text + "x") is None
        assert api_keys.find(conn, text.upper()) is None
        revoked = api_keys.revoke(conn, made.prefix)
        assert revoked is not None
        assert revoked.revoked_at is not None
        assert api_keys.find(conn, text) is None
        assert api_keys.revoke(conn, made.id) is None
        assert api_keys.all_of(conn, organization_id) == [revoked]

    await database.write(check)


@pytest.mark.sqlite
async def test_the_text_of_a_key_is_not_stored(database: Database, organization_id: str) -> None:
    made, text = await database.write(lambda conn: api_keys.create(conn, organization_id))
    assert text.startswith(f"{made.prefix}_")
    assert len(text) >= 50

    def dumped() -> str:
        with closing(sqlite3.connect(database.path)) as conn:
            return "\n".join(conn.iterdump())

    dump = await asyncio.to_thread(dumped)
    assert made.prefix in dump
    assert text not in dump
    assert text.removeprefix(f"{made.prefix}_") not in dump


async def test_the_time_of_last_use_is_stored(database: Database, organization_id: str) -> None:
    at = utc_now()

    def use(conn: sa.Connection) -> ApiKey | None:
        made, text = api_keys.create(conn, organization_id)
        api_keys.set_last_used(conn, {made.id: at, "unknown": at})
        return api_keys.find(conn, text)

    found = await database.write(use)
    assert found is not None
    assert found.last_used_at == at


async def test_names_of_organizations_are_unique(database: Database, organization_id: str) -> None:
    def check(conn: sa.Connection) -> None:
        paid = organizations.create(conn, "paying", plan="paid", balance=1.5, max_calls=7)
        with pytest.raises(Conflict, match="'paying' already exists"):
            organizations.create(conn, "paying")
        assert organizations.get(conn, paid.id) == paid
        assert organizations.by_name(conn, "unknown") is None
        assert [each.name for each in organizations.all_of(conn)] == ["default", "paying"]

    await database.write(check)


async def test_a_secret_key_that_does_not_match_the_proof_raises_startup_error(database: Database) -> None:
    first, second = Fernet.generate_key(), Fernet.generate_key()

    def check(conn: sa.Connection) -> None:
        secret_key.verify(conn, Secrets([first]))
        secret_key.verify(conn, Secrets([first]))
        secret_key.verify(conn, Secrets([second, first]))
        with pytest.raises(StartupError, match="secret_key_file is not the one"):
            secret_key.verify(conn, Secrets([second]))

    await database.write(check)
