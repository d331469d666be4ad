"""The one-time link of the first operator, which a start prints while nobody has a password."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from config.clock import utc_now
from storage.users import administration, password_links, users
from tests.api.conftest import Api, StartApi, api, start_api
from trunkline.server import startup
from trunkline.user_admin import FIRST_OPERATOR, first_operator_address

__all__ = ["StartApi", "api", "start_api"]


async def test_the_link_is_given_until_someone_has_a_password(api: Api) -> None:
    database = api.services.database
    first, second = [await first_operator_address(database, "http://localhost:8080") for _ in range(2)]
    assert first is not None and second is not None and first != second
    assert second.startswith("http://localhost:8080/welcome?token=")
    token = second.rpartition("=")[2]
    user = await database.write(lambda conn: password_links.set_password(conn, token, "hash", utc_now()))
    assert user is not None and (user.name, user.role) == (FIRST_OPERATOR, "operator")
    assert await first_operator_address(database, "http://localhost:8080") is None


async def test_other_users_without_a_password_keep_the_link_away_from_nobody(api: Api) -> None:
    await api.services.database.write(lambda conn: users.create(conn, "anna", "owner", api.organization_id))
    assert await first_operator_address(api.services.database, "http://localhost") is None


async def test_a_start_without_a_terminal_logs_a_command_that_works(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    database = api.services.database
    server: Any = SimpleNamespace(database=database, api_origin="http://localhost")
    monkeypatch.setattr("sys.stdout", io.StringIO())

    async def logged() -> list[str]:
        with structlog.testing.capture_logs() as logs:
            await startup._tell_first_operator(server)
        return [each["command"] for each in logs if each["event"] == "dashboard.no_user"]

    assert await logged() == ["trunkline user create admin --operator"]
    await database.write(lambda conn: administration.create(conn, "admin", "operator", None))
    assert await logged() == ["trunkline user reset admin"]
    found = await database.read(lambda conn: users.by_name(conn, "admin"))
    assert found is not None
    token = await database.write(lambda conn: administration.reset(conn, found))
    await database.write(lambda conn: password_links.set_password(conn, token, "hash", utc_now()))
    assert await logged() == []


async def test_a_full_disk_does_not_stop_the_start(start_api: StartApi) -> None:
    api: Api = await start_api()
    await api.services.database.close()
    assert await first_operator_address(api.services.database, "http://localhost") is None
