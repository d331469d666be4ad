"""The result of a handler as JSON, in the envelope of its route."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web
from pydantic_core import to_json

from api.routing.route import (
    DataResponse,
    DeletedResponse,
    FileResponse,
    JsonResponse,
    ListResponse,
    PageResponse,
    RequestContext,
    ResultsResponse,
    Route,
    ViewPage,
    as_json,
)
from api.schemas.base import Paging
from api.schemas.bounds import MIB

MAX_PAGE: Final = 4 * MIB
"""Bytes of a page; items beyond it follow on the next page."""
PAGE_ENVELOPE: Final = 256
"""Bytes of a page around its items."""


def serialized(
    route: Route, context: RequestContext[Any, Any], result: Any
) -> bytes | list[bytes] | web.StreamResponse:
    """Returns the handler's result as JSON, a page in parts. Runs in the transaction, because views are made lazily."""
    match route.response:
        case DataResponse() if isinstance(result, web.StreamResponse):
            return result
        case DataResponse():
            return b'{"data":' + as_json(result) + b"}"
        case PageResponse():
            return _page(result, context.query)
        case ListResponse():
            return b'{"data":[' + b",".join(map(as_json, result)) + b"]}"
        case ResultsResponse():
            return b'{"results":[' + b",".join(map(as_json, result)) + b"]}"
        case DeletedResponse():
            return to_json({"data": {"id": context.item, "deleted": True}})
        case JsonResponse():
            document: bytes = result
            return document
        case FileResponse():
            response: web.StreamResponse = result
            return response


def _page(page: ViewPage, paging: Paging) -> list[bytes]:
    """As many items as fit into a page, at least one. Items are consumed lazily: no further ones are read."""
    parts = [b'{"data":[']
    free_bytes = MAX_PAGE - PAGE_ENVELOPE
    for item in page.items:
        part = item if isinstance(item, bytes) else as_json(item)
        free_bytes -= len(part) + 1
        if free_bytes < 0 and len(parts) > 1:
            break
        parts += (b",", part) if len(parts) > 1 else (part,)
    pagination = to_json({"total": page.total, "limit": paging.limit, "offset": paging.offset})
    return [*parts, b'],"pagination":' + pagination + b"}"]
