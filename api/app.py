"""Puts the HTTP application together."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from api.auth.authentication import gate
from api.auth.key_last_used import KeyUse
from api.health import add_health
from api.http.cors import cors
from api.http.response_streaming import AnswerRoom
from api.http.shielded_tasks import Works
from api.http.timeouts import DEADLINES, Deadlines, bounded
from api.reference.handler import add_reference
from api.routes import ROUTES, description
from api.routing.route import Route
from api.services import Services
from api.serving.dispatch import endpoint
from api.serving.idempotency import Repeats
from api.serving.middleware import errors, observe
from api.serving.upload_slots import Uploads


def create_app(services: Services, now_s: Callable[[], float] = time.time) -> web.Application:
    """The application, for one event loop. Its clean-up writes what is still in memory; the database outlives it.
    `now_s` is the clock of the rate limits, in seconds since 1970."""
    key_use = KeyUse(services.database)
    repeats = Repeats(services.database, services.secrets, services.settings.quotas.model_dump())
    works, uploads, answers = Works(), Uploads(), AnswerRoom()
    known = {f"{route.method} /v1{route.path}": route for route in ROUTES}
    largest = max(route.max_body for route in ROUTES)
    asked = services.settings.api
    deadlines = Deadlines(asked.request_timeout_s, asked.body_timeout_s)
    middlewares = [errors, bounded(deadlines), gate(services, known, key_use, now_s)]
    if asked.cors_origins:
        middlewares.insert(0, cors(asked.cors_origins))
    middlewares.insert(0, observe(https=asked.tls_cert is not None))
    app = web.Application(middlewares=middlewares, client_max_size=largest)
    app[DEADLINES] = deadlines

    async def in_the_background(_app: web.Application) -> AsyncIterator[None]:
        async with key_use.written_regularly(), repeats.purged_regularly(), works.finished():
            yield

    app.cleanup_ctx.append(in_the_background)
    for route in ROUTES:
        handler = endpoint(route, services, repeats, works, uploads, answers)
        path = _place(route)
        app.router.add_route(route.method, path, handler)
        if route.method == "GET":
            app.router.add_route("HEAD", path, handler)
    add_health(app, services)
    add_reference(app, services.settings.api.public_url)
    description()
    return app


def _place(route: Route) -> str:
    """Where aiohttp finds the route. A word that another route has in the place of an id is no id: `GET
    /knowledge/search` is a wrong method, not a document that is called so."""
    parent, _, last = route.path.rpartition("/")
    words = {each.path.removeprefix(f"{parent}/") for each in ROUTES if each.path.rpartition("/")[0] == parent}
    but = "".join(f"(?!{word}$)" for word in sorted(words - {last})) if last == "{id}" else ""
    return f"/v1{route.path}".replace("{id}", f"{{id:{but}[^/]+}}")
