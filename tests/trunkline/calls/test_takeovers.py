"""A person takes a live call over from its agent through a WebSocket, with SIP phones and a complete server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import aiohttp
import numpy as np
import pytest
import pytest_asyncio

from media.audio_port import Samples
from storage.accounts import api_keys, organizations
from tests.sipcore.tones import loudest_hz, tone
from tests.trunkline.api_client import Client
from tests.trunkline.callees import trunk_phone
from tests.trunkline.caller_speech import words
from tests.trunkline.phone_calls import LONG, agent_call, scripted
from tests.trunkline.recording_analysis import audible, read_wav
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.server_process import until
from tests.trunkline.transferred_calls import CALLER_HZ, TARGET_HZ, call_with_target
from tests.trunkline.web_phone import RATE, WebPhone, open_socket, web_call

pytestmark = pytest.mark.asyncio(loop_scope="module")
GREETING: dict[str, Any] = {"firstSpeaker": "agent", "agentGreeting": LONG, "agentGreetingEnabled": True}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    folder = tmp_path_factory.mktemp("server")
    async with open_local_server(folder, scripted, dashboard={"listen": True}) as local_server:
        yield local_server


@asynccontextmanager
async def taken_over(server: LocalServer, call_id: str) -> AsyncIterator[WebPhone]:
    """The person's browser, connected with the caller."""
    taken = await server.client.v1("POST", f"calls/{call_id}/takeover")
    assert taken["call"]["id"] == call_id
    async with open_socket(taken["websocketUrl"]) as browser:
        await server.log.event("call.taken_over", call_id=call_id)
        yield browser


async def timeline(server: LocalServer, call_id: str) -> dict[str, Any]:
    shown: dict[str, Any] = await server.client.v1("GET", f"calls/{call_id}/timeline")
    return shown


async def test_the_agent_falls_silent_and_caller_and_person_hear_each_other(local_server: LocalServer) -> None:
    async with agent_call(local_server, "Yes.", **GREETING) as call:
        begins = await call.agent_begins()
        await call.phone.has_heard(begins + 50)
        async with taken_over(local_server, call.call_id) as browser:
            silent = await call.agent_is_silent(len(call.phone.packets), 10)
            assert silent - begins < 200, "the greeting lasts longer"
            call.phone.say(tone(8000, CALLER_HZ, 3))
            browser.say(tone(RATE, TARGET_HZ, 3))
            await browser.hears(50)
            at_person, at_caller = await asyncio.gather(browser.hears(50), call.phone.hears(50))
            assert loudest_hz(at_person, RATE) == pytest.approx(CALLER_HZ, abs=5)
            assert loudest_hz(at_caller, 8000) == pytest.approx(TARGET_HZ, abs=5)
            await browser.send(type="dtmf", digits="5")
            await call.phone.hears(50)
            assert call.phone.digits() == "5"
            assert await local_server.client.status("POST", f"calls/{call.call_id}/takeover") == 409
            assert await local_server.client.status("POST", f"calls/{call.call_id}/whisper", {"content": "x"}) == 409
            await browser.send(type="hangup")
            await call.phone.hung_up()
            assert (await browser.message(type="ended"))["endedReason"] == "agent_ended"
            assert await browser.closed() == 1000
    stored = await call.stored()
    assert (stored["status"], stored["endedReason"]) == ("completed", "agent_ended")
    (spoken,) = stored["transcript"]
    assert LONG.startswith(spoken["content"])
    assert spoken["content"] != LONG
    shown = await timeline(local_server, call.call_id)
    assert shown["takeover"]["by"]
    assert shown["takeover"]["atMs"] >= shown["turns"][0]["agentStartMs"]
    await assert_recorded(local_server, call.call_id)


async def assert_recorded(server: LocalServer, call_id: str) -> None:
    """The recording has the caller's tone on the left, and on the right the agent, then the person's tone."""
    rate, sides = read_wav(await server.client.recording(call_id))
    for side, hertz in ((0, CALLER_HZ), (1, TARGET_HZ)):
        last = np.flatnonzero(audible(sides[:, side], rate))[-1] * rate // 50
        found = [loudest_hz(sides[at - rate // 2 : at, side], rate) for at in range(last - 3 * rate, last, rate // 2)]
        assert any(each == pytest.approx(hertz, abs=5) for each in found), (side, found)


@pytest.mark.parametrize("how", ["caller", "page", "api", "wrong message"])
async def test_the_end_of_a_call_that_was_taken_over(local_server: LocalServer, how: str) -> None:
    async with agent_call(local_server, "Yes.", **GREETING) as call:
        await call.agent_begins()
        async with taken_over(local_server, call.call_id) as browser:
            await browser.hears(10)
            match how:
                case "caller":
                    await call.phone.hang_up()
                    assert (await browser.message(type="ended"))["endedReason"] == "customer_ended"
                case "page":
                    await browser.socket.close()
                    await call.phone.hung_up()
                case "api":
                    await local_server.client.v1("POST", f"calls/{call.call_id}/hangup")
                    await call.phone.hung_up()
                    assert (await browser.message(type="ended"))["endedReason"] == "api_hangup"
                case _:
                    await browser.socket.send_str("not a message")
                    await call.phone.hung_up()
    expected = {"caller": "customer_ended", "api": "api_hangup"}.get(how, "agent_ended")
    assert (await call.stored())["endedReason"] == expected
    await until(lambda: not local_server.server.endpoint.pump.stats().calls)


async def test_a_ticket_works_once_and_the_agent_talks_on_until_it_is_used(local_server: LocalServer) -> None:
    async with agent_call(local_server, "Yes.", **GREETING) as call:
        await call.agent_begins()
        taken = await local_server.client.v1("POST", f"calls/{call.call_id}/takeover")
        since = len(call.phone.packets)
        await call.phone.hears(60)
        assert audible(call.phone.sound(since), 8000).mean() > 0.5, "the agent talks on"
        wrong = taken["websocketUrl"][:-4] + "abcd"
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            async with open_socket(wrong):
                pass
        async with open_socket(taken["websocketUrl"]) as browser:
            await local_server.log.event("call.taken_over", call_id=call.call_id)
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                async with open_socket(taken["websocketUrl"]):
                    pass
            await browser.hears(10)
            await call.phone.hang_up()
            await browser.closed()


async def test_of_two_people_the_first_to_connect_has_the_call(local_server: LocalServer) -> None:
    async with agent_call(local_server, "Yes.", **GREETING) as call:
        await call.agent_begins()
        first, second = [await local_server.client.v1("POST", f"calls/{call.call_id}/takeover") for _ in "ab"]
        async with open_socket(second["websocketUrl"]) as browser:
            await local_server.log.event("call.taken_over", call_id=call.call_id)
            with pytest.raises(aiohttp.WSServerHandshakeError, match="409"):
                async with open_socket(first["websocketUrl"]):
                    pass
            await browser.hears(10)
            await call.phone.hang_up()
            await browser.closed()


async def test_a_transfer_that_rings_is_cancelled(local_server: LocalServer) -> None:
    async with (
        trunk_phone(local_server.target) as phone,
        call_with_target(local_server, phone.port, mode="cold") as call,
    ):
        await call.transfer()
        callee = await phone.called()
        callee.ring()
        async with taken_over(local_server, call.call_id) as browser:
            await callee.expect_cancel()
            call.caller.say(tone(8000, CALLER_HZ, 2))
            await browser.hears(60)
            assert loudest_hz(await browser.hears(20), RATE) == pytest.approx(CALLER_HZ, abs=5)
            await call.caller.hang_up()
            await browser.closed()
    stored = await call.stored()
    assert stored["endedReason"] == "customer_ended"
    assert [each["transferStatus"] for each in stored["transferCalls"]] == ["cancelled"]


async def test_both_are_transcribed_if_the_agent_stays_on_the_call(local_server: LocalServer) -> None:
    async with agent_call(local_server, "Yes.", firstSpeaker="user", stayOnCall=True) as call:
        await call.phone.hears(10)
        async with taken_over(local_server, call.call_id) as browser:
            await local_server.log.event("transcription.started", call_id=call.call_id)
            call.says(words("hello there"))
            await local_server.log.events_of("transcription.utterance", 1, call_id=call.call_id)
            browser.say(upsampled(words("good morning")))
            await local_server.log.events_of("transcription.utterance", 2, call_id=call.call_id)
            await browser.send(type="hangup")
            await call.phone.hung_up()
            await browser.closed()
    stored = await call.stored()
    speakers = [item.get("speaker") for item in stored["transcript"]]
    assert speakers[0] == "caller"
    assert "target" in speakers
    assert {item["role"] for item in stored["transcript"]} == {"user"}


def upsampled(sound: Samples) -> Samples:
    """Audio at 8 kHz, at 16 kHz."""
    return np.repeat(sound, 2)


async def test_a_test_call_is_taken_over_too(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", **GREETING)
    async with web_call(local_server.client, agent_id) as (call_id, caller):
        await caller.message(type="state", state="speaking")
        async with taken_over(local_server, call_id) as person:
            person.say(tone(RATE, TARGET_HZ, 2))
            caller.say(tone(RATE, CALLER_HZ, 2))
            await caller.hears(50)
            at_caller, at_person = await asyncio.gather(caller.hears(20), person.hears(20))
            assert loudest_hz(at_caller, RATE) == pytest.approx(TARGET_HZ, abs=5)
            assert loudest_hz(at_person, RATE) == pytest.approx(CALLER_HZ, abs=5)
            await caller.send(type="hangup")
            await person.message(type="ended", endedReason="customer_ended")


async def test_calls_of_others_and_calls_without_an_agent_are_refused(local_server: LocalServer) -> None:
    database = local_server.server.database
    other = await database.write(lambda conn: organizations.create(conn, "others"))
    _, key = await database.write(lambda conn: api_keys.create(conn, other.id))
    async with agent_call(local_server, "Yes.", **GREETING) as call:
        async with Client(local_server.server.api_origin, key, set()) as stranger:
            assert await stranger.status("POST", f"calls/{call.call_id}/takeover") == 404
        assert await local_server.client.status("POST", f"calls/{uuid4()}/takeover") == 404
        await call.phone.hang_up()
    await call.stored()
    assert await local_server.client.status("POST", f"calls/{call.call_id}/takeover") == 409
    assert (await timeline(local_server, call.call_id))["takeover"] is None
