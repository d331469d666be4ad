"""API keys and the proof of the secret key."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from cryptography.fernet import Fernet

from config.clock import utc_now
from config.errors import Conflict, StartupError
from config.secrets import Secrets
from storage import api_keys, key_proof, organizations
from storage.database import Database


async def test_a_key_is_found_until_it_is_revoked(database: Database, organization_id: str) -> None:
    async with database.write() as conn:
        made, text = await api_keys.create(conn, organization_id, name="ci", requests_per_minute=5)
        assert await api_keys.find(conn, text) == made
        assert await api_keys.find(conn, text + "x") is None
        assert await api_keys.find(conn, text.upper()) is None
        revoked = await api_keys.revoke(conn, made.prefix)
        assert revoked is not None
        assert revoked.revoked_at is not None
        assert await api_keys.find(conn, text) is None
        assert await api_keys.revoke(conn, made.id) is None
        assert await api_keys.all_of(conn, organization_id) == [revoked]


async def test_the_key_itself_is_nowhere_in_the_file(database: Database, organization_id: str) -> None:
    async with database.write() as conn:
        made, text = await api_keys.create(conn, organization_id)
    assert text.startswith(f"{made.prefix}_")
    assert len(text) >= 50
    with closing(sqlite3.connect(database.path)) as conn:
        dump = "\n".join(conn.iterdump())
    assert made.prefix in dump
    assert text not in dump
    assert text.rpartition("_")[2] not in dump


async def test_the_last_use_is_kept(database: Database, organization_id: str) -> None:
    at = utc_now()
    async with database.write() as conn:
        made, text = await api_keys.create(conn, organization_id)
        await api_keys.touch(conn, {made.id: at, "unknown": at})
        found = await api_keys.find(conn, text)
    assert found is not None
    assert found.last_used_at == at


async def test_organizations_have_names_of_their_own(database: Database, organization_id: str) -> None:
    async with database.write() as conn:
        paid = await organizations.create(conn, "paying", plan="paid", balance=1.5, max_calls=7)
        with pytest.raises(Conflict, match="'paying' already exists"):
            await organizations.create(conn, "paying")
        assert await organizations.get(conn, paid.id) == paid
        assert await organizations.by_name(conn, "nobody") is None
        assert [each.name for each in await organizations.all_of(conn)] == ["default", "paying"]


async def test_another_secret_key_stops_the_start(database: Database) -> None:
    first, second = Fernet.generate_key(), Fernet.generate_key()
    async with database.write() as conn:
        await key_proof.check(conn, Secrets([first]))
        await key_proof.check(conn, Secrets([first]))
        await key_proof.check(conn, Secrets([second, first]))
        with pytest.raises(StartupError, match="secret_key_file is not the one"):
            await key_proof.check(conn, Secrets([second]))
