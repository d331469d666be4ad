"""Organizations on a shared server, and the operator's commands."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.api_client import Client
from tests.trunkline.server_process import Server, command
from tests.trunkline.sip_phone import dialled

GREETING = {"firstSpeaker": "agent", "agentGreetingEnabled": True, "agentGreeting": "Hello."}


@dataclass
class Tenant:
    """An organization with an agent."""

    name: str
    key: str
    client: Client
    origin: str
    agent_id: str = ""

    async def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Send a request to `/v1`; returns status and JSON of the response."""
        headers = {"Authorization": f"Bearer {self.key}"}
        async with (
            aiohttp.ClientSession(headers=headers, trust_env=False) as session,
            session.request(method, f"{self.origin}/v1/{path}", json=body) as response,
        ):
            return response.status, await response.json()

    async def refused_fields(self, body: dict[str, Any]) -> list[str]:
        """Create a number, which must be rejected with 403; returns the fields that the response names."""
        trunk = {"provider": "sip", "sipMode": "ip_allowlist", "agentId": self.agent_id, **body}
        status, answer = await self.answer("POST", "phone-numbers", trunk)
        assert status == 403, answer
        return [each["field"] for each in answer["details"]]

    async def trunk_status(self, number_id: str) -> tuple[str, str]:
        """The number's `sipStatus` and `sipStatusDetail`."""
        found = await self.client.v1("GET", f"phone-numbers/{number_id}")
        return found["sipStatus"], found["sipStatusDetail"]

    async def dials(self, number_id: str, to: str) -> str:
        """Queue an outbound call; returns its id."""
        body = {"agentId": self.agent_id, "phoneNumberId": number_id, "to": to}
        return str((await self.client.v1("POST", "calls", body))["id"])


@asynccontextmanager
async def tenant(server: Server, name: str, key: str) -> AsyncIterator[Tenant]:
    """The organization of an API key, with a new agent that greets."""
    async with Client(server.origin, key, server.secrets) as client:
        made = Tenant(name, key, client, server.origin)
        made.agent_id = await client.agent(**GREETING)
        yield made


async def run(server: Server, *arguments: str, status: int = 0) -> str:
    """Run a command; returns its stdout, or its stderr if it must fail."""
    code, out, err = await command(*arguments, folder=server.data_dir.parent, environment=server.environment)
    assert code == status, err
    return err if status else out


async def listed(server: Server, *arguments: str) -> list[dict[str, Any]]:
    """Run a command with `--json`; returns the objects that it prints."""
    return [json.loads(line) for line in (await run(server, *arguments, "--json")).splitlines()]


async def is_answered(phone: RawPhone, number: str) -> None:
    """Call a number, wait for its answer, and hang up."""
    dialog = dialled(phone, number)
    phone.invite(dialog, phone.offer())
    await phone.complete_invite(dialog)
    await phone.bye(dialog)
