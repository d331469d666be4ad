"""Web calls whose browser or server fails: what the other side is told, and what is left."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
import pytest
import pytest_asyncio
import sqlalchemy as sa

from api.auth.session_cookie import SESSION_COOKIE
from api.http.timeouts import RequestDeadlines, Task
from api.resources.calls import web_call_socket
from config.clock import utc_now
from sipcore.audio.pcm_channel import PcmChannel
from sipcore.endpoint import NoSlot
from storage.accounts import organizations
from storage.users import password_links, sessions, users
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.server_process import until
from tests.trunkline.web_phone import open_socket, web_call

pytestmark = pytest.mark.asyncio(loop_scope="module")
SMALL = 4096
CRASHING_CLIENT = """
import asyncio, os, sys
import aiohttp
async def talk():
    async with aiohttp.ClientSession(trust_env=False) as session, session.ws_connect(sys.argv[1]) as socket:
        for _ in range(10):
            await socket.receive()
            await socket.send_bytes(bytes(640))
        os.kill(os.getpid(), 9)
asyncio.run(talk())
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server"), limits={"max_calls": 2}) as local_server:
        yield local_server


async def assert_nothing_is_left(local_server: LocalServer, call_id: str, reason: str = "customer_ended") -> None:
    """The call has ended for that reason, its slot is free, and a second call works."""
    found = await local_server.ended(call_id)
    assert (found["status"], found["endedReason"]) == ("completed", reason)
    await until(lambda: not local_server.server.endpoint.pump.stats().calls)
    agent_id = await local_server.client.agent(systemPrompt="Hello. END", firstSpeaker="agent")
    async with web_call(local_server.client, agent_id) as (second, browser):
        await browser.message(type="ended", endedReason="agent_ended")
    await local_server.ended(second)


async def test_a_reload_ends_the_call_and_the_page_can_call_again(local_server: LocalServer) -> None:
    """The page is gone without a closing handshake, in the middle of the agent's speech."""
    agent_id = await local_server.client.agent(systemPrompt="One, two, three, four, five.", firstSpeaker="agent")
    async with web_call(local_server.client, agent_id) as (call_id, browser):
        await browser.message(type="state", state="speaking")
        connection = browser.socket.get_extra_info("socket")
        connection.shutdown(socket.SHUT_RDWR)
        await assert_nothing_is_left(local_server, call_id)


async def test_a_crash_of_the_client_ends_the_call(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    created = await local_server.client.v1("POST", "calls/test", {"agentId": agent_id})
    environment = {**os.environ, "PYTHONPATH": ""}
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CRASHING_CLIENT, created["websocketUrl"], env=environment
    )
    assert await client.wait() == -9
    await assert_nothing_is_left(local_server, created["call"]["id"])


async def test_a_client_that_does_not_read_is_disconnected(
    local_server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends all the time, so that the media timeout does not end the call; its receive window is small."""
    monkeypatch.setattr(web_call_socket, "SLOW_READER_S", 0.5)
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    created = await local_server.client.v1("POST", "calls/test", {"agentId": agent_id})
    url = urlsplit(created["websocketUrl"])
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
    slow.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(slow, (url.hostname, url.port))
    _, writer = await asyncio.open_connection(sock=slow, limit=SMALL)
    writer.write(
        f"GET {url.path}?{url.query} HTTP/1.1\r\nHost: {url.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    silence = b"\x82\xfe\x02\x80" + bytes(4 + 640)
    refused = asyncio.create_task(local_server.log.event("call.web_refused", call_id=created["call"]["id"]))
    while not refused.done():
        writer.write(silence)
        await asyncio.wait((refused,), timeout=0.02)
    assert "too slowly" in refused.result()["why"]
    writer.close()
    await assert_nothing_is_left(local_server, created["call"]["id"])


async def test_a_server_without_room_tells_it_before_the_call(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with web_call(local_server.client, agent_id) as (_, one), web_call(local_server.client, agent_id) as (_, two):
        await asyncio.gather(one.hears(5), two.hears(5))
        assert await local_server.client.status("POST", "calls/test", {"agentId": agent_id}) == 503
    await until(lambda: not local_server.server.endpoint.pump.stats().calls)


async def test_a_full_pump_refuses_the_socket_and_ends_the_call(
    local_server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    created = await local_server.client.v1("POST", "calls/test", {"agentId": agent_id})
    taken = []
    endpoint = local_server.server.endpoint
    with pytest.raises(NoSlot):
        while True:
            taken.append((await endpoint.open_pcm_channel(telephone=False))[1])
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with open_socket(created["websocketUrl"]):
            pass
    for slot in taken:
        endpoint.pump.release(slot)
    await until(lambda: not endpoint.pump.stats().calls)
    assert refused.value.status == 503
    assert refused.value.headers is not None
    assert refused.value.headers["Retry-After"] == "10"
    found = await local_server.ended(created["call"]["id"])
    assert (found["status"], found["endedReason"]) == ("failed", "error")


async def test_a_connection_that_takes_too_long_ends_the_call_and_keeps_no_slot(
    local_server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    created = await local_server.client.v1("POST", "calls/test", {"agentId": agent_id})
    open_slot, begin, cut_off = PcmChannel.open_slot, RequestDeadlines.begin, threading.Event()

    def open_slowly(channel: PcmChannel) -> int | None:
        slot = open_slot(channel)
        cut_off.wait(10)
        return slot

    def begin_short(deadlines: RequestDeadlines, task: Task) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(deadlines, "_work_s", 0.3)
            patched.setattr(deadlines, "_timer", None)  # that of an earlier request is due later
            begin(deadlines, task)

    with monkeypatch.context() as patched:
        patched.setattr(PcmChannel, "open_slot", open_slowly)
        patched.setattr(RequestDeadlines, "begin", begin_short)
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with open_socket(created["websocketUrl"]):
                pass
        cut_off.set()
    assert refused.value.status == 503
    await until(lambda: not local_server.server.endpoint.pump.stats().calls)
    found = await local_server.ended(created["call"]["id"])
    assert (found["status"], found["endedReason"]) == ("no_answer", "no_answer")


async def test_the_end_of_the_session_that_created_it_ends_the_call(local_server: LocalServer) -> None:
    """The ticket opens the WebSocket without the session; the call ends with the session all the same."""
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    database = local_server.server.database

    def sign_in(conn: sa.Connection) -> tuple[str, str]:
        owner = next(each.id for each in organizations.all_of(conn) if each.name == "place")
        user = users.create(conn, f"anna-{uuid4().hex}", "editor", owner)
        return user.id, sessions.create(conn, user.id, utc_now())

    user_id, cookie = await database.write(sign_in)
    headers = {"Cookie": f"{SESSION_COOKIE}={cookie}"}
    async with aiohttp.ClientSession(local_server.client.origin, headers=headers, trust_env=False) as browser:
        async with browser.get("/api/session") as told:
            csrf = {"X-CSRF-Token": (await told.json())["data"]["csrfToken"]}
        async with browser.post("/v1/calls/test", json={"agentId": agent_id}, headers=csrf) as response:
            created = (await response.json())["data"]
    async with open_socket(created["websocketUrl"]) as phone:
        await phone.hears(5)
        await database.write(lambda conn: password_links.disable(conn, user_id))
        assert await phone.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
    await assert_nothing_is_left(local_server, created["call"]["id"])


async def test_a_shutdown_ends_the_call_and_tells_the_browser(local_server: LocalServer) -> None:
    """The last test of this module: the server takes no more calls."""
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with web_call(local_server.client, agent_id) as (call_id, browser):
        await browser.hears(10)
        await local_server.server.calls.drain(0)
        await browser.message(type="ended", endedReason="server_shutdown")
        assert await browser.closed() == 1000
    assert (await local_server.client.call(call_id))["endedReason"] == "server_shutdown"
