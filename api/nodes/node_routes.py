"""What a node tells other nodes: `/nodes/events`, a WebSocket with its events, `/nodes/live-calls`,
`/nodes/refused-invites` and `/nodes/unknown-sources`. All need the signature of a node
(`api.nodes.node_authentication`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog
from aiohttp import WSMsgType, web
from prometheus_client import Gauge
from pydantic import TypeAdapter, ValidationError

from api.auth.authentication import ADMITTED
from api.http.timeouts import DEADLINES
from api.nodes.node_client import CLOSE_S
from api.nodes.operations import EVENTS_PATH, LIVE_CALLS_PATH, REFUSED_INVITES_PATH, UNKNOWN_SOURCES_PATH
from api.services import Services
from calls.admission.refused_invites import RefusedInvite
from calls.live.live_call import LiveDetails
from calls.live.node_subscription import NodeEvent, NodeSubscription, Overtaken
from sipcore.security.unknown_sources import UnknownSource

SLOW_READER_S: Final = 10.0
"""Time for the other node to read what was sent."""
MAX_MESSAGE: Final = 4 * 1024 * 1024
"""Bytes of the organizations that another node follows."""
LINES_AT_ONCE: Final = 200
"""Events in one message."""
GATHER_S: Final = 0.02
"""Events of this time are sent at once."""
LIVE_DETAILS: Final = TypeAdapter(Mapping[str, LiveDetails])
REFUSED_INVITES: Final = TypeAdapter(Sequence[RefusedInvite])
UNKNOWN_SOURCES: Final = TypeAdapter(Sequence[UnknownSource])
ORGANIZATIONS: Final = TypeAdapter(frozenset[str])
FOLLOWED: Final = "followed"
"""The line that confirms the organizations; their number follows."""

STREAMS: Final = Gauge("trunkline_node_event_streams", "Other nodes that follow the events of this one")

log = structlog.get_logger()


def add_node_routes(app: web.Application, services: Services) -> None:
    """Add the routes."""

    async def events(request: web.Request) -> web.StreamResponse:
        _require_node(request)
        socket = web.WebSocketResponse(max_msg_size=MAX_MESSAGE, compress=False, timeout=CLOSE_S)
        if not socket.can_prepare(request):
            raise web.HTTPUpgradeRequired
        subscription = services.events.subscribe()
        try:
            with request.app[DEADLINES].paused(), STREAMS.track_inprogress():
                await socket.prepare(request)
                await _exchange(socket, subscription)
        finally:
            subscription.close()
        return socket

    async def live_calls(request: web.Request) -> web.Response:
        _require_node(request)
        return _json(LIVE_DETAILS, services.live_calls_of(_organization(request)))

    async def refused_invites(request: web.Request) -> web.Response:
        _require_node(request)
        return _json(REFUSED_INVITES, services.refused_invites(_organization(request)))

    async def unknown_sources(request: web.Request) -> web.Response:
        _require_node(request)
        return _json(UNKNOWN_SOURCES, services.unknown_sources())

    app.router.add_get(EVENTS_PATH, events, allow_head=False)
    app.router.add_get(LIVE_CALLS_PATH, live_calls, allow_head=False)
    app.router.add_get(REFUSED_INVITES_PATH, refused_invites, allow_head=False)
    app.router.add_get(UNKNOWN_SOURCES_PATH, unknown_sources, allow_head=False)


def _require_node(request: web.Request) -> None:
    if not request.get(ADMITTED, False):
        raise web.HTTPNotFound


def _organization(request: web.Request) -> str:
    """The organization that is asked for; "" has nothing."""
    return request.query.get("organization", "")


def _json(kind: TypeAdapter[Any], found: Any) -> web.Response:
    return web.Response(body=kind.dump_json(found), content_type="application/json")


async def _exchange(socket: web.WebSocketResponse, subscription: NodeSubscription) -> None:
    """Send events until the other node closes, or reads too slowly."""
    sending = asyncio.create_task(_send(socket, subscription))
    receiving = asyncio.create_task(_receive(socket, subscription))
    try:
        await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in (sending, receiving):
            each.cancel()
        await asyncio.wait((sending, receiving))
    error = None if sending.cancelled() else sending.exception()
    if isinstance(error, Overtaken | TimeoutError):
        log.warning("node.events_too_slow")
    await socket.close()


async def _receive(socket: web.WebSocketResponse, subscription: NodeSubscription) -> None:
    """Take the organizations whose events the other node wants, all of them in each message."""
    while (message := await socket.receive()).type is WSMsgType.TEXT:
        try:
            subscription.organizations = ORGANIZATIONS.validate_json(message.data)
        except ValidationError:
            return
        async with asyncio.timeout(SLOW_READER_S):
            await socket.send_str(f"{FOLLOWED} {len(subscription.organizations)}")


async def _send(socket: web.WebSocketResponse, subscription: NodeSubscription) -> None:
    while True:
        events = await subscription.take()
        for first in range(0, len(events), LINES_AT_ONCE):
            async with asyncio.timeout(SLOW_READER_S):
                await socket.send_str("\n".join(map(_line, events[first : first + LINES_AT_ONCE])))
        await asyncio.sleep(GATHER_S)


def _line(event: NodeEvent) -> str:
    return f"{event.name} {event.organization_id} {event.data.decode()}"
