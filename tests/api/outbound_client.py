"""A client of POST /calls, and the call service that places the calls."""

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
from config.settings import Settings
from storage import tables
from storage.accounts import api_keys
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber
from tests.api.conftest import Api, Choices, Trouble
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.fakes.fake_leg import Callee
from tests.fakes.services import Services

TO = "+41441234567"


@dataclass
class Desk:
    """A client of the organization that has an agent and a number, and the call service."""

    api: Api
    harness: CallServiceHarness
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
        await until(lambda: len(self.harness.callees.called) > place)
        return self.harness.callees.called[place]

    async def number_has(self, **changes: Any) -> None:
        """Change the number in the database."""
        self.number = await self.harness.database.write(lambda conn: phone_numbers.replace(conn, self.number, changes))

    async def organization_has(self, **changes: Any) -> None:
        """Change the organization in the database."""
        change = sa.update(tables.organizations).where(tables.organizations.c.id == self.api.organization_id)
        await self.harness.database.write(lambda conn: conn.execute(change.values(**changes)))

    async def stored(self) -> list[Any]:
        """The organization's calls."""
        return list((await self.api("GET", "/calls"))[1]["data"])


async def _open(harness: CallServiceHarness, folder: Path) -> Desk:
    number, agent = await harness.create_number()
    owner = number.organization_id
    key = await harness.database.write(lambda conn: api_keys.create(conn, owner, requests_per_minute=100_000)[1])
    service, trouble = harness.service, Trouble()
    services = Services(
        settings=Settings(data_dir=folder),
        database=harness.database,
        secrets=harness.secrets,
        catalogue=Choices(),
        readiness=lambda: trouble.parts,
        live_calls=lambda: service.active_call_count,
        check_call_capacity=service.check_capacity,
        call_queued=service.start_queued_calls,
        hangup=service.hangup,
    )
    client = TestClient(TestServer(create_app(services)))
    await client.start_server()
    return Desk(Api(client, services, owner, key, trouble, []), harness, number, agent.id)


@pytest_asyncio.fixture
async def desk(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Desk]:
    """An open desk; `@pytest.mark.parametrize("desk", [{...}], indirect=True)` gives `call_service` its arguments."""
    async with call_service(tmp_path, **getattr(request, "param", {})) as harness:
        desk = await _open(harness, tmp_path)
        yield desk
        await desk.api.client.close()
