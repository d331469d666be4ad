"""Authentication of other nodes: a request with a valid signature is handled as if its client had sent it here. The
node that passes it on has charged its rate limit, and checked its key or session and its role."""

from __future__ import annotations

import hmac
from collections.abc import Callable

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from api.auth.authentication import ADMITTED, KEY_REQUIRED
from api.auth.principal import PRINCIPAL
from api.auth.rate_limit import RateLimiter
from api.nodes.forwarded_client import ForwardedClient
from api.nodes.operations import FOR_NODES, PASSED_ON, operation_of
from api.nodes.signature import SIGNATURE, BadSignature, SignatureCheck, sha256_of
from api.routing.validation import RECEIVED_BODY, SMALL_BODY, read_body
from config.clock import utc_now
from config.errors import FieldProblem, LimitExceeded, Unauthorized

log = structlog.get_logger()


def admit_from_nodes(secret: bytes, instance: str, refusals_per_minute: int, now_s: Callable[[], float]) -> Middleware:
    """Returns the middleware, which precedes authentication. Requests that claim to be of a node and are not get 401,
    and 429 after `refusals_per_minute` of an address."""
    signatures, limiter = SignatureCheck(secret, instance), RateLimiter()

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        if SIGNATURE not in request.headers:
            return await handler(request)
        try:
            return await handler(await _admitted(request, signatures))
        except BadSignature as error:
            state = limiter.charge(str(request.remote), refusals_per_minute, now_s())
            if not state.allowed:
                raise LimitExceeded("Rate limit exceeded", state.retry_after_s(now_s())) from None
            log.warning("node.request_refused", why=str(error), client=request.remote)
            raise Unauthorized(FieldProblem(SIGNATURE, "Not the signature of a node")) from None

    return middleware


async def _admitted(request: web.Request, signatures: SignatureCheck) -> web.Request:
    """Returns the request as the client sent it to the other node. Raises `BadSignature`."""
    if operation_of(request) not in PASSED_ON | FOR_NODES:
        raise BadSignature("not passed on by nodes")
    signed = signatures.check(request.method, request.raw_path, request.headers, now_ms())
    body = await read_body(request, SMALL_BODY)
    if not hmac.compare_digest(sha256_of(body).encode(), signed.body_sha256.encode()):
        raise BadSignature("another body")
    forwarded = ForwardedClient.decoded(signed.forwarded)
    request[ADMITTED], request[RECEIVED_BODY] = True, body
    request[KEY_REQUIRED] = forwarded.principal is not None
    if forwarded.principal is not None:
        request[PRINCIPAL] = forwarded.principal
    return request.clone(remote=forwarded.address)


def now_ms() -> int:
    """The time by the database's clock, ms since 1970."""
    return round(utc_now().timestamp() * 1000)
