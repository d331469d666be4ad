"""CORS (fetch standard): lets web pages of permitted origins use the API from a browser. It is our own code because
aiohttp-cors answers preflights with routes, which need a key here, and leaves its headers out of error responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

ALLOW_HEADERS: Final = "Authorization, Content-Type, Idempotency-Key, X-Request-Id"
EXPOSE_HEADERS: Final = (
    "Content-Range, Idempotent-Replay, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, "
    "X-Request-Id"
)
MAX_AGE_S: Final = "600"
"""Seconds for which a browser may cache the response to a preflight."""


def cors(origins: Sequence[str]) -> Middleware:
    """Returns the middleware. It wraps the one that makes error bodies, so that pages of these origins can read errors,
    too. A preflight is charged like any request without a key, and is answered even if the address is over its limit,
    because a browser does not tell its page why a preflight failed. Cookies are never allowed: a page needs an API
    key."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await handler(request)
        origin = request.headers.get("Origin")
        if origin is not None and origin in origins:
            if request.method == "OPTIONS" and response.status in (401, 405, 429):
                response = _preflight(request, response)
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Access-Control-Expose-Headers"] = EXPOSE_HEADERS
        response.headers["Vary"] = ", ".join((*response.headers.getall("Vary", ()), "Origin"))
        return response

    return middleware


def _preflight(request: web.Request, error_response: web.StreamResponse) -> web.StreamResponse:
    """The methods and headers that this path allows; for an unknown path the error response."""
    routing_error = request.match_info.http_exception
    if (
        not isinstance(routing_error, web.HTTPMethodNotAllowed)
        or "Access-Control-Request-Method" not in request.headers
    ):
        return error_response
    headers = {
        "Access-Control-Allow-Methods": ", ".join(sorted(routing_error.allowed_methods)),
        "Access-Control-Allow-Headers": ALLOW_HEADERS,
        "Access-Control-Max-Age": MAX_AGE_S,
    }
    return web.Response(status=204, headers=headers)
