"""Same-origin check by the `Origin` header of browsers (Fetch standard, 3.2): tells the dashboard's own pages from
those of other origins."""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from config.errors import FieldProblem, NotGranted


def is_same_origin(request: web.Request, public_origin: str) -> bool:
    """True for a page that this server has served, under the host of the request or the public one; and for programs
    that are no browsers, which send no `Origin`."""
    origin = request.headers.get("Origin")
    if origin is None or origin == public_origin:
        return True
    try:
        return urlsplit(origin).netloc == request.host
    except ValueError:
        return False


def require_same_origin(request: web.Request, public_origin: str) -> None:
    """Raises `NotGranted` for a page of another origin."""
    if not is_same_origin(request, public_origin):
        problem = FieldProblem(
            "Origin", "Another host than this server's: set [api] public_url if it is behind a proxy"
        )
        raise NotGranted([problem], "Pages of other origins may not do this")
