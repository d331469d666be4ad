"""The outer middlewares: request id, access log, metrics, headers of every response, error bodies."""

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

from api.auth.authentication import MONITORING_PATHS, RATE_LIMIT
from api.auth.principal import PRINCIPAL
from api.routing.validation import BodyNotReceived
from config.errors import Invalid, LimitExceeded, NotGranted, QuotaExceeded, TrunklineError, Unauthorized, Unavailable

log = structlog.get_logger()
REQUESTS: Final = Counter("trunkline_http_requests_total", "HTTP requests", ["method", "route", "status"])
SECONDS: Final = Histogram(
    "trunkline_http_request_seconds",
    "Time to the head of the response",
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
HSTS_HEADERS: Final = {"Strict-Transport-Security": "max-age=2592000"}
"""30 days, without subdomains, because other servers may share the domain."""
REQUEST_ID, LIMIT, REMAINING, RESET = map(
    istr, ("X-Request-Id", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
)
ERROR_RESPONSE: Final = web.RequestKey("error_response", web.Response)
"""The response to input that is not a valid request, and so has no route."""


def observe(hsts: bool) -> Middleware:
    """Returns the outermost middleware: it sets the request id, counts, times and logs the response, and adds the
    common headers; with `hsts` browsers use HTTPS only (RFC 6797), on every port of the host."""
    common_headers = {istr(name): value for name, value in (HEADERS | (HSTS_HEADERS if hsts else {})).items()}
    metrics, access_log, new_ids = _RequestMetrics(), _AccessLog(), _new_ids()

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        client_id = request.headers.get(REQUEST_ID)
        if client_id is not None and CLIENT_REQUEST_ID.fullmatch(client_id) is not None:
            request_id = client_id
        else:
            request_id = next(new_ids)
        # Never unbound, because each request runs in a task, and so in a context, of its own.
        structlog.contextvars.bind_contextvars(request_id=request_id)
        started = time.perf_counter()
        try:
            response = await handler(request)
        except BodyNotReceived as error:
            response = _domain_error_response(error.cause)
            response.force_close()
        seconds = time.perf_counter() - started
        metrics.count(request, response.status, seconds)
        access_log.write(request, response, seconds)
        headers = response.headers
        headers[REQUEST_ID] = request_id
        rate_limit = request.get(RATE_LIMIT)
        if rate_limit is not None:
            headers[LIMIT] = str(rate_limit.limit)
            headers[REMAINING] = str(rate_limit.remaining)
            headers[RESET] = str(math.ceil(rate_limit.reset_s))
        headers.merge(common_headers)
        return response

    return middleware


def _new_ids() -> Iterator[str]:
    """Ids for requests without one: a random prefix for this process, and a counter."""
    prefix = secrets.token_hex(6)
    return (f"{prefix}-{number}" for number in itertools.count(1))


class _RequestMetrics:
    """Counts and times requests by route, not by path. Caches the labelled metrics, because the library would look them
    up for each request."""

    def __init__(self) -> None:
        self._cache: dict[tuple[AbstractResource | None, str, int], tuple[Counter, Histogram]] = {}

    def count(self, request: web.Request, status: int, seconds: float) -> None:
        resource = request.match_info.route.resource
        method = request.method if request.method in METHODS else "other"
        cached = self._cache.get((resource, method, status))
        if cached is None:
            route = "unmatched" if resource is None else resource.canonical
            cached = REQUESTS.labels(method, route, str(status)), SECONDS.labels(method, route)
            self._cache[resource, method, status] = cached
        cached[0].inc()
        cached[1].observe(seconds)


class _AccessLog:
    """The log line of each request. The logger is bound only once, at the first line, which halves the cost of a
    line."""

    def __init__(self) -> None:
        self._log: Any = None

    def write(self, request: web.Request, response: web.StreamResponse, seconds: float) -> None:
        """The query is never logged, because it may contain a link's signature."""
        if self._log is None:
            self._log = log.bind()
        principal = request.get(PRINCIPAL)
        log_event = self._log.debug if request.path in MONITORING_PATHS else self._log.info
        log_event(
            "api.request",
            method=request.method,
            path=_logged_path(request),
            status=response.status,
            ms=round(seconds * 1000, 1),
            bytes=response.content_length,
            client=request.remote,
            organization_id=None if principal is None else principal.organization_id,
        )


def _logged_path(request: web.Request) -> str:
    """The path with its percent escapes, because a decoded path could contain line breaks."""
    return request.rel_url.raw_path[:MAX_LOGGED_PATH]


@web.middleware
async def handle_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turns exceptions of the handler into error responses; an unexpected one is logged with its traceback and becomes
    a 500."""
    try:
        return await handler(request)
    except TrunklineError as error:
        return _domain_error_response(error)
    except web.HTTPException as error:
        response = request.get(ERROR_RESPONSE)
        return _routing_error_response(error) if response is None else response
    except ConnectionError:
        raise
    except Exception:
        log.exception("api.request_failed", method=request.method, path=_logged_path(request))
        return error_response(500, "Internal server error")


def _domain_error_response(error: TrunklineError) -> web.Response:
    """The response to a domain error, with the status and message of the error."""
    match error:
        case Invalid() | NotGranted():
            details = [{"field": each.field, "message": each.message} for each in error.problems]
            return error_response(error.status, error.message, details=details)
        case QuotaExceeded():
            quota = {"name": error.quota, "used": error.used, "allowed": error.allowed}
            return error_response(error.status, error.message, quota=quota)
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


def _routing_error_response(error: web.HTTPException) -> web.Response:
    messages = {404: "Not found", 405: "Method not allowed"}
    headers = {name: value for name, value in error.headers.items() if name in ("Allow", "Location", "Content-Range")}
    return error_response(error.status, messages.get(error.status, error.reason), headers)


def error_response(status: int, message: str, headers: dict[str, str] | None = None, **more: Any) -> web.Response:
    """Returns a response with the body `{error, ...}`."""
    body = to_json({"error": message, **more})
    return web.Response(body=body, status=status, headers=headers, content_type="application/json", charset="utf-8")
