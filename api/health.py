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
from storage.database.database import Database, StorageUnavailable

PROXIED: Final = ("Forwarded", "X-Forwarded-For", "X-Real-IP", "Via")


def add_health(app: web.Application, services: Services) -> None:
    """Add the three routes to the application."""

    async def healthz(_request: web.Request) -> web.Response:
        return _json({"status": "ok"}, 200)

    async def readyz(_request: web.Request) -> web.Response:
        parts = {**services.readiness(), **await _storage_problems(services)}
        ready = all(trouble is None for trouble in parts.values())
        checks = {name: trouble or "ok" for name, trouble in parts.items()}
        state = {
            "status": "ready" if ready else "unavailable", "checks": checks, "liveCalls": services.live_calls(),
            "callsRefused": services.why_calls_rejected(),
            "uploadsRefused": None if services.disk is None else services.disk.rejection_reason,
        }  # fmt: skip
        return _json(state, 200 if ready else 503)

    async def metrics(request: web.Request) -> web.Response:
        if services.settings.api.metrics == "loopback" and not _is_loopback_client(request):
            raise Forbidden("Metrics are for this machine alone: see the setting [api] metrics")
        return web.Response(
            body=await asyncio.to_thread(generate_latest), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get(METRICS_PATH, metrics)


async def _storage_problems(services: Services) -> Mapping[str, str | None]:
    """Why the database cannot be read or written, or the disk cannot be written; None for what works."""
    unreadable = await _database_problem(services.database)
    if unreadable is not None or services.disk is None:
        return {"database": unreadable}
    return await services.disk.probe()


async def _database_problem(database: Database) -> str | None:
    try:
        await database.read(lambda conn: conn.execute(text("SELECT 1")))
    except StorageUnavailable as trouble:
        return trouble.cause
    return None


def _is_loopback_client(request: web.Request) -> bool:
    """Judged by the connection alone, because a client can send any header. A header that proxies add means that the
    client is another machine."""
    if any(name in request.headers for name in PROXIED):
        return False
    try:
        address = ip_address((request.remote or "").partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _json(value: object, status: int) -> web.Response:
    return web.Response(body=to_json(value), status=status, content_type="application/json", charset="utf-8")
