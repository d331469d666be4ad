"""The aiohttp application: its middlewares, routes and background tasks."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from datetime import timedelta

from aiohttp import web
from aiohttp.typedefs import Middleware

from api.auth.access_watch import ACCESS_WATCH, AccessWatch
from api.auth.authentication import authenticate
from api.auth.key_last_used import LastUsedRecorder
from api.auth.passwords import PasswordHashing
from api.auth.session_authentication import SessionAuthenticator
from api.auth.session_purge import purge_sessions_periodically
from api.auth.shared_rate_limit import SharedRateLimiter
from api.auth.sign_in import SignIn
from api.certificate_authority import add_authority_route
from api.health import add_health_routes
from api.http.cors import cors
from api.http.response_streaming import ResponseMemory
from api.http.shielded_tasks import ShieldedTasks
from api.http.timeouts import DEADLINES, RequestDeadlines, request_timeout
from api.nodes.node_authentication import admit_from_nodes
from api.nodes.node_client import NodeClient
from api.nodes.node_events import NODE_EVENTS, NodeEvents
from api.nodes.node_live_calls import NODE_LIVE_CALLS, NodeLiveCalls
from api.nodes.node_refusals import NODE_REFUSALS, NodeRefusals
from api.nodes.node_routes import add_node_routes
from api.nodes.request_forwarding import pass_on_to_nodes
from api.pages.dashboard import add_dashboard
from api.pages.swagger_ui import add_swagger_ui
from api.periodic_task import background_task
from api.resources.accounts.user_sessions import add_session_routes
from api.resources.calls.listening import add_listen_socket
from api.resources.calls.web_call_socket import add_call_socket
from api.resources.event_json import EventJson, resync_json
from api.resources.models.local_models import publish_model_events
from api.routes import ROUTES, openapi_json
from api.routing.route import Route
from api.services import Services
from api.serving.dispatch import route_handler
from api.serving.idempotency import IdempotencyStore
from api.serving.middleware import handle_errors, observe
from api.serving.upload_slots import UploadSlots
from storage.users.sessions import SessionLifetime


def create_app(services: Services, now_s: Callable[[], float] = time.time) -> web.Application:
    """Returns the application, for one event loop. Its clean-up writes what is still in memory, and leaves the database
    open. `now_s` is the clock of the rate limits, in seconds since 1970."""
    last_used = LastUsedRecorder(services.database)
    idempotency_store = IdempotencyStore(services.database, services.secrets, services.settings.quotas.model_dump())
    shielded_tasks, upload_slots, response_memory = ShieldedTasks(), UploadSlots(), ResponseMemory()
    routes_by_path = {f"{route.method} {path}": route for route in ROUTES for path in route.full_paths}
    max_body = max(route.max_body for route in ROUTES)
    api_settings = services.settings.api
    deadlines = RequestDeadlines(api_settings.request_timeout_s, api_settings.body_timeout_s)
    hashing, lifetime = PasswordHashing(), _session_lifetime(services)
    limiter = SharedRateLimiter(services.database, services.secrets, is_shared=services.node is not None)
    sign_in = SignIn(services.database, services.secrets, hashing, lifetime, limiter)
    sessions = SessionAuthenticator(services, sign_in)
    authentication = authenticate(services, routes_by_path, last_used, sessions, limiter, now_s)
    admit, pass_on, node_client = _nodes(services, now_s)
    middlewares = [handle_errors, request_timeout(deadlines), *admit, authentication, *pass_on]
    if api_settings.cors_origins:
        middlewares.insert(0, cors(api_settings.cors_origins))
    middlewares.insert(0, observe(hsts=api_settings.https_only))
    app = web.Application(middlewares=middlewares, client_max_size=max_body)
    app[DEADLINES] = deadlines
    app[ACCESS_WATCH] = access_watch = AccessWatch(services.database, lifetime)

    node_events = _add_node_exchange(app, services, node_client)

    async def run_background_tasks(_app: web.Application) -> AsyncIterator[None]:
        async with (
            nullcontext() if node_events is None else background_task(node_events.run(), "events of other nodes"),
            last_used.write_periodically(),
            idempotency_store.purge_periodically(),
            limiter.purge_periodically(),
            purge_sessions_periodically(services.database, lifetime),
            access_watch.run(),
            shielded_tasks.wait_at_exit(),
        ):
            yield
        hashing.close()
        if node_client is not None:
            await node_client.close()

    app.cleanup_ctx.append(run_background_tasks)
    for route in ROUTES:
        handler = route_handler(route, services, idempotency_store, shielded_tasks, upload_slots, response_memory)
        path = _path_pattern(route)
        app.router.add_route(route.method, path, handler)
        if route.method == "GET":
            app.router.add_route("HEAD", path, handler)
        if route.page_path is not None:
            app.router.add_route(route.method, route.page_path, handler)
    services.events.encode = EventJson(services)
    publish_model_events(services)
    add_health_routes(app, services)
    add_authority_route(app, services)
    add_call_socket(app, services)
    add_listen_socket(app, services)
    add_session_routes(app, services, sign_in, now_s)
    add_swagger_ui(app)
    add_dashboard(app)
    openapi_json()
    return app


def _nodes(
    services: Services, now_s: Callable[[], float]
) -> tuple[list[Middleware], list[Middleware], NodeClient | None]:
    """What admits requests of other nodes, what passes requests on to them, and with what; nothing for the only server
    of a database."""
    node, settings = services.node, services.settings
    if node is None:
        return [], [], None
    if node.secret is None:
        return [], [pass_on_to_nodes(services, node, None)], None
    client = NodeClient(node.secret, services.database, settings.api.idle_timeout_s)
    admit = admit_from_nodes(node.secret, node.instance, settings.limits.requests_per_minute, now_s)
    return [admit], [pass_on_to_nodes(services, node, client)], client


def _add_node_exchange(app: web.Application, services: Services, client: NodeClient | None) -> NodeEvents | None:
    """Add what this node tells others, and what asks them or follows their events; returns the latter. None for the
    only server of a database, and without a secret."""
    node = services.node
    if node is None or client is None:
        return None
    add_node_routes(app, services)
    reachability = services.node_reachability
    app[NODE_LIVE_CALLS] = NodeLiveCalls(node, client, services.database, reachability)
    app[NODE_REFUSALS] = NodeRefusals(node, client, services.database)
    app[NODE_EVENTS] = NodeEvents(services, node, client, reachability, resync_json())
    return app[NODE_EVENTS]


def _session_lifetime(services: Services) -> SessionLifetime:
    dashboard = services.settings.dashboard
    return SessionLifetime(timedelta(seconds=dashboard.session_idle_s), timedelta(seconds=dashboard.session_max_s))


def _path_pattern(route: Route) -> str:
    """The route's path in the syntax of aiohttp's router. A literal segment of another route is excluded from `{id}`:
    `GET /knowledge/search` gets 405, and is not looked up as the id of a document."""
    parent, _, last = route.path.rpartition("/")
    siblings = {each.path.removeprefix(f"{parent}/") for each in ROUTES if each.path.rpartition("/")[0] == parent}
    excluded = "".join(f"(?!{literal}$)" for literal in sorted(siblings - {last})) if last == "{id}" else ""
    return f"/v1{route.path}".replace("{id}", f"{{id:{excluded}[^/]+}}")
