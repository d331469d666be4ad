"""Swagger UI at `/docs`: its page, script and style sheet, and the initializer with the address of the OpenAPI
document. The files of Swagger UI are those of the package drf-spectacular-sidecar, which is never imported because it
would import Django."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Final

from aiohttp import ETag, web

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
ACCEPTS_GZIP: Final = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))")


@dataclass(frozen=True)
class StaticFile:
    """A file, plain and gzip-compressed; `etag` is that of its plain content."""

    content_type: str
    plain: bytes
    compressed: bytes
    etag: str


def add_swagger_ui(app: web.Application) -> None:
    """Add the routes `/docs`, `/docs/` and `/docs/{file}`."""

    async def static_file(request: web.Request) -> web.Response:
        file = (await asyncio.to_thread(static_files)).get(request.match_info.get("file", INDEX))
        if file is None:
            raise web.HTTPNotFound
        return _response(request, file)

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
    own, dist = files(__package__), dist_folder()
    return {
        **{name: _static_file(kind, own.joinpath(name).read_bytes()) for name, kind in OWN_FILES.items()},
        **{name: _static_file(kind, (dist / name).read_bytes()) for name, kind in DIST_FILES.items()},
    }


def _static_file(content_type: str, plain: bytes) -> StaticFile:
    return StaticFile(content_type, plain, gzip.compress(plain, mtime=0), hashlib.sha256(plain).hexdigest()[:32])


def _response(request: web.Request, file: StaticFile) -> web.Response:
    compressed = ACCEPTS_GZIP.search(request.headers.get("Accept-Encoding", "")) is not None
    etag = f"{file.etag}-gzip" if compressed else file.etag
    headers = {
        "Cache-Control": f"private, max-age={MAX_AGE_S}",
        "Content-Security-Policy": CONTENT_SECURITY_POLICY,
        "Vary": "Accept-Encoding",
    }
    if any(each.value in (etag, "*") for each in request.if_none_match or ()):
        response = web.Response(status=304, headers=headers)
    else:
        if compressed:
            headers["Content-Encoding"] = "gzip"
        body = file.compressed if compressed else file.plain
        charset = "utf-8" if file.content_type.startswith("text/") else None
        response = web.Response(body=body, headers=headers, content_type=file.content_type, charset=charset)
    response.etag = ETag(etag)
    return response
