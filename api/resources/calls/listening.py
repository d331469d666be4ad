"""The WebSocket of someone who listens in to a call: `GET /v1/calls/{id}/listen`. It sends the audio of both sides and
takes nothing."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from aiohttp import WSCloseCode, WSMsgType, web

from api.auth import access_watch
from api.auth.access_watch import ACCESS_WATCH, Access
from api.auth.principal import PRINCIPAL
from api.auth.same_origin import require_same_origin
from api.http.timeouts import DEADLINES
from api.resources.calls.web_call_socket import CLOSE_TIMEOUT_S, HEARTBEAT_S, SLOW_READER_S
from api.services import Services
from calls.session.call_listener import CallListener
from config.errors import Forbidden, NotFound
from storage.accounts import audit_log
from storage.accounts.audit_log import AuditObject
from storage.calls import calls

LISTEN_PATH: Final = "/v1/calls/{id}/listen"
LEAST_ROLE: Final = "editor"
MAX_MESSAGE: Final = 4096
"""Bytes of a message of the client, which is refused anyway."""
NOT_ALLOWED: Final = "Listening to calls is not allowed: see the setting [dashboard] listen"
ONE_WAY: Final = "The client may send nothing"
TOO_SLOW: Final = "The client reads too slowly"
ENDED: Final = "The call has ended"

log = structlog.get_logger()


def add_listen_socket(app: web.Application, services: Services) -> None:
    """Add the route."""

    async def listen(request: web.Request) -> web.StreamResponse:
        request[PRINCIPAL].require_role(LEAST_ROLE)
        if not services.settings.dashboard.listen:
            raise Forbidden(NOT_ALLOWED)
        require_same_origin(request, services.settings.public_origin)
        socket = web.WebSocketResponse(
            max_msg_size=MAX_MESSAGE, compress=False, heartbeat=HEARTBEAT_S, timeout=CLOSE_TIMEOUT_S
        )
        call_id = await _existing_call(services, request)
        listener = services.listen(call_id)
        access = request.app[ACCESS_WATCH].begin(request[PRINCIPAL], LEAST_ROLE)
        try:
            if not socket.can_prepare(request):
                raise web.HTTPUpgradeRequired
            await _audit(services, request, call_id)
            with request.app[DEADLINES].paused():
                await socket.prepare(request)
                listener.enter_into_timeline(request[PRINCIPAL].name)
                await _run(socket, listener, access, call_id)
        finally:
            access.close()
            listener.close()
        return socket

    app.router.add_get(LISTEN_PATH, listen)


async def _existing_call(services: Services, request: web.Request) -> str:
    """Returns the id of a call of the client's organization. Raises `NotFound`."""
    owner, call_id = request[PRINCIPAL].organization_id, request.match_info["id"]
    stored = await services.database.read(lambda conn: calls.get(conn, owner, call_id), owner=owner)
    if stored is None:
        raise NotFound("Call not found")
    return stored.id


async def _audit(services: Services, request: web.Request, call_id: str) -> None:
    """Nobody listens unless the audit log has it. Raises `StorageUnavailable`."""
    principal = request[PRINCIPAL]
    owner, about = principal.organization_id, AuditObject("call", call_id)
    await services.database.write(
        lambda conn: audit_log.record(
            conn, owner, actor=principal.actor, action="listen", about=about, client=request.remote
        ),
        owner=owner,
    )
    log.info("call.listened", call_id=call_id, actor=principal.name)


async def _run(socket: web.WebSocketResponse, listener: CallListener, access: Access, call_id: str) -> None:
    """Send until the call ends, or the client closes, sends something, does not read, or may not listen any more."""
    sending, receiving = asyncio.create_task(_send(socket, listener)), asyncio.create_task(_receive(socket))
    directions = (sending, receiving)
    try:
        await asyncio.wait((*directions, access.ended), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in directions:
            each.cancel()
        await asyncio.wait(directions)
        if listener.dropped_ms:
            log.info("call.listener_lost_audio", call_id=call_id, lost_ms=listener.dropped_ms)
    if access.ended.done():
        await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=access_watch.ENDED.encode())
        return
    if not receiving.cancelled() and receiving.exception() is None and receiving.result():
        await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=ONE_WAY.encode())
        return
    error = None if sending.cancelled() else sending.exception()
    if isinstance(error, TimeoutError):
        await socket.close(code=WSCloseCode.POLICY_VIOLATION, message=TOO_SLOW.encode())
        return
    await socket.close(message=ENDED.encode())
    if error is not None and not isinstance(error, ConnectionError):
        raise error


async def _send(socket: web.WebSocketResponse, listener: CallListener) -> None:
    """Raises `TimeoutError` if the client does not read."""
    async for frame in listener.frames():
        async with asyncio.timeout(SLOW_READER_S):
            await socket.send_bytes(frame)


async def _receive(socket: web.WebSocketResponse) -> bool:
    """Wait for the client's close, or its first message. Returns True for a message."""
    message = await socket.receive()
    return message.type in (WSMsgType.TEXT, WSMsgType.BINARY)
