"""`/events`: the stream of server-sent events of an organization (WHATWG HTML 9.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from weakref import finalize

import structlog
from aiohttp import hdrs, web

from api.auth.access_watch import ACCESS_WATCH, Access
from api.auth.principal import PRINCIPAL
from api.nodes.node_events import NODE_EVENTS
from api.resources.event_json import resync_json
from api.routing.route import CheckedRequest, FileResponse, NoQuery, RequestContext, Route
from calls.live.events import MAX_FOLLOWERS_OF_ORGANIZATION, Follower, LiveEvent
from calls.live.node_subscription import Overtaken
from config.signed_links import without_signatures

HEARTBEAT_S: Final = 15.0
"""Between two comments of a stream without events, by which both sides notice a broken connection."""
RETRY_MS: Final = 2000
"""After which a browser connects again."""
GATHER_S: Final = 0.05
"""Events of this time are sent at once."""
SLOW_READER_S: Final = 10.0
"""Time for a client to read what was sent."""
HEADERS: Final = {
    hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8",
    hdrs.CACHE_CONTROL: "no-store",
    "X-Accel-Buffering": "no",
}

log = structlog.get_logger()


class EventStream(web.StreamResponse):
    """Sends events until the client disconnects, reads too slowly, or may not read them any more, or the server
    stops."""

    def __init__(
        self, follower: Follower, access: Access, ended: asyncio.Future[None] | None, *, signed_links: bool = True
    ) -> None:
        """`ended` is done when the connection has ended, or is to end; None: this shows when something is sent.
        Without `signed_links`, those of recordings need a key or a session."""
        super().__init__(headers=HEADERS)
        self._signed_links = signed_links
        self._follower = follower
        self._access = access
        self._ends = (access.ended,) if ended is None else (access.ended, ended)
        finalizer = finalize(self, _close_on_loop, asyncio.get_running_loop(), follower, access)  # if it is never sent
        finalizer.atexit = False

    async def write_eof(self, data: bytes = b"") -> None:
        """Send the events; aiohttp calls this after the headers."""
        try:
            if self._req is not None and self._req.method != hdrs.METH_HEAD:
                await self._send_events()
            await super().write_eof(data)
        except (Overtaken, TimeoutError):
            log.warning("api.events_too_slow", client=None if self._req is None else self._req.remote)
            self._abort()
        finally:
            self._follower.close()
            self._access.close()

    async def _send_events(self) -> None:
        await self._send(_opening(self._follower))
        while await self._wait():
            events = self._follower.take()
            data = _encoded(events) if events else b":\n\n"
            await self._send(data if self._signed_links else without_signatures(data))
            if events:
                await asyncio.sleep(GATHER_S)

    async def _wait(self) -> bool:
        """Wait for the next event, or the time of a heartbeat. Returns False when the connection is to end."""
        if not self._follower.has_news:
            waited: list[asyncio.Future[Any]] = [self._follower.changed, *self._ends]
            await asyncio.wait(waited, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
        return not any(each.done() for each in self._ends)

    async def _send(self, data: bytes) -> None:
        async with asyncio.timeout(SLOW_READER_S):
            await self.write(data)

    def _abort(self) -> None:
        transport = None if self._req is None else self._req.transport
        if transport is not None:
            transport.abort()


def _opening(follower: Follower) -> bytes:
    """What a stream begins with: its id, so that a client can resume that has seen no event yet."""
    resync = b"" if follower.resumed else b"event: resync\ndata: " + resync_json() + b"\n"
    return f"retry: {RETRY_MS}\nid: {follower.last_id}\n".encode() + resync + b"\n"


def _encoded(events: Sequence[LiveEvent]) -> bytes:
    return b"".join(
        b"id: %b\nevent: %b\ndata: %b\n\n" % (each.id.encode(), each.name.encode(), each.data) for each in events
    )


def _close_on_loop(loop: asyncio.AbstractEventLoop, follower: Follower, access: Access) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(follower.close)
        loop.call_soon_threadsafe(access.close)


async def follow(checked: CheckedRequest[None, NoQuery]) -> EventStream:
    """Begin to follow, before the transaction of GET /events, which is empty."""
    request = checked.request
    follower = checked.services.events.follow(checked.owner, request.headers.get("Last-Event-ID") or None)
    if NODE_EVENTS in request.app:
        await request.app[NODE_EVENTS].ready(checked.owner)
    principal = request[PRINCIPAL]
    access = request.app[ACCESS_WATCH].begin(principal, "viewer")
    ended = getattr(request.protocol, "ended", None)
    return EventStream(follower, access, ended, signed_links=principal.session is None)


def stream(context: RequestContext[None, NoQuery]) -> EventStream:
    """GET /events"""
    response: EventStream = context.prepared
    return response


ROUTES = (
    Route(
        method="GET",
        path="/events",
        page_path="/api/events",
        name="followEvents",
        role="viewer",
        tag="Live",
        summary="Follow what happens: calls, transfers, phone numbers and capacity, as server-sent events",
        description=(
            "Events: `call.created`, `call.updated`, `call.ended` (data: the call as in GET /calls), `call.turn` (the "
            "item of the transcript with callId, sequence, interrupted and, as `turn`, the newest entry of GET "
            "/calls/{id}/timeline), `call.refused` (as in GET /phone-numbers/refused-calls), `transfer.updated` (the "
            "transfer as in transferCalls, with callId), `number.updated` (the phone number; {id, deleted: true} after "
            "its end), `document.updated` (the knowledge document, in the same way) and `capacity.updated` (as in GET "
            "/capacity). A client that connects again with the header Last-Event-ID gets the events that it has "
            "missed; if they are not known any more, it gets a `resync` event, and should load again what it shows. "
            "Comments are sent when nothing happens, at least every 15 seconds. A client that reads too slowly is "
            "disconnected; so is one whose session has ended or whose key is revoked, within seconds. 429 also means "
            f"that the organization has {MAX_FOLLOWERS_OF_ORGANIZATION} streams, the most there may be. Links in "
            "events have the origin of `[api] public_url`."
        ),
        prepare=follow,
        handler=stream,
        response=FileResponse("text/event-stream", ranges=False),
    ),
)
