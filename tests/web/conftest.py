"""Browsers for the tests of the dashboard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from config.clock import utc_now
from storage.accounts import organizations
from storage.database.database import Database
from storage.users import sessions, users
from storage.users.users import Role
from tests.api.conftest import Api, StartApi, api, start_api
from tests.peers import chromium
from tests.web.dashboard import Dashboard, dashboard
from trunkline.server.server import Server

__all__ = ["StartApi", "api", "start_api"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/web/"):
            item.add_marker(chromium.required)


def address(api: Api) -> str:
    """Returns the server's address without a path."""
    return str(api.client.make_url("/")).rstrip("/")


async def session_cookie(database: Database, organization_id: str | None, role: Role, name: str | None = None) -> str:
    """Returns the cookie of a session of a new user of an organization, named as the role unless otherwise said."""
    owner = None if role == "operator" else organization_id

    def create(conn: sa.Connection) -> str:
        known = users.by_name(conn, name or role)
        return sessions.create(conn, (known or users.create(conn, name or role, role, owner)).id, utc_now())

    return await database.write(create)


async def cookie_of_server(server: Server, role: Role = "owner") -> str:
    """Returns the cookie of a session of a user of the oldest organization of a complete server."""
    first = await server.database.read(lambda conn: organizations.all_of(conn)[0].id)
    return await session_cookie(server.database, first, role)


@asynccontextmanager
async def dashboard_of(api: Api, role: Role, name: str | None = None, **more: Any) -> AsyncIterator[Dashboard]:
    """A browser in which a new user with a role is signed in. `more`: see `dashboard`."""
    async with dashboard(
        address(api), await session_cookie(api.services.database, api.organization_id, role, name), **more
    ) as opened:
        yield opened


@pytest.fixture
async def signed_in(api: Api) -> AsyncIterator[Dashboard]:
    """A browser of an owner of `api`'s organization."""
    async with dashboard_of(api, "owner") as opened:
        yield opened
