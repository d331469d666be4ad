"""A client that has calls made, and the house that makes them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa
from aiohttp.test_utils import TestClient, TestServer

from api.app import create_app
from api.services import Services
from config.settings import Settings
from storage import tables
from storage.accounts import api_keys
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber
from tests.api.conftest import Api, Choices, Trouble
from tests.calls.call_service_harness import House, open_house, until
from tests.fakes.fake_leg import Callee

TO = "+41441234567"


@dataclass
class Desk:
    """A client of the organization that has an agent and a number, and the house that holds the calls."""

    api: Api
    house: House
    number: PhoneNumber
    agent_id: str

    @property
    def least(self) -> dict[str, Any]:
        """The smallest body."""
        return {"agentId": self.agent_id, "phoneNumberId": self.number.id, "to": TO}

    async def calls(self, body: dict[str, Any] | None = None, **more: Any) -> tuple[int, Any]:
        """POST /calls."""
        return await self.api("POST", "/calls", {**self.least, **(body or {})}, **more)

    async def callee(self, place: int = 0) -> Callee:
        """Wait until somebody is called."""
        await until(lambda: len(self.house.callees.called) > place)
        return self.house.callees.called[place]

    async def number_has(self, **changes: Any) -> None:
        """Change the number in the database."""
        self.number = await self.house.database.write(lambda conn: phone_numbers.replace(conn, self.number, changes))

    async def organization_has(self, **changes: Any) -> None:
        """Change the organization in the database."""
        change = sa.update(tables.organizations).where(tables.organizations.c.id == self.api.organization_id)
        await self.house.database.write(lambda conn: conn.execute(change.values(**changes)))

    async def stored(self) -> list[Any]:
        """The organization's calls."""
        return list((await self.api("GET", "/calls"))[1]["data"])


async def _open(house: House, folder: Path) -> Desk:
    number, agent = await house.number()
    owner = number.organization_id
    key = await house.database.write(lambda conn: api_keys.create(conn, owner, requests_per_minute=100_000)[1])
    service, trouble = house.service, Trouble()
    services = Services(
        settings=Settings(data_dir=folder),
        database=house.database,
        secrets=house.secrets,
        catalogue=Choices(),
        readiness=lambda: trouble.parts,
        live_calls=lambda: service.live_calls,
        check_room=service.check_room,
        call_queued=service.start_queued_calls,
        hangup=service.hangup,
    )
    client = TestClient(TestServer(create_app(services)))
    await client.start_server()
    return Desk(Api(client, services, owner, key, trouble, []), house, number, agent.id)


@pytest_asyncio.fixture
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """An open desk; `@pytest.mark.parametrize("desk", [{...}], indirect=True)` gives `open_house` its arguments."""
    async with open_house(tmp_path, **getattr(request, "param", {})) as house:
        desk = await _open(house, tmp_path)
        yield desk
        await desk.api.client.close()
