"""A webhook receiver that misbehaves by plan, and keeps a log of all that came."""

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

Kind = Literal["answers", "answers late", "status 500", "hangs", "drops", "redirects", "status 204"]
FAILURES: Final[tuple[Kind, ...]] = ("status 500", "hangs", "drops", "redirects", "status 204")
SUCCESSES: Final[tuple[Kind, ...]] = ("answers", "answers", "answers late")
LATE_S: Final = 0.2


@dataclass(frozen=True)
class Arrival:
    """A request that came. Times are of the system's monotonic clock, s: `at` when it was there, `ended` when it was
    answered or dropped, which is before its sender knew; of one that hangs, `at`."""

    delivery: str
    attempt: int
    call_id: str
    kind: Kind
    at: float
    ended: float
    sha256: str
    verified: bool

    @property
    def succeeded(self) -> bool:
        """It got status 200."""
        return self.kind in SUCCESSES


def planned(seed: int, failing: Sequence[int], delivery: str, attempt: int) -> Kind:
    """What becomes of an attempt: the same whenever it comes. So many attempts of an event fail as one of `failing`
    says, drawn by chance."""
    fails = random.Random(f"{seed} {delivery}").choice(failing)
    return random.Random(f"{seed} {delivery} {attempt}").choice(FAILURES if attempt <= fails else SUCCESSES)


def verified(headers: dict[str, str], body: bytes, secret: str) -> bool:
    """Both signatures hold."""
    signed = f"{headers.get('webhook-id')}.{headers.get('webhook-timestamp')}.".encode() + body
    standard = base64.b64encode(hmac.digest(secret.encode(), signed, "sha256")).decode()
    simple = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return (headers.get("X-Service-Signature"), headers.get("webhook-signature")) == (simple, f"v1,{standard}")


@dataclass
class StormReceiver:
    """Listens at several ports on loopback, so that it is several receivers for a sender."""

    secret: str
    seed: int
    timeout_s: float
    """The sender's."""
    failing: Sequence[int]
    log: list[Arrival] = field(default_factory=list)
    redirected: int = 0
    """Requests to where redirects lead."""
    urls: list[str] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    """Calls whose event got status 200."""

    async def listen(self, ports: int) -> Self:
        """Begin."""
        app = web.Application()
        app.router.add_post("/hook", self._take)
        app.router.add_route("*", "/elsewhere", self._elsewhere)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        for _ in range(ports):
            await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.urls = [f"http://127.0.0.1:{address[1]}/hook" for address in self._runner.addresses]
        return self

    async def close(self) -> None:
        """End."""
        await self._runner.cleanup()

    async def _elsewhere(self, request: web.Request) -> web.Response:
        self.redirected += 1
        return web.Response()

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        at = time.monotonic()
        headers = dict(request.headers)
        delivery, attempt = headers["X-Service-Delivery"], int(headers["X-Service-Attempt"])
        call_id = json.loads(body)["callId"]
        kind = planned(self.seed, self.failing, delivery, attempt)
        if kind == "answers late":
            await asyncio.sleep(LATE_S)
        arrival = Arrival(
            delivery, attempt, call_id, kind, at, at if kind == "hangs" else time.monotonic(),
            hashlib.sha256(body).hexdigest(), verified(headers, body, self.secret),
        )  # fmt: skip
        self.log.append(arrival)
        if arrival.succeeded:
            self.done.add(call_id)
        return await self._answer(request, kind)

    async def _answer(self, request: web.Request, kind: Kind) -> web.Response:
        match kind:
            case "status 500" | "status 204":
                return web.Response(status=int(kind.removeprefix("status ")))
            case "redirects":
                return web.Response(status=307, headers={"Location": "/elsewhere"})
            case "drops" if request.transport is not None:
                request.transport.abort()
            case "hangs":
                await asyncio.sleep(1.5 * self.timeout_s)
        return web.Response()
