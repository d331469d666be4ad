"""Voicemails that answer calls of the server, with the default voice and recognizer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from tests.sipcore.tones import tone
from tests.transcripts import without_times
from tests.trunkline.callees import ReceivedCall, TrunkPhone, trunk_phone
from tests.trunkline.caller_speech import words
from tests.trunkline.phone_calls import real
from tests.trunkline.recording_analysis import audible
from tests.trunkline.server_in_process import LocalServer, open_local_server

pytestmark = pytest.mark.asyncio(loop_scope="module")
RATE = 8000
PACKETS_PER_S = 50
GREETING = "Hello. I am not available right now. Please leave a message after the tone."
MESSAGE = "This is the harbour office. Please call us back."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server"), real) as local_server:
        yield local_server


@pytest_asyncio.fixture(loop_scope="module")
async def phone(local_server: LocalServer) -> AsyncIterator[TrunkPhone]:
    """The voicemail's phone."""
    async with trunk_phone(local_server.target) as phone:
        yield phone


async def test_a_message_is_left_after_the_beep_of_a_voicemail(local_server: LocalServer, phone: TrunkPhone) -> None:
    local_server.numbers += 1
    agent_id = await local_server.client.agent(
        systemPrompt="Yes. USE",
        languageHint="en",
        firstSpeaker="agent",
        agentGreeting="Hello, is this Anna?",
        agentGreetingEnabled=True,
        voicemailDetection="leave_message",
        voicemailMessage=MESSAGE,
    )
    number_id = await local_server.client.number(str(local_server.numbers), None, sipPort=phone.port)
    body = {"agentId": agent_id, "phoneNumberId": number_id, "to": "+41445550199"}
    call_id = str((await local_server.client.v1("POST", "calls", body))["id"])
    async with ReceivedCall(await phone.called()) as call:
        before = len(call.packets)
        call.say(np.concatenate([words(GREETING), np.zeros(RATE // 2, np.int16), tone(RATE, 1000, 0.4)]))
        await call.has_said()
        beep_over = len(call.packets)
        await call.hung_up()
        heard = audible(call.sound(), RATE)
    assert not heard[before:beep_over].any(), "the agent was silent until the beep was over"
    assert heard[beep_over:].sum() > 2 * PACKETS_PER_S, "the message"
    ended = await local_server.ended(call_id)
    assert (ended["status"], ended["endedReason"]) == ("completed", "voicemail")
    assert without_times(ended["transcript"])[-1] == {"role": "assistant", "content": MESSAGE}
    timeline = await local_server.client.v1("GET", f"calls/{call_id}/timeline")
    assert timeline["answerVerdicts"][-1]["kind"] == "voicemail"
