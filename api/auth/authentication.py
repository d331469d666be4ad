"""Who is calling, and how often: the key is looked up, its window (or the address's) is charged, then 429, then 401."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from api.auth.key_cache import KnownKeys
from api.auth.key_last_used import KeyUse
from api.auth.rate_limit import Charge, RateWindows
from api.routing.route import Route
from api.services import Services
from config.clock import utc_now
from config.errors import FieldProblem, TooMany, Unauthorized
from config.links import LinkFault, why_not
from storage.accounts.api_keys import ApiKey

CALLER: Final = web.RequestKey("caller", ApiKey)
CHARGE: Final = web.RequestKey("charge", Charge)
OPENED: Final = web.RequestKey("opened", bool)
"""Whether the request needs no key: a signed link is good for whoever has it, also with another organization's key."""
LONGEST_KEY: Final = 200
METRICS: Final = "/metrics"
UNCHARGED: Final = frozenset({"/healthz", "/readyz", METRICS})
SIGNATURE: Final = "signature"


def gate(services: Services, routes: dict[str, Route], key_use: KeyUse, now_s: Callable[[], float]) -> Middleware:
    """The middleware. `routes` are known by method and path, as `GET /v1/agents/{id}`. Everything below `/v1` needs a
    key unless its route says otherwise, unknown paths included."""
    windows, keys = RateWindows(), KnownKeys(services.database)
    default_limit = services.settings.limits.requests_per_minute
    uncharged = UNCHARGED - {METRICS} if services.settings.api.metrics == "key" else UNCHARGED

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in uncharged:
            return await handler(request)
        key = None
        try:
            key = await _key_of(request, keys)
        except Exception:  # whatever went wrong, its answer tells of the rate like every other
            request[CHARGE] = windows.charge(f"address {request.remote}", default_limit, now_s())
            raise
        who = f"address {request.remote}" if key is None else f"key {key.id}"
        limit = default_limit if key is None else key.requests_per_minute or default_limit
        request[CHARGE] = charge = windows.charge(who, limit, now_s())
        if not charge.allowed:
            raise TooMany("Rate limit exceeded", charge.retry_after_s(now_s()))
        request[OPENED] = opened = _opens_without_key(request, services, routes)
        if key is not None:
            request[CALLER] = key
            key_use.note(key.id)
        elif not opened:
            raise _refusal(request, services, routes)
        return await handler(request)

    return middleware


async def _key_of(request: web.Request, keys: KnownKeys) -> ApiKey | None:
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key or len(key) > LONGEST_KEY:
        return None
    return await keys.find(key)


def _opens_without_key(request: web.Request, services: Services, routes: dict[str, Route]) -> bool:
    if not request.path.startswith("/v1/"):
        return request.path != METRICS  # which is here because its settings want a key
    access = _access(request, routes)
    return access == "open" or (access == "link" and SIGNATURE in request.query and _fault(request, services) is None)


def _access(request: web.Request, routes: dict[str, Route]) -> str:
    resource = request.match_info.route.resource
    method = "GET" if request.method == "HEAD" else request.method
    route = routes.get(f"{method} {resource.canonical}") if resource is not None else None
    return "key" if route is None else route.access


def _fault(request: web.Request, services: Services) -> LinkFault | None:
    given = request.query
    return why_not(services.secrets, request.path, given.get("expires", ""), given[SIGNATURE], utc_now())


def _refusal(request: web.Request, services: Services, routes: dict[str, Route]) -> Unauthorized:
    """What is wrong, as far as whoever asks could see it themselves."""
    given = request.headers.get("Authorization")
    if given is None and SIGNATURE in request.query and _access(request, routes) == "link":
        if _fault(request, services) == "expired":
            problem = FieldProblem("expires", "The link's time is over: ask for a new one")
            return Unauthorized(problem, "This link has expired")
        problem = FieldProblem(SIGNATURE, "The link is not as it was given out: use the whole of it, unchanged")
        return Unauthorized(problem, "This link's signature does not match")
    if given is None:
        return Unauthorized(FieldProblem("Authorization", "The header is missing: send Authorization: Bearer API_KEY"))
    scheme, _, key = given.partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        return Unauthorized(FieldProblem("Authorization", "Must be Bearer and an API key, with a space in between"))
    return Unauthorized(FieldProblem("Authorization", "This key is unknown or has been revoked"))
