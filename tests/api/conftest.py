"""A real server of the API on loopback with a real database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from cryptography.fernet import Fernet

from api.app import create_app
from calls.http_egress.client import HttpEgressClient
from config.secrets import Secrets
from config.settings import Settings
from models.loading.catalogue import Catalogue, LanguageModelInfo, language_model_id
from storage.accounts import api_keys, organizations
from storage.database.database import Database
from storage.database.disk_space import DiskSpace
from tests import database_template
from tests.fakes.fake_models import listed_models
from tests.fakes.services import MUSIC_AT_EVERY_URL, Services


def fake_catalogue() -> Catalogue:
    """A catalogue with two voices and one language model."""
    model = LanguageModelInfo(language_model_id("responder"), "responder", "builtin", 4096, True)
    return listed_models(["flite/slt", "flite/rms"], [model])


@dataclass
class Readiness:
    """The readiness of the server's parts; tests change it."""

    parts: dict[str, str | None] = field(default_factory=lambda: {"sip": None, "models": None})


@dataclass
class Api:
    """A client with the key of one organization."""

    client: TestClient[Any, Any]
    services: Services
    organization_id: str
    key: str
    readiness: Readiness
    number_changes: list[None]
    webhook_wakes: list[None] = field(default_factory=list)

    async def __call__(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        """Returns status and JSON body of the response to a request below `/v1`."""
        response = await self.raw(method, path, body, **more)
        return response.status, await response.json()

    async def raw(self, method: str, path: str, body: Any = None, **more: Any) -> ClientResponse:
        headers = {"Authorization": f"Bearer {self.key}", **more.pop("headers", {})}
        if body is not None:
            more["json"] = body
        return await self.client.request(method, f"/v1{path}", headers=headers, **more)

    async def create(self, path: str, body: Any) -> dict[str, Any]:
        """POST, which must succeed; returns the created resource."""
        status, answer = await self("POST", path, body)
        assert status == 201, answer
        data: dict[str, Any] = answer["data"]
        return data

    async def as_another_organization(self, requests_per_minute: int = 100_000) -> Api:
        """Returns a client with the key of another, new organization."""
        other, key = await _organization(self.services.database, "other", requests_per_minute)
        return replace(self, organization_id=other, key=key)


async def _organization(database: Database, name: str, requests_per_minute: int | None) -> tuple[str, str]:
    """Creates an organization; returns its id and a key."""

    def create(conn: sa.Connection) -> tuple[str, str]:
        created = organizations.create(conn, name)
        return created.id, api_keys.create(conn, created.id, requests_per_minute=requests_per_minute)[1]

    return await database.write(create)


StartApi = Callable[..., Any]


@asynccontextmanager
async def api_servers(folder: Path) -> AsyncIterator[StartApi]:
    """What starts servers whose data is in a folder: see `start_api`."""
    started: list[tuple[TestClient[Any, Any], Database]] = []
    urls: list[str | None] = []
    """The databases that were created; the last one is that of the next server, unless `fresh`."""
    secrets = Secrets([Fernet.generate_key()])

    async def start(
        changes: dict[str, Any] | None = None,
        requests_per_minute: int | None = 100_000,
        now_s: Callable[[], float] = time.time,
        fresh: bool = True,
        disk: Callable[[Database], DiskSpace | None] = lambda _: None,
        http_client: HttpEgressClient = MUSIC_AT_EVERY_URL,
        catalogue: Catalogue | None = None,
        **more: Any,
    ) -> Api:
        settings = Settings(data_dir=folder).with_changes({"trunks": {"policy": "open"}}).with_changes(changes or {})
        if fresh:
            urls.append(await asyncio.to_thread(database_template.url_of_copy, folder))
        if settings.database.url is None and urls:
            settings = settings.with_changes({"database": {"url": urls[-1]}})
        database = Database(settings.database_url)
        await database.open()
        owner, key = await _organization(database, "default" if fresh else "later", requests_per_minute)
        readiness, number_changes, webhook_wakes = Readiness(), list[None](), list[None]()
        services = Services(
            settings=settings,
            database=database,
            secrets=secrets,
            catalogue=catalogue or fake_catalogue(),
            readiness=lambda: readiness.parts,
            live_calls=lambda: 3,
            phone_numbers_changed=lambda: number_changes.append(None),
            webhook_queued=lambda: webhook_wakes.append(None),
            disk=disk(database),
            http_client=http_client,
            **more,
        )
        client = TestClient(TestServer(create_app(services, now_s)))
        started.append((client, database))
        await client.start_server()
        return Api(client, services, owner, key, readiness, number_changes, webhook_wakes)

    yield start
    for client, database in started:
        await client.close()
        await database.close()


@pytest.fixture
async def start_api(tmp_path: Path) -> AsyncIterator[StartApi]:
    """Starts a server with changed settings: `await start_api({"limits": {...}})`. By default any organization may use
    any trunk. Other arguments are fields of `Services`."""
    async with api_servers(tmp_path) as start:
        yield start


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """One server for the tests of a module that run in its loop, `asyncio(loop_scope="module")`: for those of many
    parameters that store nothing, or nothing that others count."""
    async with api_servers(tmp_path_factory.mktemp("api")) as start:
        started: Api = await start()
        yield started


@pytest.fixture
async def api(start_api: StartApi) -> Api:
    started: Api = await start_api()
    return started
