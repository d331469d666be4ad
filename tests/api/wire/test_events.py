"""The stream of events on the wire: its form, resuming, slow clients, and its end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from api.app import create_app
from api.auth.session_cookie import SESSION_COOKIE
from api.resources import events as events_module
from api.serving import listener
from api.serving.listener import listen
from calls.live.capacity import CallCapacity, Capacity
from calls.live.events import MAX_FOLLOWERS_OF_ORGANIZATION
from calls.live.live_call import CallNews
from calls.live.server_state import ServerState
from config.clock import utc_now
from storage.accounts import organizations
from storage.calls.calls import Call
from storage.users import sessions, users
from tests.api.wire.conftest import Live, Serve, Wire
from tests.storage.calls.transfer_makers import parent_call

WAIT_S = 20


async def until(condition: Callable[[], bool]) -> None:
    """Poll a condition that has no event."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - on both sides of a connection
            await asyncio.sleep(0.002)


async def opened(live: Live, *fields: str, method: str = "GET", path: str = "/v1/events") -> tuple[Wire, str]:
    """Open a stream; returns the connection and the head of the response."""
    wire = await live.connect()
    await wire.send(live.head(method, path, *fields))
    async with asyncio.timeout(WAIT_S):
        return wire, (await wire.reader.readuntil(b"\r\n\r\n")).decode()


async def block(wire: Wire) -> dict[str, str]:
    """Returns the fields of the next block of the stream, a comment under the name ""."""
    async with asyncio.timeout(WAIT_S):
        size = int(await wire.reader.readline(), 16)
        chunk = (await wire.reader.readexactly(size + 2))[:-2].decode()
    assert chunk.endswith("\n\n")
    return dict(line.split(":", 1) for line in chunk.rstrip("\n").split("\n") if line) or {"": chunk}


def tell(live: Live, calls: int = 1) -> None:
    """Publish an event."""
    capacity = Capacity(CallCapacity(calls, 10, 10 - calls), ServerState())
    live.api.services.events.publish(live.api.organization_id, "capacity.updated", lambda: capacity)


async def test_events_are_sent_as_the_api_shows_the_same_thing(live: Live) -> None:
    wire, head = await opened(live)
    assert head.startswith("HTTP/1.1 200 ")
    fields = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in head.split("\r\n")}
    assert fields["content-type"] == "text/event-stream; charset=utf-8"
    assert fields["cache-control"] == "no-store"
    assert {"x-ratelimit-limit", "x-request-id", "content-security-policy"} <= fields.keys()
    begin = await block(wire)
    assert begin["retry"] == " 2000"
    assert begin.keys() == {"retry", "id"}
    tell(live)
    told = await block(wire)
    assert told["event"] == " capacity.updated"
    assert json.loads(told["data"]) == {
        "calls": 1, "maxCalls": 10, "callsLeft": 9, "rejectionReason": None, "models": None, "warnings": [],
        "nodes": [],
    }  # fmt: skip


async def test_links_of_recordings_are_signed_for_keys_and_not_for_sessions(live: Live) -> None:
    database, owner = live.api.services.database, live.api.organization_id

    def create(conn: sa.Connection) -> tuple[str, Call]:
        token = sessions.create(conn, users.create(conn, "anna", "viewer", owner).id, utc_now())
        return token, parent_call(conn, owner)

    token, call = await database.write(create)
    recorded = replace(call, recorded=True)
    with_key, _ = await opened(live)
    with_session = await live.connect()
    await with_session.send(f"GET /api/events HTTP/1.1\r\nHost: x\r\nCookie: {SESSION_COOKIE}={token}\r\n\r\n".encode())
    await with_session.reader.readuntil(b"\r\n\r\n")
    urls = []
    for wire in (with_key, with_session):
        await block(wire)
    live.api.services.events.publish(owner, "call.ended", lambda: CallNews(recorded, None))
    for wire in (with_key, with_session):
        urls.append(json.loads((await block(wire))["data"])["recordingUrl"])
    path = f"/v1/calls/{call.id}/recording"
    assert urls[1].endswith(path) and urls[0].startswith(f"{urls[1]}?expires=") and "signature=" in urls[0]


async def test_a_stream_goes_on_where_the_last_one_ended(live: Live) -> None:
    first, _ = await opened(live)
    begin = await block(first)
    tell(live, 1)
    seen = await block(first)
    tell(live, 2)
    first.writer.transport.abort()
    again, _ = await opened(live, f"Last-Event-ID:{seen['id']}")
    assert (await block(again)).keys() == {"retry", "id"}
    assert json.loads((await block(again))["data"])["calls"] == 2
    from_the_start, _ = await opened(live, f"Last-Event-ID:{begin['id']}")
    await block(from_the_start)
    chunk = await block(from_the_start)
    assert json.loads(chunk["data"])["calls"] == 2, "the last one of those that were sent at once"


async def test_a_stream_that_cannot_go_on_says_so(live: Live) -> None:
    wire, _ = await opened(live, "Last-Event-ID: 0123456789ab-7")
    begin = await block(wire)
    assert begin["event"] == " resync"
    assert "load again" in json.loads(begin["data"])["reason"]
    tell(live)
    assert (await block(wire))["event"] == " capacity.updated"


async def test_comments_are_sent_while_nothing_happens(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "HEARTBEAT_S", 0.01)
    wire, _ = await opened(live)
    await block(wire)
    assert await block(wire) == {"": ""}


async def test_a_client_that_does_not_read_is_disconnected(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "SLOW_READER_S", 0.2)
    events = live.api.services.events
    large = "x" * 100_000
    monkeypatch.setattr(events, "encode", lambda *_: large.encode())
    wire, _ = await opened(live)
    wire.reader._transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(200):
        tell(live)
        await asyncio.sleep(0.002)
    async with asyncio.timeout(WAIT_S):
        while events._followers:
            tell(live)
            await asyncio.sleep(0.01)


async def test_a_disconnected_client_is_noticed_at_once(live: Live) -> None:
    wire, _ = await opened(live)
    events = live.api.services.events
    assert events._followers == 1
    wire.writer.transport.abort()
    await until(lambda: not events._followers)


async def test_a_stream_too_many_gets_429(live: Live) -> None:
    streams = [await opened(live) for _ in range(MAX_FOLLOWERS_OF_ORGANIZATION)]
    wire = await live.connect()
    refused = await wire.ask(live.head("GET", "/v1/events"))
    assert (refused.status, refused.headers["retry-after"]) == (429, "30")
    assert refused.json == {
        "error": "The organization has 64 event streams, the most there may be",
        "retryAfter": 30,
    }
    streams[0][0].writer.transport.abort()
    await until(lambda: live.api.services.events._followers < MAX_FOLLOWERS_OF_ORGANIZATION)
    assert (await opened(live))[1].startswith("HTTP/1.1 200 ")


async def test_a_head_request_opens_no_stream(live: Live) -> None:
    wire, head = await opened(live, method="HEAD")
    assert "text/event-stream" in head
    await until(lambda: not live.api.services.events._followers)
    assert (await wire.ask(live.head("GET", "/v1/capacity"))).status == 200, "the connection goes on"


async def test_streams_end_cleanly_when_the_port_closes(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "SHUTDOWN_S", 60.0)
    live = await serve()
    app = create_app(live.api.services)
    async with listen(app, live.api.services.settings.api) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(live.head("GET", "/v1/events"))
        await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"\n\n\r\n")
    async with asyncio.timeout(WAIT_S):
        assert await reader.read() == b"0\r\n\r\n", "the last chunk"
    writer.close()


@pytest.mark.parametrize("path", ["/v1/events", "/api/events"])
async def test_a_stream_needs_a_key(live: Live, path: str) -> None:
    wire = await live.connect()
    refused = await wire.ask(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert refused.status == 401
    assert (await opened(live, path=path))[1].startswith("HTTP/1.1 200 ")


async def test_an_organization_never_gets_anothers_events(live: Live) -> None:
    database, events = live.api.services.database, live.api.services.events
    other = await database.write(lambda conn: organizations.create(conn, "other"))
    wire, _ = await opened(live)
    begin = await block(wire)
    theirs = events.follow(other.id)
    capacity: Any = Capacity(CallCapacity(7, 10, 3), ServerState())
    events.publish(other.id, "capacity.updated", lambda: capacity)
    tell(live, 1)
    assert json.loads((await block(wire))["data"])["calls"] == 1
    resumed, _ = await opened(live, f"Last-Event-ID: {theirs.last_id}")
    assert (await block(resumed))["event"] == " resync"
    resumed, _ = await opened(live, f"Last-Event-ID:{begin['id']}")
    await block(resumed)
    assert json.loads((await block(resumed))["data"])["calls"] == 1
