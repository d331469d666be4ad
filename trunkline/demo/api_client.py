"""The demo's API client and webhook receiver, and the set-up of its organization, agent and phone number."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import json
import secrets
import wave
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import numpy as np
import sqlalchemy as sa
from aiohttp import web

from config.errors import StartupError
from storage.accounts import api_keys, organizations
from storage.phone_numbers import trunk_grants
from trunkline.server.server import Server

ORGANIZATION: Final = "demo"
HOST: Final = "127.0.0.1"
"""The source address of the scripted caller."""
MIN_AUDIBLE_PEAK: Final = 200
"""Smallest peak of 20 ms of a recording that count as audible (int16)."""


@dataclass(frozen=True)
class RecordingSummary:
    """A recording's format, its length, and the seconds in which either side is audible."""

    channels: int
    rate: int
    seconds: float
    caller_s: float
    agent_s: float


class ApiClient:
    """A client of the server's HTTP API."""

    def __init__(self, origin: str, key: str) -> None:
        self._session = aiohttp.ClientSession(
            base_url=f"{origin}/v1/", headers={"Authorization": f"Bearer {key}"}, trust_env=False
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request; returns the `data` of the response. Raises `StartupError` with the body of an error."""
        async with self._session.request(method, path, json=body) as response:
            content = await response.json()
            if response.status >= 400:
                raise StartupError(f"{method} /v1/{path} returned {response.status}: {content}")
            return content["data"]

    async def calls(self) -> list[dict[str, Any]]:
        """The newest calls."""
        calls: list[dict[str, Any]] = await self.request("GET", "calls?limit=5")
        return calls

    async def call(self, call_id: str) -> dict[str, Any]:
        """A call with its transcript."""
        call: dict[str, Any] = await self.request("GET", f"calls/{call_id}")
        return call

    async def timeline(self, call_id: str) -> list[dict[str, Any]]:
        """The turns of a call's timeline."""
        timeline = await self.request("GET", f"calls/{call_id}/timeline")
        turns: list[dict[str, Any]] = timeline["turns"]
        return turns

    async def recording(self, call_id: str) -> RecordingSummary:
        """Download and measure a call's recording; all zero if there is none."""
        async with self._session.get(f"calls/{call_id}/recording") as response:
            if response.status != 200:
                return RecordingSummary(0, 0, 0.0, 0.0, 0.0)
            return _measure(await response.read())


def _measure(wav: bytes) -> RecordingSummary:
    with wave.open(io.BytesIO(wav)) as file:
        rate, channels, frames = file.getframerate(), file.getnchannels(), file.getnframes()
        samples = np.frombuffer(file.readframes(frames), "<i2").reshape(-1, channels)
    block = rate // 50
    blocks = samples[: len(samples) // block * block].reshape(-1, block, channels).astype(np.int32)
    audible_s = (np.abs(blocks).max(axis=1) >= MIN_AUDIBLE_PEAK).sum(axis=0) / 50
    return RecordingSummary(channels, rate, frames / rate, float(audible_s[0]), float(audible_s[-1]))


class WebhookReceiver:
    """A webhook receiver on loopback that verifies signatures. `rejected`: requests with a wrong one."""

    def __init__(self) -> None:
        self.secret = secrets.token_urlsafe(24)
        self.rejected = 0
        self._payloads: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/webhook", self._receive)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/webhook"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def payload_of(self, call_id: str) -> asyncio.Future[dict[str, Any]]:
        """The verified payload of a call's webhook, once it is received."""
        return self._payloads.setdefault(call_id, asyncio.get_running_loop().create_future())

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        expected = hmac.new(self.secret.encode(), body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected, request.headers.get("X-Service-Signature", "")):
            self.rejected += 1
            return web.Response(status=401)
        payload = json.loads(body)
        future = self.payload_of(payload["callId"])
        if not future.done():
            future.set_result(payload)
        return web.Response(status=200)


async def set_up(
    server: Server, receiver: WebhookReceiver, *, number: str, agent: dict[str, Any], tool: dict[str, Any]
) -> tuple[str, str]:
    """Create or update the demo's organization, tool, agent and phone number. Returns a new API key, which replaces
    older ones of the demo, and the agent's id."""
    key = await _renew_key(server)
    webhook = {"postCallWebhookUrl": receiver.url, "postCallWebhookSecret": receiver.secret}
    async with ApiClient(server.api_origin, key) as api:
        tool_id = await _upsert(api, "tools", "name", tool)
        agent_id = await _upsert(api, "agents", "name", {**agent, **webhook, "toolIds": [tool_id]})
        await store_number(api, {"number": number, "name": "Demo", "agentId": agent_id})
    return key, agent_id


async def store_number(api: ApiClient, fields: dict[str, Any]) -> str:
    """Create or update a phone number whose trunk is this machine; returns its id."""
    trunk: dict[str, Any] = {
        "provider": "sip",
        "sipMode": "ip_allowlist",
        "sipIp": HOST,
        "sipQualifySeconds": 0,  # the phones do not respond to OPTIONS between calls
    }
    return await _upsert(api, "phone-numbers", "number", {**trunk, **fields})


async def _upsert(api: ApiClient, kind: str, key: str, body: dict[str, Any]) -> str:
    """Create the resource, or update the one with the same value of the field `key`; returns its id."""
    existing = [each for each in await api.request("GET", kind) if each[key] == body[key]]
    if existing:
        stored = await api.request("PATCH", f"{kind}/{existing[0]['id']}", body)
    else:
        stored = await api.request("POST", kind, body)
    resource_id: str = stored["id"]
    return resource_id


async def _renew_key(server: Server) -> str:
    def renew(conn: sa.Connection) -> str:
        organization = organizations.by_name(conn, ORGANIZATION) or organizations.create(conn, ORGANIZATION)
        for old in api_keys.all_of(conn, organization.id):
            if old.name == ORGANIZATION and old.revoked_at is None:
                api_keys.revoke(conn, old.id)
        trunk_grants.set_demo_organization(conn, organization.id)
        trunk_grants.allow(conn, organization.id, HOST, "*", actor=ORGANIZATION)
        return api_keys.create(conn, organization.id, name=ORGANIZATION, requests_per_minute=6000)[1]

    return await server.database.write(renew)
