"""Swagger UI at `/docs`: its page, script and style sheet, and the initializer with the address of the OpenAPI
document. The files of Swagger UI are those of the package drf-spectacular-sidecar, which is never imported because it
would import Django."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Final

from aiohttp import web

from api.pages.static_file import StaticFile

PACKAGE: Final = "drf-spectacular-sidecar"
DIST_FOLDER: Final = "drf_spectacular_sidecar/static/drf_spectacular_sidecar/swagger-ui-dist"
INDEX: Final = "index.html"
OWN_FILES: Final = {INDEX: "text/html", "swagger-initializer.js": "text/javascript"}
"""The files of this package, with their content types."""
DIST_FILES: Final = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon-32x32.png": "image/png",
}
"""The files of swagger-ui-dist that the page needs, with their content types; no other is served."""
CONTENT_SECURITY_POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # Swagger UI sets style attributes
        "img-src 'self' data:",  # the icons in its style sheet
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
MAX_AGE_S: Final = 60
"""Seconds for which a browser may use a file without asking again."""


def add_swagger_ui(app: web.Application) -> None:
    """Add the routes `/docs`, `/docs/` and `/docs/{file}`."""

    async def static_file(request: web.Request) -> web.Response:
        file = (await asyncio.to_thread(static_files)).get(request.match_info.get("file", INDEX))
        if file is None:
            raise web.HTTPNotFound
        return file.response(request, CONTENT_SECURITY_POLICY, f"private, max-age={MAX_AGE_S}")

    for path in ("/docs", "/docs/", "/docs/{file}"):
        app.router.add_get(path, static_file)


def dist_folder() -> Path:
    """Returns the folder of the installed swagger-ui-dist. Raises `FileNotFoundError` if it is missing."""
    try:
        folder = Path(str(distribution(PACKAGE).locate_file(DIST_FOLDER)))
    except PackageNotFoundError:
        raise FileNotFoundError(f"the package {PACKAGE} is not installed; run: make setup") from None
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is missing; install {PACKAGE} again")
    return folder


@cache
def static_files() -> Mapping[str, StaticFile]:
    """Returns the files of the page by name. Raises `FileNotFoundError` if the package is missing. The first call
    blocks for a tenth of a second: it reads and compresses the files."""
    own, dist = files(__package__) / "swagger", dist_folder()
    return {
        **{name: StaticFile.of(kind, own.joinpath(name).read_bytes()) for name, kind in OWN_FILES.items()},
        **{name: StaticFile.of(kind, (dist / name).read_bytes()) for name, kind in DIST_FILES.items()},
    }
