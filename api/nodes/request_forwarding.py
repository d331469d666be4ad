"""Passes requests on that only the node of a call can handle: as they came, with who asks, and returns the response as
it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Final

import aiohttp
import sqlalchemy as sa
import structlog
from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import Counter

from api.auth.authentication import ADMITTED, KEY_REQUIRED
from api.auth.principal import PRINCIPAL
from api.http.client_connection import while_connected
from api.http.range_requests import ByteStreamResponse
from api.http.response_streaming import CHUNK
from api.http.timeouts import DEADLINES
from api.nodes.forwarded_client import ForwardedClient
from api.nodes.node_client import CLOSE_S, GONE, NodeClient
from api.nodes.operations import EXPORTS, PASSED_ON, RECORDINGS, REPLAY, SOCKETS, operation_of
from api.routing.validation import SMALL_BODY, read_body
from api.services import NodeIdentity, Services
from config.errors import Conflict, NotFound, Unavailable
from storage import tables
from storage.nodes import nodes
from storage.nodes.nodes import Node
from storage.recording_store.object_store import StoreUnavailable
from storage.recording_store.recording_files import CallKey

REQUEST_HEADERS: Final = ("Host", "Content-Type", "Content-Encoding", "Accept", "Idempotency-Key", "Origin", "Range")
"""Headers of the client that handlers read. Its key or cookie stays here."""
RESPONSE_HEADERS: Final = (
    "Content-Type", "Content-Disposition", "Retry-After", "Location", "Content-Range", "Accept-Ranges", "ETag",
    "Last-Modified", "WWW-Authenticate", "Idempotent-Replay",
)  # fmt: skip
RECORDING_RETRY_AFTER_S: Final = 10
MAX_MESSAGE: Final = 64 * 1024
HEARTBEAT_S: Final = 20.0
PING_EVERY_S: Final = 2.0
"""A node that sends nothing for this long through a WebSocket, and no pong within half of it, is gone."""
NO_WAY: Final = "The call is on another node, and `[node] url` and `secret_file` are not set on both"
FORWARDED: Final = Counter(
    "trunkline_node_forwarded_requests_total", "Requests that were passed on to the node of a call", ["outcome"]
)
_t = tables.calls
_IS_LIVE: Final = _t.c.ended_at.is_(None)


def pass_on_to_nodes(services: Services, node: NodeIdentity, client: NodeClient | None) -> Middleware:
    """Returns the middleware, for requests that are authenticated. Without a client, for lack of a secret, requests for
    calls of other nodes are refused."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        operation = operation_of(request)
        is_socket = operation in SOCKETS
        if operation not in PASSED_ON or request.get(ADMITTED, False):
            return await handler(request)
        if operation in RECORDINGS:
            return await _recording(services, node, client, request, handler)
        target = None if operation == REPLAY else await _node_of(services, node, request)
        if target is None and (operation == REPLAY or operation in EXPORTS):
            return await _with_recording(services, node, client, request, handler)
        if target is None:
            return await handler(request)
        try:
            return await _pass_on(node, client, target, request, is_socket=is_socket)
        except Conflict:
            if is_socket or request.method not in ("GET", "HEAD"):
                raise
            return await handler(request)  # what is stored, without the live details

    return middleware


async def _pass_on(
    own: NodeIdentity, client: NodeClient | None, node: Node, request: web.Request, *, is_socket: bool
) -> web.StreamResponse:
    """The response of the call's node. Raises `Conflict` if it cannot be had."""
    proxy = _proxy_socket if is_socket else _proxy
    with request.app[DEADLINES].paused():
        return await _counted(proxy(_client_for(client, node), node, _forwarded_client(own, request), request))


def _client_for(client: NodeClient | None, node: Node) -> NodeClient:
    """Returns what asks the node. Raises `Conflict` if it cannot be asked."""
    if client is None or node.url is None:
        raise Conflict(NO_WAY)
    if node.is_down:
        raise Conflict(GONE)
    return client


async def _recording(
    services: Services, own: NodeIdentity, client: NodeClient | None, request: web.Request, handler: Handler
) -> web.StreamResponse:
    """The response of this node or, if it does not have the recording of another node's call, of that one."""
    try:
        return await handler(request)
    except (NotFound, StoreUnavailable):
        target = await _node_of(services, own, request, _t.c.recorded, tables.recording_node)
        if target is None:
            raise
        return await _pass_to_recording(own, client, target, request)


async def _with_recording(
    services: Services, own: NodeIdentity, client: NodeClient | None, request: web.Request, handler: Handler
) -> web.StreamResponse:
    """The response of this node or, if another one has the call's recording on its disk, of that one."""
    target = await _node_of(services, own, request, _t.c.recorded, tables.recording_node)
    if target is None or await _is_here(services, request):
        return await handler(request)
    return await _pass_to_recording(own, client, target, request)


async def _is_here(services: Services, request: web.Request) -> bool:
    """True if this node has the recording of the request's call on its disk, or in the store of all nodes."""
    files, call_id = services.recording_files, request.match_info["id"].lower()
    query = sa.select(_t.c.created_at).where(_t.c.id == call_id)
    created_at = await services.database.read(lambda conn: conn.execute(query).scalar_one_or_none())
    if created_at is None:
        return False
    try:
        return await files.open(CallKey(call_id, created_at)) is not None
    except StoreUnavailable:
        return True  # the handler says so


async def _pass_to_recording(
    own: NodeIdentity, client: NodeClient | None, target: Node, request: web.Request
) -> web.StreamResponse:
    """The response of the node that has a recording. Raises `Unavailable` that names it if it cannot be reached."""
    try:
        forwarding = _proxy(_client_for(client, target), target, _forwarded_client(own, request), request)
        with request.app[DEADLINES].paused():
            return await while_connected(request, _counted(forwarding))
    except Conflict as error:
        raise Unavailable(
            f"The recording is on node {target.name}, which cannot be reached", RECORDING_RETRY_AFTER_S
        ) from error


async def _counted(forwarding: Awaitable[web.StreamResponse]) -> web.StreamResponse:
    try:
        response = await forwarding
    except Conflict:
        FORWARDED.labels("gone").inc()
        raise
    FORWARDED.labels("answered").inc()
    return response


def _forwarded_client(own: NodeIdentity, request: web.Request) -> ForwardedClient:
    """A signed link or a ticket counts for itself, whoever has it."""
    return ForwardedClient(own.name, request.remote or "", request[PRINCIPAL] if request[KEY_REQUIRED] else None)


async def _node_of(
    services: Services,
    own: NodeIdentity,
    request: web.Request,
    condition: sa.ColumnElement[bool] = _IS_LIVE,
    node_name: sa.ColumnElement[str] = _t.c.node,
) -> Node | None:
    """Returns the other node that has the call of the request, if that meets the condition; None if there is none, and
    if the call is not of the client's organization. `node_name`: that of the node."""
    call_id, principal = request.match_info["id"].lower(), request.get(PRINCIPAL)
    where = [_t.c.id == call_id, condition]
    if principal is not None and request[KEY_REQUIRED]:
        where.append(_t.c.organization_id == principal.organization_id)

    def read(conn: sa.Connection) -> Node | None:
        name = conn.execute(sa.select(node_name).where(*where)).scalar_one_or_none()
        if name is None or name == own.name:
            return None
        return next((each for each in nodes.all_of(conn) if each.name == name), None)

    owner = None if principal is None else principal.organization_id
    return await services.database.read(read, owner=owner)


def _headers(request: web.Request) -> dict[str, str]:
    given = {name: request.headers[name] for name in REQUEST_HEADERS if name in request.headers}
    request_id = structlog.contextvars.get_contextvars().get("request_id")
    return given if request_id is None else {**given, "X-Request-Id": str(request_id)}


async def _proxy(
    client: NodeClient, node: Node, forwarded: ForwardedClient, request: web.Request
) -> web.StreamResponse:
    body = await read_body(request, SMALL_BODY)
    got = await client.request(node, forwarded, request.method, request.raw_path, _headers(request), body)
    headers = {name: got.headers[name] for name in RESPONSE_HEADERS if name in got.headers}
    size = got.content_length
    if request.method == "HEAD":
        return ByteStreamResponse(got.status, headers, size or 0, None)
    if size is None or size > CHUNK:
        return ByteStreamResponse(got.status, headers, size, _chunks(client, node, got))
    try:
        body = await client.unless_gone(node, got.read())
        return web.Response(status=got.status, headers=headers, body=body)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise Conflict(GONE) from error
    finally:
        got.release()


async def _chunks(client: NodeClient, node: Node, got: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body as it comes, however slowly, until the node is gone."""
    try:
        while chunk := await client.unless_gone(node, got.content.read(CHUNK)):
            yield chunk
    except (Conflict, aiohttp.ClientError) as error:
        raise ConnectionResetError("the other node has gone") from error
    finally:
        got.close()


async def _proxy_socket(
    client: NodeClient, node: Node, forwarded: ForwardedClient, request: web.Request
) -> web.StreamResponse:
    socket = web.WebSocketResponse(max_msg_size=MAX_MESSAGE, compress=False, heartbeat=HEARTBEAT_S, timeout=CLOSE_S)
    if not socket.can_prepare(request):
        raise web.HTTPUpgradeRequired
    try:
        other = await client.websocket(node, forwarded, request.raw_path, _headers(request), MAX_MESSAGE, PING_EVERY_S)
    except aiohttp.WSServerHandshakeError as error:
        raise _refusal(error) from error
    try:
        await socket.prepare(request)
        await _exchange(socket, other)
    finally:
        await other.close()
    return socket


def _refusal(error: aiohttp.WSServerHandshakeError) -> Exception:
    """The error with the status of the other node, whose text a failed handshake does not have."""
    known: Mapping[int, type[web.HTTPException]] = {
        400: web.HTTPBadRequest, 401: web.HTTPUnauthorized, 403: web.HTTPForbidden, 404: web.HTTPNotFound,
        429: web.HTTPTooManyRequests, 503: web.HTTPServiceUnavailable,
    }  # fmt: skip
    return known[error.status]() if error.status in known else Conflict("The call is not in progress")


async def _exchange(socket: web.WebSocketResponse, other: aiohttp.ClientWebSocketResponse) -> None:
    """Copy messages both ways until one side closes; the client gets the close code of the other node."""
    up, down = asyncio.create_task(_copy(socket, other)), asyncio.create_task(_copy(other, socket))
    try:
        await asyncio.wait((up, down), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in (up, down):
            each.cancel()
        await asyncio.wait((up, down))
    if down.done() and not down.cancelled():
        code = other.close_code
        reason = down.result() if down.exception() is None else ""
        await socket.close(code=WSCloseCode.GOING_AWAY if code in (None, 1006) else code, message=reason.encode())


async def _copy(
    source: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
    target: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
) -> str:
    """Copies messages until the source closes; returns its reason."""
    while True:
        message = await source.receive()
        match message.type:
            case WSMsgType.BINARY:
                await target.send_bytes(message.data)
            case WSMsgType.TEXT:
                await target.send_str(message.data)
            case WSMsgType.CLOSE:
                return message.extra or ""
            case _:
                return ""
