"""The dashboard: one page at all its addresses, and its files at `/assets`, as `web` has them built."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from aiohttp import web

from api.pages.static_file import StaticFile

PAGE: Final = "index.html"
PATHS: Final = (
    "/",
    "/welcome",
    "/sign-in",
    "/overview",
    "/live",
    "/calls",
    "/calls/{id}",
    "/agents",
    "/agents/{id}",
    "/phone-numbers",
    "/knowledge",
    "/tools",
    "/voices",
    "/models",
    "/settings",
)
"""The addresses of the dashboard's page, which shows what the address names."""
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "media-src 'self' blob:",
        "connect-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
_CONTENT_HASH: Final = re.compile(r"-[A-Z0-9]{8}\.js$")
_ASK_EACH_TIME: Final = "no-cache"
_NEVER_ASK: Final = "max-age=31536000, immutable"


def add_dashboard(app: web.Application) -> None:
    """Add the dashboard's addresses and `/assets/{file}`."""

    async def page(request: web.Request) -> web.Response:
        file = (await asyncio.to_thread(static_files))[PAGE]
        response = file.response(request, CONTENT_SECURITY_POLICY, _ASK_EACH_TIME)
        response.headers["Referrer-Policy"] = "no-referrer"  # the address of /welcome has a token
        return response

    async def asset(request: web.Request) -> web.Response:
        name = request.match_info["file"]
        file = (await asyncio.to_thread(static_files)).get(name)
        if file is None or name == PAGE:
            raise web.HTTPNotFound
        hashed = _CONTENT_HASH.search(name) is not None
        return file.response(request, CONTENT_SECURITY_POLICY, _NEVER_ASK if hashed else _ASK_EACH_TIME)

    for path in PATHS:
        app.router.add_get(path, page)
    app.router.add_get("/assets/{file}", asset)


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Returns the files by name. The first call blocks: it reads and compresses them."""
    folder = Path(str(files("web") / "static"))
    return {path.name: StaticFile.of(_TYPES[path.suffix], path.read_bytes()) for path in sorted(folder.iterdir())}
