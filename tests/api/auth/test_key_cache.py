"""Cache of API keys: emptied by every change of the database, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from api.auth.key_cache import ApiKeyCache
from storage.accounts import api_keys, organizations
from storage.database.database import Database
from tests import database_template
from tests.api.conftest import Api


@pytest.fixture
def reads(api: Api, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The number of reads of the database."""
    counted: list[None] = []
    usual = Database.read

    async def read(self: Database, work: Any, **_more: Any) -> Any:
        counted.append(None)
        return await usual(self, work)

    monkeypatch.setattr(Database, "read", read)
    return lambda: len(counted)


def _revoke(conn: sa.Connection) -> None:
    (key,) = api_keys.all_of(conn)
    api_keys.revoke(conn, key.id)


async def test_a_cached_key_is_not_read_again(api: Api, reads: Callable[[], int]) -> None:
    keys = ApiKeyCache(api.services.database)
    await database_template.settled(api.services.database)
    first = await keys.find(api.key)
    assert first is not None
    assert [await keys.find(api.key) for _ in range(5)] == [first] * 5
    assert reads() == 1


async def test_a_revoked_key_is_rejected_at_once(api: Api) -> None:
    keys = ApiKeyCache(api.services.database)
    assert await keys.find(api.key) is not None
    await api.services.database.write(_revoke)
    assert await keys.find(api.key) is None


async def test_a_key_that_another_process_revokes_is_rejected_at_once(api: Api) -> None:
    keys = ApiKeyCache(api.services.database)
    assert await keys.find(api.key) is not None
    elsewhere = Database(str(api.services.database.url))
    await elsewhere.open()
    await elsewhere.write(_revoke)
    await elsewhere.close()
    assert await keys.find(api.key) is None


async def test_a_key_that_is_revoked_while_it_is_read_is_not_cached(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ApiKeyCache(api.services.database)
    usual = Database.read

    async def read(self: Database, work: Any, **_more: Any) -> Any:
        found = await usual(self, work)
        await self.write(_revoke)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Database, "read", read)
        assert await keys.find(api.key) is not None, "it held when it was read"
    assert await keys.find(api.key) is None


async def test_an_unknown_key_is_not_cached(api: Api, reads: Callable[[], int]) -> None:
    keys = ApiKeyCache(api.services.database)
    assert [await keys.find(f"tk_{number}") for number in range(3)] == [None] * 3
    assert reads() == 3


async def test_a_key_that_is_created_later_is_accepted_at_once(api: Api) -> None:
    keys = ApiKeyCache(api.services.database)
    assert await keys.find(api.key) is not None

    def another(conn: sa.Connection) -> str:
        (owner,) = organizations.all_of(conn)
        return api_keys.create(conn, owner.id)[1]

    key = await api.services.database.write(another)
    assert (await keys.find(key)) is not None


async def test_concurrent_requests_get_the_same_key(api: Api) -> None:
    keys = ApiKeyCache(api.services.database)
    found = await asyncio.gather(*(keys.find(api.key) for _ in range(20)))
    assert len({key.id for key in found if key is not None}) == 1
    assert None not in found
