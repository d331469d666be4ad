"""Around every request: its id, its log line, its figures, its headers, and errors as the error body."""

from __future__ import annotations

import math
import re
import time
from typing import Any, Final
from uuid import uuid4

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import Counter, Histogram
from pydantic_core import to_json

from api.gate import CALLER, CHARGE, UNCHARGED
from config.errors import Invalid, TooMany, TrunklineError, Unauthorized, Unavailable

log = structlog.get_logger()
REQUESTS: Final = Counter("trunkline_http_requests_total", "HTTP requests", ["method", "route", "status"])
SECONDS: Final = Histogram(
    "trunkline_http_request_seconds",
    "Time to the response's head",
    ["method", "route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5),
)
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PATCH", "DELETE", "PUT", "OPTIONS"})
REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
}


@web.middleware
async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Outermost: names the request, then measures and logs its response and completes its headers."""
    given = request.headers.get("X-Request-Id", "")
    request_id = given if REQUEST_ID.fullmatch(given) else str(uuid4())
    started = time.perf_counter()
    with structlog.contextvars.bound_contextvars(request_id=request_id):
        response = await handler(request)
        seconds = time.perf_counter() - started
        _count(request, response.status, seconds)
        _log(request, response.status, seconds)
    response.headers["X-Request-Id"] = request_id
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    charge = request.get(CHARGE)
    if charge is not None:
        response.headers["X-RateLimit-Limit"] = str(charge.limit)
        response.headers["X-RateLimit-Remaining"] = str(charge.remaining)
        response.headers["X-RateLimit-Reset"] = str(math.ceil(charge.reset_s))
    return response


def _count(request: web.Request, status: int, seconds: float) -> None:
    resource = request.match_info.route.resource
    route = "unmatched" if resource is None else resource.canonical
    method = request.method if request.method in METHODS else "other"
    REQUESTS.labels(method, route, str(status)).inc()
    SECONDS.labels(method, route).observe(seconds)


def _log(request: web.Request, status: int, seconds: float) -> None:
    """Never the query: it may hold a link's signature."""
    caller = request.get(CALLER)
    tell = log.debug if request.path in UNCHARGED else log.info
    tell(
        "api.request",
        method=request.method,
        path=request.path,
        status=status,
        ms=round(seconds * 1000, 1),
        organization_id=None if caller is None else caller.organization_id,
    )


@web.middleware
async def errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns whatever is raised into the error body; what was not foreseen is logged with its trace and is a 500."""
    try:
        return await handler(request)
    except TrunklineError as error:
        return _told(error)
    except web.HTTPException as error:
        return _routing_error(error)
    except ConnectionError:
        raise
    except Exception:
        log.exception("api.request_failed", method=request.method, path=request.path)
        return error_response(500, "Internal server error")


def _told(error: TrunklineError) -> web.Response:
    """A domain error says itself what the client gets."""
    match error:
        case Invalid():
            details = [{"field": each.field, "message": each.message} for each in error.problems]
            return error_response(error.status, error.message, details=details)
        case TooMany(retry_after_s=int(seconds)):
            headers = {"Retry-After": str(seconds)}
            return error_response(error.status, error.message, headers, retryAfter=seconds)
        case Unavailable():
            log.error("api.unavailable", cause=str(error))
            wait_s = error.retry_after_s
            return error_response(error.status, error.message, {} if wait_s is None else {"Retry-After": str(wait_s)})
        case Unauthorized():
            return error_response(error.status, error.message, {"WWW-Authenticate": "Bearer"})
        case _ if error.status == 500:
            log.error("api.request_failed", cause=str(error))
            return error_response(500, "Internal server error")
        case _:
            return error_response(error.status, error.message)


def _routing_error(error: web.HTTPException) -> web.Response:
    messages = {404: "Not found", 405: "Method not allowed"}
    kept = {name: value for name, value in error.headers.items() if name in ("Allow", "Location", "Content-Range")}
    return error_response(error.status, messages.get(error.status, error.reason), kept)


def error_response(status: int, message: str, headers: dict[str, str] | None = None, **more: Any) -> web.Response:
    """`{error, ...}`."""
    body = to_json({"error": message, **more})
    return web.Response(body=body, status=status, headers=headers, content_type="application/json", charset="utf-8")
