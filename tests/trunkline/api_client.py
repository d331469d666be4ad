"""Who uses the server's API in the tests of the whole server."""

from __future__ import annotations

from typing import Any, Self

import aiohttp


class Client:
    """A user of the API, with one organization's key."""

    def __init__(self, origin: str, key: str, secrets: set[str]) -> None:
        """`secrets` grows by those that are put into agents and numbers."""
        self._origin = origin
        self._secrets = secrets
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a path of the server, or of a whole address."""
        url = path if path.startswith("http") else f"{self._origin}{path}"
        async with self._session.get(url) as response:
            return response.status, await response.read()

    async def v1(self, method: str, path: str, body: Any = None) -> Any:
        """`data` of an answer that must be a success."""
        async with self._session.request(method, f"{self._origin}/v1/{path}", json=body) as response:
            answer = await response.json()
            assert response.status < 300, answer
            return answer["data"]

    async def status(self, method: str, path: str, body: Any = None) -> int:
        """The status of an answer, whatever it is."""
        async with self._session.request(method, f"{self._origin}/v1/{path}", json=body) as response:
            return response.status

    async def agent(self, **fields: Any) -> str:
        """Make an agent; returns its id."""
        self._secrets.update(fields[name] for name in ("postCallWebhookSecret",) if name in fields)
        made = await self.v1("POST", "agents", {"name": "agent", **fields})
        return str(made["id"])

    async def number(self, number: str, agent_id: str | None, **fields: Any) -> str:
        """Make a number on the trunk at 127.0.0.1, in the place of one that a first run of a test has left; returns its
        id."""
        self._secrets.update(fields[name] for name in ("sipPassword",) if name in fields)
        trunk = {"provider": "sip", "sipMode": "ip_allowlist", "sipIp": "127.0.0.1", "agentId": agent_id}
        fields = {"sipQualifySeconds": 0, **fields}  # nobody answers OPTIONS there
        body = {"number": number, **trunk, **fields}
        async with self._session.post(f"{self._origin}/v1/phone-numbers", json=body) as response:
            if response.status == 201:
                return str((await response.json())["data"]["id"])
        for left in await self.v1("GET", "phone-numbers?limit=100"):
            if left["number"] == number:
                await self.v1("DELETE", f"phone-numbers/{left['id']}")
        return str((await self.v1("POST", "phone-numbers", body))["id"])

    async def call(self, call_id: str) -> dict[str, Any]:
        """One call with its talk."""
        found: dict[str, Any] = await self.v1("GET", f"calls/{call_id}")
        return found

    async def recording(self, call_id: str) -> bytes:
        """The WAV file of a call."""
        status, body = await self.get(f"/v1/calls/{call_id}/recording")
        assert status == 200, body
        return body
