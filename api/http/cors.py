"""Which web pages may use the API from a browser (CORS of the fetch standard). Our own, since aiohttp-cors answers
preflights with routes, which lie behind the gate, and leaves errors without its headers."""

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
"""How long a browser may keep the answer to a preflight, seconds."""


def cors(origins: Sequence[str]) -> Middleware:
    """The middleware, around the one that makes error bodies: pages of these origins may read errors too. A preflight
    is charged like any request without a key, and answered also when the address has no charge left: a browser hides
    from its page why a preflight was refused. Cookies are never allowed: a page has to have a key."""

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


def _preflight(request: web.Request, refused: web.StreamResponse) -> web.StreamResponse:
    """What may be sent to this path; an unknown path stays refused."""
    found = request.match_info.http_exception
    if not isinstance(found, web.HTTPMethodNotAllowed) or "Access-Control-Request-Method" not in request.headers:
        return refused
    headers = {
        "Access-Control-Allow-Methods": ", ".join(sorted(found.allowed_methods)),
        "Access-Control-Allow-Headers": ALLOW_HEADERS,
        "Access-Control-Max-Age": MAX_AGE_S,
    }
    return web.Response(status=204, headers=headers)
