"""A caller whom a client of the API puts on hold, with real audio: music, and the rest of what the agent was saying."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.trunkline.caller_speech import words
from tests.trunkline.phone_calls import LONG, agent_call, scripted
from tests.trunkline.recording_analysis import audible
from tests.trunkline.server_in_process import LocalServer, open_local_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
PACKET_MS = 20
HOLD_PACKETS = 150


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server"), scripted) as local_server:
        yield local_server


async def test_a_held_caller_hears_music_and_then_the_rest_of_the_sentence(local_server: LocalServer) -> None:
    greeting: dict[str, Any] = {"firstSpeaker": "agent", "agentGreeting": LONG, "agentGreetingEnabled": True}
    async with agent_call(local_server, "Yes.", **greeting) as call:
        begins = await call.agent_begins()
        await call.phone.has_heard(begins + 50)
        held = await local_server.client.v1("POST", f"calls/{call.call_id}/hold")
        stops = len(call.phone.packets)
        assert (held["id"], held["status"]) == (call.call_id, "in_progress")
        call.says(words("hello there"))
        await call.agent_begins(stops + 25)  # the music
        assert audible(await call.phone.hears(HOLD_PACKETS), 8000).mean() > 0.8
        assert call.phone.phone.sip.received.empty(), "a request of the server"
        await local_server.client.v1("POST", f"calls/{call.call_id}/unhold")
        goes_on = len(call.phone.packets)
        ends = await call.agent_is_silent(goes_on, 25)
        await call.answers(1)
        await call.phone.hang_up()
    assert await call.talk() == [("assistant", LONG)]
    (turn,) = await call.turns()
    assert (stops - begins + ends - goes_on) * PACKET_MS == pytest.approx(turn["playedMs"], abs=400)
    await local_server.log.event("call.held", call_id=call.call_id, by="client")
    assert await local_server.client.status("POST", f"calls/{call.call_id}/hold") == 409
