"""A webhook receiver that fails by plan and records all requests."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self

from aiohttp import web

Behaviour = Literal["answers", "answers late", "status 500", "hangs", "drops", "redirects", "status 204"]
FAILURES: Final[tuple[Behaviour, ...]] = ("status 500", "hangs", "drops", "redirects", "status 204")
SUCCESSES: Final[tuple[Behaviour, ...]] = ("answers", "answers", "answers late")
LATE_S: Final = 0.2


@dataclass(frozen=True)
class ReceivedRequest:
    """A received request. Times are of the system's monotonic clock, s: `answered_s` is that of the response or of the
    dropped connection, which the sender knows only later; for a request that hangs, it is `received_s`."""

    delivery_id: str
    attempt: int
    call_id: str
    behaviour: Behaviour
    received_s: float
    answered_s: float
    body_sha256: str
    signatures_valid: bool
    source: str = ""
    """The address of the sender."""

    @property
    def succeeded(self) -> bool:
        """True if the response was status 200."""
        return self.behaviour in SUCCESSES


def planned_behaviour(seed: int, failed_attempts: Sequence[int], delivery_id: str, attempt: int) -> Behaviour:
    """The receiver's behaviour for an attempt, which is the same whenever it is repeated. The number of attempts of an
    event that fail is drawn from `failed_attempts`."""
    failures = random.Random(f"{seed} {delivery_id}").choice(failed_attempts)
    return random.Random(f"{seed} {delivery_id} {attempt}").choice(FAILURES if attempt <= failures else SUCCESSES)


def are_signatures_valid(headers: dict[str, str], body: bytes, secret: str) -> bool:
    """True if both signatures are those of the body with this secret."""
    signed = f"{headers.get('webhook-id')}.{headers.get('webhook-timestamp')}.".encode() + body
    standard = base64.b64encode(hmac.digest(secret.encode(), signed, "sha256")).decode()
    plain = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return (headers.get("X-Service-Signature"), headers.get("webhook-signature")) == (plain, f"v1,{standard}")


@dataclass
class FaultyReceiver:
    """Listens on several ports of `host`, which are separate receivers for a sender."""

    secret: str
    seed: int
    timeout_s: float
    """The sender's response timeout."""
    failed_attempts: Sequence[int]
    """Numbers of failed attempts, one of which is drawn for each event."""
    requests: list[ReceivedRequest] = field(default_factory=list)
    redirected: int = 0
    """Requests to the target of the redirects."""
    urls: list[str] = field(default_factory=list)
    host: str = "127.0.0.1"

    async def listen(self, ports: int) -> Self:
        """Opens the ports."""
        app = web.Application()
        app.router.add_post("/hook", self._receive)
        app.router.add_route("*", "/redirected", self._receive_redirected)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        for _ in range(ports):
            await web.TCPSite(self._runner, self.host, 0).start()
        self.urls = [f"http://{self.host}:{address[1]}/hook" for address in self._runner.addresses]
        return self

    async def close(self) -> None:
        """Closes the ports."""
        await self._runner.cleanup()

    async def _receive_redirected(self, request: web.Request) -> web.Response:
        self.redirected += 1
        return web.Response()

    async def _receive(self, request: web.Request) -> web.Response:
        body = await request.read()
        received_s = time.monotonic()
        headers = dict(request.headers)
        delivery_id, attempt = headers["X-Service-Delivery"], int(headers["X-Service-Attempt"])
        behaviour = planned_behaviour(self.seed, self.failed_attempts, delivery_id, attempt)
        if behaviour == "answers late":
            await asyncio.sleep(LATE_S)
        received = ReceivedRequest(
            delivery_id=delivery_id,
            attempt=attempt,
            call_id=json.loads(body)["callId"],
            behaviour=behaviour,
            received_s=received_s,
            answered_s=received_s if behaviour == "hangs" else time.monotonic(),
            body_sha256=hashlib.sha256(body).hexdigest(),
            signatures_valid=are_signatures_valid(headers, body, self.secret),
            source=request.remote or "",
        )
        self.requests.append(received)
        return await self._respond(request, behaviour)

    async def _respond(self, request: web.Request, behaviour: Behaviour) -> web.Response:
        match behaviour:
            case "status 500" | "status 204":
                return web.Response(status=int(behaviour.removeprefix("status ")))
            case "redirects":
                return web.Response(status=307, headers={"Location": "/redirected"})
            case "drops" if request.transport is not None:
                request.transport.abort()
            case "hangs":
                await asyncio.sleep(1.5 * self.timeout_s)
        return web.Response()
