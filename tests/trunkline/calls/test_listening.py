"""Listening in to live calls over a real WebSocket, with SIP phones and a complete server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import aiohttp
import numpy as np
import pytest
import pytest_asyncio
import sqlalchemy as sa

from api.auth import access_watch
from api.auth.session_cookie import SESSION_COOKIE
from calls.session.call_listener import FRAME_BYTES
from config.clock import utc_now
from media.audio_port import Samples
from storage.accounts import api_keys, audit_log, organizations
from storage.users import sessions, users
from tests.sipcore.tones import loudest_hz, tone
from tests.trunkline.callees import TargetCall, trunk_phone
from tests.trunkline.phone_calls import LONG, agent_call, scripted
from tests.trunkline.recording_analysis import audible
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.transferred_calls import CALLER_HZ, TARGET_HZ, call_with_target

pytestmark = pytest.mark.asyncio(loop_scope="module")
RATE = 16000
GREETING: dict[str, Any] = {"firstSpeaker": "agent", "agentGreeting": LONG, "agentGreetingEnabled": True}
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module, which allows listening."""
    folder = tmp_path_factory.mktemp("server")
    async with open_local_server(folder, scripted, dashboard={"listen": True}) as local_server:
        yield local_server


class Listener:
    """The frames that come through the WebSocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def hears(self, seconds: float) -> Samples:
        """The next seconds, int16[n, 2] at 16 kHz."""
        frames = [await self.socket.receive_bytes(timeout=10) for _ in range(round(seconds * 50))]
        assert {len(frame) for frame in frames} == {FRAME_BYTES}
        return np.frombuffer(b"".join(frames), "<i2").reshape(-1, 2)

    async def closed(self) -> tuple[int | None, str]:
        """Wait for the end; returns the code and the reason."""
        while (message := await self.socket.receive(timeout=20)).type is aiohttp.WSMsgType.BINARY:
            pass
        return self.socket.close_code, str(message.extra or "")


@asynccontextmanager
async def listening(
    server: LocalServer, call_id: str, key: str | None = None, cookie: str | None = None, query: str = "", **more: Any
) -> AsyncIterator[Listener]:
    """Listens in. Raises `aiohttp.WSServerHandshakeError`."""
    way_in = {"Authorization": f"Bearer {key or server.client.key}"}
    if cookie is not None:
        way_in = {"Cookie": f"{SESSION_COOKIE}={cookie}"}
    headers = {**way_in, **more.pop("headers", {})}
    url = f"{server.server.api_origin}/v1/calls/{call_id}/listen{query}".replace("http", "ws", 1)
    async with aiohttp.ClientSession() as session, session.ws_connect(url, headers=headers, **more) as opened:
        yield Listener(opened)


async def refusal(server: LocalServer, call_id: str, **how: Any) -> int:
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with listening(server, call_id, **how):
            pass
    return refused.value.status


async def test_a_listener_hears_the_caller_left_and_the_agent_right_until_the_call_ends(
    local_server: LocalServer,
) -> None:
    async with agent_call(local_server, "Yes.", **GREETING) as call:
        await call.agent_begins()
        async with listening(local_server, call.call_id) as listener:
            call.phone.say(tone(8000, CALLER_HZ, 2))
            await listener.hears(0.5)
            heard = await listener.hears(1)
            assert loudest_hz(heard[:, 0], RATE) == pytest.approx(CALLER_HZ, abs=5)
            assert audible(heard[:, 1], RATE).mean() > 0.5, "the agent's greeting"
            assert abs(loudest_hz(heard[:, 1], RATE) - CALLER_HZ) > 5
            await call.phone.hang_up()
            assert await listener.closed() == (1000, "The call has ended")
    since = await local_server.server.database.read(
        lambda conn: [
            entry
            for each in organizations.all_of(conn)
            for entry in audit_log.entries_since(conn, each.id, EPOCH)
            if entry.action == "listen" and entry.call_id == call.call_id
        ]
    )
    assert [(each.action, each.call_id) for each in since] == [("listen", call.call_id)]
    stored = await call.stored()
    assert stored["endedReason"] == "customer_ended"
    (session,) = (await local_server.client.v1("GET", f"calls/{call.call_id}/timeline"))["listening"]
    assert session["by"] == since[0].actor
    assert session["startMs"] > 0 and session["endMs"] is None, "it lasted until the end of the call"


async def test_a_listener_is_not_heard_and_changes_no_packet(local_server: LocalServer) -> None:
    """The agent's packets, sound and times, are those of a call that nobody listens to."""
    sounds = []
    for listeners in (0, 3):
        async with agent_call(local_server, "Yes.", **GREETING) as call:
            await local_server.log.event("call.answered", call_id=call.call_id)
            async with asyncio.TaskGroup() as group:
                opened: list[asyncio.Task[Samples]] = []

                async def hear(call_id: str = call.call_id) -> Samples:
                    async with listening(local_server, call_id) as listener:
                        return await listener.hears(2)

                opened += [group.create_task(hear()) for _ in range(listeners)]
            begins = await call.agent_begins()
            await call.phone.has_heard(begins + 200)
            packets = call.phone.packets[begins : begins + 200]
            sounds.append(call.phone.sound(begins)[: 150 * 160])
            sequence = [packet.sequence for packet in packets]
            assert sequence == list(range(sequence[0], sequence[0] + 200))
            await call.phone.hang_up()
    assert np.array_equal(sounds[0], sounds[1])


@pytest.mark.parametrize("message", ["text", "audio"])
async def test_a_client_that_sends_anything_is_disconnected_and_the_call_goes_on(
    local_server: LocalServer, message: str
) -> None:
    async with agent_call(local_server, "Yes.", **GREETING) as call:
        async with listening(local_server, call.call_id) as listener:
            await listener.hears(0.2)
            if message == "text":
                await listener.socket.send_str("hello")
            else:
                await listener.socket.send_bytes(bytes(640))
            assert await listener.closed() == (1008, "The client may send nothing")
        await call.phone.hears(50)
        await call.phone.hang_up()
    assert (await call.stored())["endedReason"] == "customer_ended"


async def test_a_listener_that_reads_nothing_loses_frames_and_not_the_call(local_server: LocalServer) -> None:
    async with agent_call(local_server, "Yes.", **GREETING) as call:
        connected = socket.socket()
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connected.setblocking(False)
        host, port = local_server.server.api_origin.removeprefix("http://").rsplit(":", 1)
        await asyncio.get_running_loop().sock_connect(connected, (host, int(port)))
        head = (
            f"GET /v1/calls/{call.call_id}/listen HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: Upgrade\r\n"
            f"Authorization: Bearer {local_server.client.key}\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        await asyncio.get_running_loop().sock_sendall(connected, head.encode())
        await local_server.log.event("call.listened", call_id=call.call_id)
        lost = await local_server.log.event("call.listener_lost_audio", call_id=call.call_id, timeout_s=60)
        assert lost["lost_ms"] > 0
        connected.close()
        await call.phone.hears(25)
        await call.phone.hang_up()
    assert (await call.stored())["endedReason"] == "customer_ended"


async def test_a_listener_that_leaves_and_others_that_stay_hear_the_call(local_server: LocalServer) -> None:
    async with agent_call(local_server, "Yes.", **GREETING) as call:
        async with listening(local_server, call.call_id) as stays:
            async with listening(local_server, call.call_id) as leaves:
                await leaves.hears(0.2)
            call.phone.say(tone(8000, CALLER_HZ, 2))
            await stays.hears(1)
            heard = await stays.hears(0.5)
            assert loudest_hz(heard[:, 0], RATE) == pytest.approx(CALLER_HZ, abs=5)
        await call.phone.hang_up()


async def test_both_parties_of_a_connected_transfer_are_heard_on_either_leg(local_server: LocalServer) -> None:
    async with (
        trunk_phone(local_server.target) as phone,
        call_with_target(local_server, phone.port, mode="cold") as call,
    ):
        started = await call.transfer()
        legs = ((call.call_id, CALLER_HZ, TARGET_HZ), (started["id"], TARGET_HZ, CALLER_HZ))
        async with TargetCall(await phone.called()) as target:
            await call.event("transfer.connected")
            call.caller.say(tone(8000, CALLER_HZ, 4))
            target.say(tone(8000, TARGET_HZ, 4))
            for call_id, left, right in legs:
                async with listening(local_server, call_id) as listener:
                    await listener.hears(0.4)
                    heard = await listener.hears(0.5)
                    assert loudest_hz(heard[:, 0], RATE) == pytest.approx(left, abs=5)
                    assert loudest_hz(heard[:, 1], RATE) == pytest.approx(right, abs=5)
            await call.caller.hang_up()


async def test_calls_that_are_not_the_clients_or_not_live_are_refused(local_server: LocalServer) -> None:
    other = await local_server.server.database.write(lambda conn: organizations.create(conn, "others"))
    _, other_key = await local_server.server.database.write(lambda conn: api_keys.create(conn, other.id))
    async with agent_call(local_server, "Yes.", **GREETING) as call:
        assert await refusal(local_server, call.call_id, key=other_key) == 404
        assert await refusal(local_server, str(uuid4())) == 404
        assert await refusal(local_server, call.call_id, key="wrong") == 401
        assert await refusal(local_server, call.call_id, headers={"Origin": "https://evil.example"}) == 403
        assert await local_server.client.status("GET", f"calls/{call.call_id}/listen") == 426
        await call.phone.hang_up()
    await call.stored()
    assert await refusal(local_server, call.call_id) == 409
    entries = await local_server.server.database.read(lambda conn: audit_log.entries_since(conn, other.id, EPOCH))
    assert entries == []


async def test_an_operator_listens_in_the_organization_that_the_address_names_until_the_session_ends(
    local_server: LocalServer,
) -> None:
    """A browser cannot send X-Organization with a WebSocket."""
    database = local_server.server.database

    def create(conn: sa.Connection) -> tuple[str, str, str, str]:
        stranger = organizations.create(conn, f"strangers {uuid4()}").id
        owner = next(each.id for each in organizations.all_of(conn) if each.name == "place")
        run = uuid4().hex  # names are unique on the server that the tests share
        chief, guest = (
            users.create(conn, f"chief-{run}", "operator", None), users.create(conn, f"guest-{run}", "viewer", owner)
        )  # fmt: skip
        return owner, stranger, sessions.create(conn, chief.id, utc_now()), sessions.create(conn, guest.id, utc_now())

    owner, stranger, operator, viewer = await database.write(create)
    chosen = f"?organization={owner}"
    async with agent_call(local_server, "Yes.", **GREETING) as call:
        await call.agent_begins()
        assert await refusal(local_server, call.call_id, cookie=operator, query=f"?organization={stranger}") == 404
        assert await refusal(local_server, call.call_id, cookie=viewer, query=chosen) == 403
        async with listening(local_server, call.call_id, cookie=operator, query=chosen) as listener:
            await listener.hears(0.1)
            await database.write(lambda conn: sessions.end(conn, sessions.token_hash(operator)))
            assert await listener.closed() == (1008, access_watch.ENDED)
        assert await refusal(local_server, call.call_id, cookie=operator, query=chosen) == 401
        await call.phone.hang_up()
    assert (await call.stored())["endedReason"] == "customer_ended"
