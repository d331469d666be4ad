"""Authentication and rate limiting: finds the API key or the user's session, charges its window (else the client
address's), then answers 429, 401, or 403 that names the role which a user would need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from api.auth.key_cache import ApiKeyCache
from api.auth.key_last_used import LastUsedRecorder
from api.auth.principal import PRINCIPAL, SESSION, Principal
from api.auth.rate_limit import RateLimitState
from api.auth.session_authentication import SessionAuthenticator
from api.auth.session_cookie import session_token
from api.auth.shared_rate_limit import SharedRateLimiter
from api.routing.route import Route
from api.services import Services
from config.clock import utc_now
from config.errors import FieldProblem, LimitExceeded, Unauthorized
from config.signed_links import LinkFault, link_fault
from storage.accounts.api_keys import ApiKey
from storage.users.sessions import Session

RATE_LIMIT: Final = web.RequestKey("rate_limit", RateLimitState)
KEY_REQUIRED: Final = web.RequestKey("key_required", bool)
"""True if the request needs a key or a session. False on open routes, and for a valid signed link, whichever
organization's key the client may send with it."""
ADMITTED: Final = web.RequestKey("admitted", bool)
"""True for a request that another node passes on (`api.nodes.node_authentication`): that has authenticated and charged
it."""
MAX_KEY_LENGTH: Final = 200
REQUESTS_OF_A_PAGE: Final = 6
"""A user may send so many times as many requests as a key: a view of the dashboard takes several."""
METRICS_PATH: Final = "/metrics"
CALL_SOCKET_PATH: Final = "/v1/calls/{id}/socket"
"""A ticket opens it instead of a key."""
MONITORING_PATHS: Final = frozenset({"/healthz", "/readyz", METRICS_PATH})
"""Paths for supervisors, load balancers and Prometheus: they need no key and have no rate limit."""
SESSION_PATH: Final = "/api/session"
PASSWORD_PATH: Final = "/api/password"
OPEN_PAGE_PATHS: Final = frozenset({SESSION_PATH, PASSWORD_PATH})
"""Paths below `/api` for clients that are not signed in yet; all others there need a key or a session, as `/v1`."""
ASSETS: Final = "/assets/"
"""The files of the dashboard, a dozen for one view, have no rate limit."""
SIGNATURE: Final = "signature"
"""The query parameter of signed links."""


def authenticate(
    services: Services,
    routes: dict[str, Route],
    last_used: LastUsedRecorder,
    sessions: SessionAuthenticator,
    limiter: SharedRateLimiter,
    now_s: Callable[[], float],
) -> Middleware:
    """Returns the middleware. `routes` are keyed by method and path, as `GET /v1/agents/{id}`. Everything below `/v1`
    needs a key or a session, also an unknown path, unless the `access` of its route says otherwise. A request with the
    header `Authorization` is not a session's."""
    keys = ApiKeyCache(services.database)
    default_limit = services.settings.limits.requests_per_minute
    exempt = MONITORING_PATHS - {METRICS_PATH} if services.settings.api.metrics == "key" else MONITORING_PATHS

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in exempt or request.path.startswith(ASSETS) or request.get(ADMITTED, False):
            return await handler(request)
        request[KEY_REQUIRED] = key_required = _is_key_required(request, services, routes)
        try:
            key = await _find_key(request, keys)
            session = await sessions.find(request) if _may_have_session(request, key_required) else None
        except Exception:  # the error response has the headers of the rate limit, too
            request[RATE_LIMIT] = limiter.charge_here(f"address {request.remote}", default_limit, now_s())
            raise
        client, limit = _window(request, key, session, default_limit)
        request[RATE_LIMIT] = state = await limiter.charge(client, limit, now_s())
        if not state.allowed:
            raise LimitExceeded("Rate limit exceeded", state.retry_after_s(now_s()))
        if key is not None:
            request[PRINCIPAL] = Principal.of_key(key)
            last_used.record(key.id)
        elif session is not None:
            sessions.check_page(request, session)
            request[SESSION] = session
            if key_required:
                request[PRINCIPAL] = await sessions.principal(request, session)
        elif key_required:
            raise _unauthorized(request, services, routes)
        if key_required:
            _check_role(request[PRINCIPAL], _route(request, routes))
        return await handler(request)

    return middleware


def _window(request: web.Request, key: ApiKey | None, session: Session | None, default_limit: int) -> tuple[str, int]:
    """Whose window of the rate limit a request is charged to, and the requests that it allows."""
    if key is not None:
        return f"key {key.id}", key.requests_per_minute or default_limit
    if session is not None:
        return f"user {session.user.id}", default_limit * REQUESTS_OF_A_PAGE
    return f"address {request.remote}", default_limit


def _may_have_session(request: web.Request, key_required: bool) -> bool:
    """True if the cookie of a session counts. It does not for signing in, and not for metrics."""
    if "Authorization" in request.headers or not request.path.startswith(("/v1/", "/api/")):
        return False
    return key_required or (request.path == SESSION_PATH and request.method != "POST")


def _check_role(principal: Principal, route: Route | None) -> None:
    """Raises `NotGranted` unless the principal may use the route. A path without a route checks the role itself."""
    if route is not None:
        principal.require_role(route.role)


async def _find_key(request: web.Request, keys: ApiKeyCache) -> ApiKey | None:
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key or len(key) > MAX_KEY_LENGTH:
        return None
    return await keys.find(key)


def _is_key_required(request: web.Request, services: Services, routes: dict[str, Route]) -> bool:
    if request.path.startswith("/api/"):
        return request.path not in OPEN_PAGE_PATHS
    if not request.path.startswith("/v1/"):
        return request.path == METRICS_PATH  # it comes here only when the setting [api] metrics is "key"
    match _access(request, routes):
        case "open":
            return False
        case "link":
            return SIGNATURE not in request.query or _link_fault(request, services) is not None
        case _:
            return True


def _access(request: web.Request, routes: dict[str, Route]) -> str:
    resource = request.match_info.route.resource
    if resource is not None and resource.canonical == CALL_SOCKET_PATH:
        return "open"
    route = _route(request, routes)
    return "key" if route is None else route.access


def _route(request: web.Request, routes: dict[str, Route]) -> Route | None:
    resource = request.match_info.route.resource
    method = "GET" if request.method == "HEAD" else request.method
    return None if resource is None else routes.get(f"{method} {resource.canonical}")


def _link_fault(request: web.Request, services: Services) -> LinkFault | None:
    query = request.query
    return link_fault(services.secrets, request.path, query.get("expires", ""), query[SIGNATURE], utc_now())


def _unauthorized(request: web.Request, services: Services, routes: dict[str, Route]) -> Unauthorized:
    """The 401, with the fault of the key or the link. It tells the client nothing of other organizations."""
    header = request.headers.get("Authorization")
    if header is None and SIGNATURE in request.query and _access(request, routes) == "link":
        if _link_fault(request, services) == "expired":
            problem = FieldProblem("expires", "The link's time is over: ask for a new one")
            return Unauthorized(problem, "This link has expired")
        problem = FieldProblem(SIGNATURE, "The link was changed: use all of it, as it was received")
        return Unauthorized(problem, "This link's signature does not match")
    if header is None and session_token(request) is not None:
        return Unauthorized(FieldProblem("Cookie", "The session is over: sign in again"), "Not signed in")
    if header is None:
        return Unauthorized(FieldProblem("Authorization", "The header is missing: send Authorization: Bearer API_KEY"))
    scheme, _, key = header.partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        return Unauthorized(FieldProblem("Authorization", "Must be Bearer and an API key, with a space in between"))
    return Unauthorized(FieldProblem("Authorization", "This key is unknown or has been revoked"))
