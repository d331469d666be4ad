"""Static files of pages, which are kept in memory, plain and compressed, and served with a content security policy."""

from __future__ import annotations

import gzip
import hashlib
import re
from dataclasses import dataclass
from typing import Final, Self

from aiohttp import ETag, web

ACCEPTS_GZIP: Final = re.compile(r"\bgzip\b(?!\s*;\s*q=0(\.0*)?\s*(,|$))")


@dataclass(frozen=True)
class StaticFile:
    """A file, plain and gzip-compressed; `etag` is that of its plain content."""

    content_type: str
    plain: bytes
    compressed: bytes
    etag: str

    @classmethod
    def of(cls, content_type: str, plain: bytes) -> Self:
        """Compresses the content: it blocks."""
        return cls(content_type, plain, gzip.compress(plain, mtime=0), hashlib.sha256(plain).hexdigest()[:32])

    def response(self, request: web.Request, content_security_policy: str, cache_control: str) -> web.Response:
        """Returns the file, or 304 if the client has it."""
        compressed = ACCEPTS_GZIP.search(request.headers.get("Accept-Encoding", "")) is not None
        etag = f"{self.etag}-gzip" if compressed else self.etag
        headers = {
            "Cache-Control": cache_control,
            "Content-Security-Policy": content_security_policy,
            "Vary": "Accept-Encoding",
        }
        if any(each.value in (etag, "*") for each in request.if_none_match or ()):
            response = web.Response(status=304, headers=headers)
        else:
            if compressed:
                headers["Content-Encoding"] = "gzip"
            body = self.compressed if compressed else self.plain
            charset = "utf-8" if self.content_type.startswith("text/") else None
            response = web.Response(body=body, headers=headers, content_type=self.content_type, charset=charset)
        response.etag = ETag(etag)
        return response
