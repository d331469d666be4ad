"""`/healthz`, `/readyz` and `/metrics`: for supervisors, load balancers and Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic_core import to_json
from sqlalchemy import text

from api.auth.authentication import METRICS_PATH
from api.services import Services
from config.errors import Forbidden
from storage.database.database import Database
from storage.database.errors import StorageUnavailable

PROXY_HEADERS: Final = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")


def add_health_routes(app: web.Application, services: Services) -> None:
    """Add the routes `/healthz`, `/readyz` and `/metrics`."""

    async def healthz(_request: web.Request) -> web.Response:
        return _json({"status": "ok"}, 200)

    async def readyz(_request: web.Request) -> web.Response:
        problems = {**services.readiness(), **await _storage_problems(services)}
        ready = all(problem is None for problem in problems.values())
        checks = {part: problem or "ok" for part, problem in problems.items()}
        state = {
            "status": "ready" if ready else "unavailable", "checks": checks, "liveCalls": services.live_calls(),
            "callsRefused": services.call_rejection_reason(),
            "uploadsRefused": None if services.disk is None else services.disk.rejection_reason,
        }  # fmt: skip
        return _json(state, 200 if ready else 503)

    async def metrics(request: web.Request) -> web.Response:
        if services.settings.api.metrics == "loopback" and not _is_loopback_client(request):
            raise Forbidden("Only clients on this machine may read the metrics: see the setting [api] metrics")
        return web.Response(
            body=await asyncio.to_thread(generate_latest), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get(METRICS_PATH, metrics)


async def _storage_problems(services: Services) -> Mapping[str, str | None]:
    """The problems of database and disk by part: None for a part that works."""
    unreadable = await _database_problem(services.database)
    if unreadable is not None or services.disk is None:
        return {"database": unreadable}
    return await services.disk.probe()


async def _database_problem(database: Database) -> str | None:
    try:
        await database.read(lambda conn: conn.execute(text("SELECT 1")))
    except StorageUnavailable as error:
        return error.cause
    return None


def _is_loopback_client(request: web.Request) -> bool:
    """True if the connection comes from a loopback address and no proxy forwarded the request: with a header that
    proxies add, the client is another machine. No header can make a client local."""
    if any(name in request.headers for name in PROXY_HEADERS):
        return False
    try:
        address = ip_address((request.remote or "").partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _json(value: object, status: int) -> web.Response:
    return web.Response(body=to_json(value), status=status, content_type="application/json", charset="utf-8")
