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
from tests.api.conftest import Api, Readiness, fake_catalogue
from tests.calls.call_service_harness import CallServiceHarness, call_service, until
from tests.fakes.fake_leg import Callee
from tests.fakes.services import Services

TO = "+41441234567"


@dataclass
class OutboundClient:
    """A client of POST /calls for an organization with an agent and a phone number, and the call service."""

    api: Api
    harness: CallServiceHarness
    number: PhoneNumber
    agent_id: str

    @property
    def minimal_body(self) -> dict[str, Any]:
        """The smallest body."""
        return {"agentId": self.agent_id, "phoneNumberId": self.number.id, "to": TO}

    async def post_call(self, body: dict[str, Any] | None = None, **more: Any) -> tuple[int, Any]:
        """POST /calls with the minimal body and these fields."""
        return await self.api("POST", "/calls", {**self.minimal_body, **(body or {})}, **more)

    async def wait_for_callee(self, index: int = 0) -> Callee:
        """Wait until the callee with this index is called."""
        await until(lambda: len(self.harness.callees.dialled) > index)
        return self.harness.callees.dialled[index]

    async def update_number(self, **changes: Any) -> None:
        """Change the number in the database."""
        self.number = await self.harness.database.write(lambda conn: phone_numbers.replace(conn, self.number, changes))

    async def update_organization(self, **changes: Any) -> None:
        """Change the organization in the database."""
        change = sa.update(tables.organizations).where(tables.organizations.c.id == self.api.organization_id)
        await self.harness.database.write(lambda conn: conn.execute(change.values(**changes)))

    async def list_calls(self) -> list[Any]:
        """GET /calls."""
        return list((await self.api("GET", "/calls"))[1]["data"])


async def _open(harness: CallServiceHarness, folder: Path) -> OutboundClient:
    number, agent = await harness.create_number()
    owner = number.organization_id
    key = await harness.database.write(lambda conn: api_keys.create(conn, owner, requests_per_minute=100_000)[1])
    service, readiness = harness.service, Readiness()
    services = Services(
        settings=Settings(data_dir=folder),
        database=harness.database,
        secrets=harness.secrets,
        catalogue=fake_catalogue(),
        readiness=lambda: readiness.parts,
        live_calls=lambda: service.active_call_count,
        check_call_capacity=service.check_capacity,
        call_queued=service.start_queued_calls,
        hangup=service.hangup,
    )
    client = TestClient(TestServer(create_app(services)))
    await client.start_server()
    return OutboundClient(Api(client, services, owner, key, readiness, []), harness, number, agent.id)


@pytest_asyncio.fixture
async def outbound(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OutboundClient]:
    """A client; `@pytest.mark.parametrize("outbound", [{...}], indirect=True)` gives `call_service` its arguments."""
    async with call_service(tmp_path, **getattr(request, "param", {})) as harness:
        client = await _open(harness, tmp_path)
        yield client
        await client.api.client.close()
