"""Puts the HTTP application together."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aiohttp import web

from api.dispatch import endpoint
from api.gate import gate
from api.health import add_health
from api.key_use import KeyUse
from api.middleware import errors, observe
from api.routes import ROUTES, description
from api.services import Services


def create_app(services: Services) -> web.Application:
    """The application, for one event loop. Its clean-up writes what is still in memory; the database outlives it."""
    key_use = KeyUse(services.database)
    known = {f"{route.method} /v1{route.path}": route for route in ROUTES}
    largest = max(route.max_body for route in ROUTES)
    app = web.Application(middlewares=[observe, errors, gate(services, known, key_use)], client_max_size=largest)

    async def key_use_written(_app: web.Application) -> AsyncIterator[None]:
        async with key_use.written_regularly():
            yield

    app.cleanup_ctx.append(key_use_written)
    for route in ROUTES:
        handler = endpoint(route, services)
        app.router.add_route(route.method, f"/v1{route.path}", handler)
        if route.method == "GET":
            app.router.add_route("HEAD", f"/v1{route.path}", handler)
    add_health(app, services)
    description()
    return app
