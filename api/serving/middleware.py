"""The outer middlewares: request id, access log, metrics and headers of every response, and the error body."""

from __future__ import annotations

import itertools
import math
import re
import secrets
import time
from collections.abc import Iterator
from typing import Any, Final

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from aiohttp.web_urldispatcher import AbstractResource
from multidict import istr
from prometheus_client import Counter, Histogram
from pydantic_core import to_json

from api.auth.authentication import API_KEY, NOT_RATE_LIMITED, RATE_LIMIT
from api.routing.validation import BodyNotReceived
from config.errors import Invalid, LimitExceeded, NotGranted, QuotaExceeded, TrunklineError, Unauthorized, Unavailable

log = structlog.get_logger()
REQUESTS: Final = Counter("trunkline_http_requests_total", "HTTP requests", ["method", "route", "status"])
SECONDS: Final = Histogram(
    "trunkline_http_request_seconds",
    "Time to the response's head",
    ["method", "route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5),
)
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PATCH", "DELETE", "PUT", "OPTIONS"})
CLIENT_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
MAX_LOGGED_PATH: Final = 200
"""Characters of a path that are logged."""
HEADERS: Final = {
    "Server": "trunkline",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
}
"""Headers of every response that does not set them itself."""
HTTPS_HEADERS: Final = {"Strict-Transport-Security": "max-age=2592000"}
"""30 days, and for this host name alone, because other servers may share the domain."""
REQUEST_ID, LIMIT, REMAINING, RESET = map(
    istr, ("X-Request-Id", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
)
ERROR_RESPONSE: Final = web.RequestKey("refusal", web.Response)
"""The response to input that is not a valid request; no path leads to it."""


def observe(https: bool) -> Middleware:
    """The outermost middleware: sets the request id, then measures and logs the response and completes its headers."""
    constant = {istr(name): value for name, value in (HEADERS | (HTTPS_HEADERS if https else {})).items()}
    figures, lines, new_ids = _RequestMetrics(), _AccessLog(), _new_ids()

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get(REQUEST_ID)
        request_id = next(new_ids) if given is None or CLIENT_REQUEST_ID.fullmatch(given) is None else given
        # Never unbound: a request runs in a task, and so in a context, of its own.
        structlog.contextvars.bind_contextvars(request_id=request_id)
        started = time.perf_counter()
        try:
            response = await handler(request)
        except BodyNotReceived as fault:
            response = _domain_error(fault.cause)
            response.force_close()
        seconds = time.perf_counter() - started
        figures.count(request, response.status, seconds)
        lines.write(request, response, seconds)
        headers = response.headers
        headers[REQUEST_ID] = request_id
        charge = request.get(RATE_LIMIT)
        if charge is not None:
            headers[LIMIT] = str(charge.limit)
            headers[REMAINING] = str(charge.remaining)
            headers[RESET] = str(math.ceil(charge.reset_s))
        headers.merge(constant)
        return response

    return middleware


def _new_ids() -> Iterator[str]:
    """Ids for requests without one: a random prefix of this process and a counter."""
    process = secrets.token_hex(6)
    return (f"{process}-{number}" for number in itertools.count(1))


class _RequestMetrics:
    """Counts requests by route, not by path. Keeps the labelled metrics, which the library would look up for each
    request."""

    def __init__(self) -> None:
        self._known: dict[tuple[AbstractResource | None, str, int], tuple[Counter, Histogram]] = {}

    def count(self, request: web.Request, status: int, seconds: float) -> None:
        resource = request.match_info.route.resource
        method = request.method if request.method in METHODS else "other"
        known = self._known.get((resource, method, status))
        if known is None:
            route = "unmatched" if resource is None else resource.canonical
            known = REQUESTS.labels(method, route, str(status)), SECONDS.labels(method, route)
            self._known[resource, method, status] = known
        known[0].inc()
        known[1].observe(seconds)


class _AccessLog:
    """The log line of each request. The logger is bound once, at the first line, because that halves the cost of a
    line."""

    def __init__(self) -> None:
        self._log: Any = None

    def write(self, request: web.Request, response: web.StreamResponse, seconds: float) -> None:
        """The query is never logged, because it may hold a link's signature."""
        if self._log is None:
            self._log = log.bind()
        caller = request.get(API_KEY)
        tell = self._log.debug if request.path in NOT_RATE_LIMITED else self._log.info
        tell(
            "api.request",
            method=request.method,
            path=_logged_path(request),
            status=response.status,
            ms=round(seconds * 1000, 1),
            bytes=response.content_length,
            client=request.remote,
            organization_id=None if caller is None else caller.organization_id,
        )


def _logged_path(request: web.Request) -> str:
    """The path in percent escapes, as it was sent: decoded it could hold line breaks."""
    return request.rel_url.raw_path[:MAX_LOGGED_PATH]


@web.middleware
async def handle_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns what a handler raises into the error body; an unexpected exception is logged with its traceback and gives a
    500."""
    try:
        return await handler(request)
    except TrunklineError as error:
        return _domain_error(error)
    except web.HTTPException as error:
        refusal = request.get(ERROR_RESPONSE)
        return _routing_error(error) if refusal is None else refusal
    except ConnectionError:
        raise
    except Exception:
        log.exception("api.request_failed", method=request.method, path=_logged_path(request))
        return error_response(500, "Internal server error")


def _domain_error(error: TrunklineError) -> web.Response:
    """The response to a domain error, by its own status and message."""
    match error:
        case Invalid() | NotGranted():
            details = [{"field": each.field, "message": each.message} for each in error.problems]
            return error_response(error.status, error.message, details=details)
        case QuotaExceeded():
            told = {"name": error.quota, "used": error.used, "allowed": error.allowed}
            return error_response(error.status, error.message, quota=told)
        case LimitExceeded(retry_after_s=int(seconds)):
            headers = {"Retry-After": str(seconds)}
            return error_response(error.status, error.message, headers, retryAfter=seconds)
        case Unavailable():
            log.error("api.unavailable", cause=str(error))
            wait_s = error.retry_after_s
            return error_response(error.status, error.message, {} if wait_s is None else {"Retry-After": str(wait_s)})
        case Unauthorized():
            details = [{"field": error.problem.field, "message": error.problem.message}]
            return error_response(error.status, error.message, {"WWW-Authenticate": "Bearer"}, details=details)
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
    """Returns a response with the body `{error, ...}`."""
    body = to_json({"error": message, **more})
    return web.Response(body=body, status=status, headers=headers, content_type="application/json", charset="utf-8")
