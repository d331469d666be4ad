"""API client of the tests of a complete server."""

from __future__ import annotations

from typing import Any, Self

import aiohttp


class Client:
    """A client of the API with the key of an organization."""

    def __init__(self, origin: str, key: str, secrets: set[str]) -> None:
        """`secrets`: the secrets of created agents and numbers are added to it."""
        self._origin = self.origin = origin
        self.key = key
        self._secrets = secrets
        self._session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def get(self, path: str) -> tuple[int, bytes]:
        """GET a path of the server, or a URL; returns status and body."""
        url = path if path.startswith("http") else f"{self._origin}{path}"
        async with self._session.get(url) as response:
            return response.status, await response.read()

    async def v1(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request that must succeed to `/v1`; returns the `data` of the response."""
        async with self._session.request(method, f"{self._origin}/v1/{path}", json=body) as response:
            content = await response.json()
            assert response.status < 300, content
            return content["data"]

    async def status(self, method: str, path: str, body: Any = None) -> int:
        """Send a request to `/v1`; returns the status of the response."""
        async with self._session.request(method, f"{self._origin}/v1/{path}", json=body) as response:
            return response.status

    async def agent(self, **fields: Any) -> str:
        """Create an agent; returns its id."""
        self._secrets.update(fields[name] for name in ("postCallWebhookSecret",) if name in fields)
        agent = await self.v1("POST", "agents", {"name": "agent", **fields})
        return str(agent["id"])

    async def number(self, number: str, agent_id: str | None, **fields: Any) -> str:
        """Create a number on the trunk at 127.0.0.1, after deleting one of the same name from an earlier run of the
        test; returns its id."""
        self._secrets.update(fields[name] for name in ("sipPassword",) if name in fields)
        trunk = {"provider": "sip", "sipMode": "ip_allowlist", "sipIp": "127.0.0.1", "agentId": agent_id}
        fields = {"sipQualifySeconds": 0, **fields}  # no peer responds to OPTIONS
        body = {"number": number, **trunk, **fields}
        async with self._session.post(f"{self._origin}/v1/phone-numbers", json=body) as response:
            if response.status == 201:
                return str((await response.json())["data"]["id"])
        for existing in await self.v1("GET", "phone-numbers?limit=100"):
            if existing["number"] == number:
                await self.v1("DELETE", f"phone-numbers/{existing['id']}")
        return str((await self.v1("POST", "phone-numbers", body))["id"])

    async def call(self, call_id: str) -> dict[str, Any]:
        """A call with its transcript."""
        call: dict[str, Any] = await self.v1("GET", f"calls/{call_id}")
        return call

    async def recording(self, call_id: str) -> bytes:
        """The WAV file of a call."""
        status, body = await self.get(f"/v1/calls/{call_id}/recording")
        assert status == 200, body
        return body
