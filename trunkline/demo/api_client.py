"""What the demo does over HTTP: prepare an agent and a number, read calls, receive the webhook."""

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
"""Where the demo's caller phones from."""
AUDIBLE: Final = 200
"""Peak from which on 20 ms of a recording count as sound (int16)."""


@dataclass(frozen=True)
class RecordingFacts:
    """What is in a recording: seconds in all, and with sound on either channel."""

    channels: int
    rate: int
    seconds: float
    caller_s: float
    agent_s: float


class Api:
    """A client of our own API, as any integrator would write it."""

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
        """`data` of the response. Raises `StartupError` with the API's own words."""
        async with self._session.request(method, path, json=body) as response:
            answer = await response.json()
            if response.status >= 400:
                raise StartupError(f"{method} /v1/{path} answered {response.status}: {answer}")
            return answer["data"]

    async def calls(self) -> list[dict[str, Any]]:
        """The newest calls."""
        found: list[dict[str, Any]] = await self.request("GET", "calls?limit=5")
        return found

    async def call(self, call_id: str) -> dict[str, Any]:
        """One call with its transcript."""
        call: dict[str, Any] = await self.request("GET", f"calls/{call_id}")
        return call

    async def timeline(self, call_id: str) -> list[dict[str, Any]]:
        """The turns of a call."""
        timeline = await self.request("GET", f"calls/{call_id}/timeline")
        turns: list[dict[str, Any]] = timeline["turns"]
        return turns

    async def recording(self, call_id: str) -> RecordingFacts:
        """Fetch a recording and measure it."""
        async with self._session.get(f"calls/{call_id}/recording") as response:
            if response.status != 200:
                return RecordingFacts(0, 0, 0.0, 0.0, 0.0)
            return _measure(await response.read())


def _measure(wav: bytes) -> RecordingFacts:
    with wave.open(io.BytesIO(wav)) as file:
        rate, channels, frames = file.getframerate(), file.getnchannels(), file.getnframes()
        sound = np.frombuffer(file.readframes(frames), "<i2").reshape(-1, channels)
    block = rate // 50
    whole = sound[: len(sound) // block * block].reshape(-1, block, channels).astype(np.int32)
    audible = (np.abs(whole).max(axis=1) >= AUDIBLE).sum(axis=0) / 50
    return RecordingFacts(channels, rate, frames / rate, float(audible[0]), float(audible[-1]))


class WebhookReceiver:
    """A receiver on loopback that checks every signature."""

    def __init__(self) -> None:
        self.secret = secrets.token_urlsafe(24)
        self.refused = 0
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
        """The verified payload about a call, once it comes."""
        return self._payloads.setdefault(call_id, asyncio.get_running_loop().create_future())

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        expected = hmac.new(self.secret.encode(), body, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(expected, request.headers.get("X-Service-Signature", "")):
            self.refused += 1
            return web.Response(status=401)
        payload = json.loads(body)
        future = self.payload_of(payload["callId"])
        if not future.done():
            future.set_result(payload)
        return web.Response(status=200)


async def prepare(
    server: Server, receiver: WebhookReceiver, *, number: str, agent: dict[str, Any], tool: dict[str, Any]
) -> tuple[str, str]:
    """The demo's organization, its tool, its agent and its number; a fresh API key (older ones of the demo end) and the
    agent's id."""
    key = await _fresh_key(server)
    hook = {"postCallWebhookUrl": receiver.url, "postCallWebhookSecret": receiver.secret}
    trunk: dict[str, Any] = {
        "name": "Demo",
        "number": number,
        "provider": "sip",
        "sipMode": "ip_allowlist",
        "sipIp": HOST,
        "sipQualifySeconds": 0,  # the caller's telephone takes no calls
    }
    async with Api(server.api_origin, key) as api:
        tool_id = await _kept(api, "tools", "name", tool)
        agent_id = await _kept(api, "agents", "name", {**agent, **hook, "toolIds": [tool_id]})
        await _kept(api, "phone-numbers", "number", {**trunk, "agentId": agent_id})
    return key, agent_id


async def _kept(api: Api, kind: str, key: str, body: dict[str, Any]) -> str:
    """The id of what has this `key`, made or brought up to date."""
    found = [each for each in await api.request("GET", kind) if each[key] == body[key]]
    made = (
        await api.request("PATCH", f"{kind}/{found[0]['id']}", body) if found else await api.request("POST", kind, body)
    )
    made_id: str = made["id"]
    return made_id


async def _fresh_key(server: Server) -> str:
    def renew(conn: sa.Connection) -> str:
        organization = organizations.by_name(conn, ORGANIZATION) or organizations.create(conn, ORGANIZATION)
        for old in api_keys.all_of(conn, organization.id):
            if old.name == ORGANIZATION and old.revoked_at is None:
                api_keys.revoke(conn, old.id)
        trunk_grants.set_demo_organization(conn, organization.id)
        trunk_grants.allow(conn, organization.id, HOST, "*", actor=ORGANIZATION)
        return api_keys.create(conn, organization.id, name=ORGANIZATION, requests_per_minute=6000)[1]

    return await server.database.write(renew)
