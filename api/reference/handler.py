"""`/docs` over HTTP."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from aiohttp import ETag, web

from api.reference.page import policy, render
from api.routes import description

KEPT_S: Final = 60
"""How long a browser may show the page without asking again, seconds."""
TAKES_GZIP: Final = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))")


@dataclass(frozen=True)
class Page:
    """The page as it is sent, plain and packed with gzip, and a name of this version."""

    plain: bytes
    packed: bytes
    version: str


def add_reference(app: web.Application, public_url: str | None) -> None:
    """Put the page into the application. Its example requests go to `public_url` where that is known."""

    async def docs(request: web.Request) -> web.Response:
        page = await asyncio.to_thread(_page, public_url)
        return _answer(request, page)

    for path in ("/docs", "/docs/"):
        app.router.add_get(path, docs)


@cache
def _page(public_url: str | None) -> Page:
    document = json.loads(description())
    if public_url is not None:
        document["servers"] = [{"url": public_url + each["url"]} for each in document["servers"]]
    plain = render(document).encode()
    return Page(plain, gzip.compress(plain, mtime=0), hashlib.sha256(plain).hexdigest()[:32])


def _answer(request: web.Request, page: Page) -> web.Response:
    packed = TAKES_GZIP.search(request.headers.get("Accept-Encoding", "")) is not None
    version = f"{page.version}-gzip" if packed else page.version
    headers = {
        "Cache-Control": f"private, max-age={KEPT_S}",
        "Content-Security-Policy": policy(),
        "Vary": "Accept-Encoding",
    }
    known = request.if_none_match or ()
    if any(each.value in (version, "*") for each in known):
        response = web.Response(status=304, headers=headers)
    else:
        if packed:
            headers["Content-Encoding"] = "gzip"
        body = page.packed if packed else page.plain
        response = web.Response(body=body, headers=headers, content_type="text/html", charset="utf-8")
    response.etag = ETag(version)
    return response
