"""Test calls from a browser, over a real WebSocket, with a complete server and fake models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial

import aiohttp
import numpy as np
import pytest
import pytest_asyncio

from bench.turn.scripted_models import WORDS
from calls import row_reconciliation
from calls.web_call import web_call as web_call_module
from config.clock import utc_now
from models.protocols import ChatPrompt, LlmOutput, TextDelta, ToolCall
from storage.accounts import api_keys, organizations
from storage.calls import calls
from tests.media.speech import speech
from tests.sipcore.tones import loudest_hz, tone
from tests.trunkline.api_client import Client
from tests.trunkline.callees import TargetCall, trunk_phone
from tests.trunkline.recording_analysis import audible, read_wav
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.server_process import Receiver
from tests.trunkline.web_phone import FRAME, RATE, WebPhone, open_socket, web_call

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOUR = timedelta(hours=1)
LONG = (
    "Our office is open from nine to five on every weekday, and you will find it next to the train station, "
    "behind the old post office and the new library, where the number nine bus stops."
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server"), sip={"rtp_timeout_s": 4}) as local_server:
        yield local_server


@pytest.mark.parametrize("telephone", [False, True], ids=["wideband", "telephone"])
async def test_a_browser_talks_with_the_agent(local_server: LocalServer, telephone: bool) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Certainly. END", firstSpeaker="user")
    async with web_call(
        local_server.client, agent_id, telephone=telephone, metadata={"ticket": 17}, contextVariables={"name": "Pat"}
    ) as (call_id, browser):
        await browser.message(type="state", state="ringing")
        await browser.hears(25)
        browser.say(speech("hello there", RATE))
        spoken = await browser.message(type="transcript", role="user", final=True)
        answer = await browser.message(type="transcript", role="assistant", final=True)
        turn = await browser.message(type="turn")
        ended = await browser.message(type="ended")
        assert await browser.closed() == 1000
    assert (spoken["content"], spoken["turn"]) == (WORDS, 1)
    assert (answer["content"], answer["turn"]) == ("Certainly.", 1)
    assert (turn["turn"], turn["interrupted"]) == (1, False)
    assert turn["agentStartMs"] > turn["turnEndMs"] >= turn["speechEndMs"]
    assert ended["endedReason"] == "agent_ended"
    states = [message["state"] for message in browser.messages if message["type"] == "state"]
    assert states[0] == "ringing"
    assert [state for state in states if state in ("thinking", "speaking")] == ["thinking", "speaking"]
    assert states[-1] == "ended"
    assert browser.messages[-1] == ended
    assert audible(browser.sound(), RATE).sum() > 15, "the answer is heard"
    assert {len(frame) for frame in browser.frames} == {2 * FRAME}
    found = await local_server.ended(call_id)
    assert (found["status"], found["provider"], found["direction"]) == ("completed", "web", "inbound")
    assert (found["metadata"], found["contextVariables"]) == ({"ticket": 17, "test": True}, {"name": "Pat"})
    assert found["agentVersion"] == 1
    assert (found["phoneNumberId"], found["calledNumber"], found["mediaQuality"], found["sipEnd"]) == (None,) * 4
    assert [item["content"] for item in found["transcript"]] == [WORDS, "Certainly."]
    rate, sides = read_wav(await local_server.client.recording(call_id))
    assert rate == (8000 if telephone else 16000)
    assert audible(sides[:, 0], rate).any()
    assert audible(sides[:, 1], rate).any()
    timeline = await local_server.client.v1("GET", f"calls/{call_id}/timeline")
    assert timeline["turns"] == [{name: value for name, value in turn.items() if name != "type"}]


async def test_an_outbound_test_call_is_answered_by_the_browser(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Hello. END", firstSpeaker="agent")
    async with web_call(local_server.client, agent_id, direction="outbound") as (call_id, browser):
        await browser.message(type="ended", endedReason="agent_ended")
    found = await local_server.ended(call_id)
    assert (found["direction"], found["status"]) == ("outbound", "completed")


async def test_a_test_call_and_a_chat_that_wait_for_their_client_are_no_calls_without_a_session(
    local_server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_reconciliation, "MIN_ROW_AGE_S", 0.0)
    client, agent_id = local_server.client, await local_server.client.agent(systemPrompt="Hello.", firstSpeaker="user")
    call = await client.v1("POST", "calls/test", {"agentId": agent_id})
    chat = await client.v1("POST", "calls/chat", {"agentId": agent_id})
    ids = [call["call"]["id"], chat["id"]]
    open_rows = await local_server.server.database.read(partial(calls.open_of_node, created_before=utc_now() + HOUR))
    assert set(ids) <= {each.id for each in open_rows}, "they are looked at"
    await local_server.server.calls._rows.close_rows_without_session()
    assert [(await client.v1("GET", f"calls/{each}"))["endedAt"] for each in ids] == [None, None]
    for each in ids:
        await client.v1("POST", f"calls/{each}/hangup", {})


async def interrupted(browser: WebPhone) -> None:
    """Speak into the agent's speech, until the browser is told to drop it."""
    await browser.hears(100)
    browser.say(speech("excuse me please, I have a question for you", RATE))
    await browser.message(type="clear")


async def test_an_interruption_clears_what_the_browser_has_not_played(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(
        systemPrompt=LONG, firstSpeaker="agent", turnEndpointDelay=2000, ultravadEotThreshold=None
    )
    async with web_call(local_server.client, agent_id) as (call_id, browser):
        await interrupted(browser)
        await browser.hears(40)
        after = browser.sound(browser.clears[0] + 2)
        assert not audible(after[: 35 * FRAME], RATE).any(), "nothing follows but the fade"
        await browser.send(type="hangup")
        await browser.message(type="ended", endedReason="customer_ended")
    found = await local_server.ended(call_id)
    assert found["transcript"][0]["content"] != LONG


async def test_keys_of_the_browser_reach_the_agent(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Thank you. END", firstSpeaker="user")
    async with web_call(local_server.client, agent_id) as (call_id, browser):
        await browser.hears(10)
        await browser.send(type="dtmf", digits="42")
        await browser.send(type="played", ms=0)
        await browser.send(type="dtmf", digits="21#")
        await browser.message(type="ended")
    found = await local_server.ended(call_id)
    assert found["transcript"][0]["content"] == "4221"
    ended = await local_server.log.event("call.web_disconnected", call_id=call_id)
    assert 200 <= ended["playback_delay_ms"] == ended["playback_delay_max_ms"] < 5000, "of ten frames none was played"


async def test_a_closed_socket_ends_the_call_and_a_second_call_works(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    for _ in range(2):
        async with web_call(local_server.client, agent_id) as (call_id, browser):
            await browser.hears(10)
        found = await local_server.ended(call_id)
        assert (found["status"], found["endedReason"]) == ("completed", "customer_ended")
    pump = local_server.server.endpoint.pump
    async with asyncio.timeout(5):
        while pump.stats().calls:  # noqa: ASYNC110 - the pump's thread closes a slot and tells nobody
            await asyncio.sleep(0.02)


async def test_a_browser_that_falls_silent_loses_the_call(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with web_call(local_server.client, agent_id) as (call_id, browser):
        await browser.hears(10)
        browser.mute = True
        await browser.message(type="ended", endedReason="media_timeout")
    assert (await local_server.ended(call_id))["endedReason"] == "media_timeout"


async def test_a_call_without_a_browser_ends(local_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_call_module, "CONNECT_TIMEOUT_S", 0.1)
    agent_id = await local_server.client.agent()
    created = await local_server.client.v1("POST", "calls/test", {"agentId": agent_id})
    found = await local_server.ended(created["call"]["id"])
    assert (found["status"], found["endedReason"], found["startedAt"]) == ("no_answer", "no_answer", None)
    assert await refusal(created["websocketUrl"]) == 409


async def test_the_api_hangs_up_a_test_call(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with web_call(local_server.client, agent_id) as (call_id, browser):
        await browser.hears(10)
        await local_server.client.v1("POST", f"calls/{call_id}/hold")
        await browser.message(type="state", state="on_hold")
        await local_server.client.v1("POST", f"calls/{call_id}/unhold")
        await local_server.client.v1("POST", f"calls/{call_id}/hangup")
        await browser.message(type="ended", endedReason="api_hangup")
        assert await browser.closed() == 1000


async def refusal(url: str, **options: object) -> int:
    """The status with which the server refuses the connection."""
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        async with open_socket(url, **options):
            pass
    return refused.value.status


async def test_a_ticket_works_once_for_its_own_call_and_origin(local_server: LocalServer) -> None:
    client = local_server.client
    agent_id = await client.agent(systemPrompt="Yes.", firstSpeaker="user")
    first, other = [await client.v1("POST", "calls/test", {"agentId": agent_id}) for _ in range(2)]
    url, ticket = first["websocketUrl"].split("?")
    assert await refusal(url) == 403
    assert await refusal(f"{url}?ticket=x") == 403
    assert await refusal(f"{other['websocketUrl'].split('?')[0]}?{ticket}") == 403
    assert await refusal(first["websocketUrl"], origin="https://other.example") == 403
    same = f"http://{url.split('/')[2]}"
    async with open_socket(first["websocketUrl"], origin=same) as browser:
        await browser.hears(5)
        assert await refusal(first["websocketUrl"]) == 403, "it was used"
        await browser.hears(5)
    await local_server.ended(first["call"]["id"])
    await client.v1("POST", f"calls/{other['call']['id']}/hangup")
    assert await refusal(other["websocketUrl"]) == 409
    assert await client.status("GET", f"calls/{first['call']['id']}/socket") == 426


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"\0" * 638, "640 bytes"),
        (b"\0" * 2000, ""),
        ('{"type": "dtmf", "digits": "x"}', "pattern"),
        ('{"type": "transfer"}', "dtmf"),
        ("hello", "JSON"),
    ],
    ids=["short frame", "long frame", "no key", "unknown message", "no JSON"],
)
async def test_a_malformed_frame_ends_the_call_alone(local_server: LocalServer, frame: bytes | str, why: str) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with web_call(local_server.client, agent_id) as (_, other):
        async with web_call(local_server.client, agent_id) as (call_id, browser):
            await browser.hears(5)
            if isinstance(frame, bytes):
                await browser.socket.send_bytes(frame)
            else:
                await browser.socket.send_str(frame)
            assert await browser.closed() == (1009 if len(frame) > 1024 else 1008)
        assert (await local_server.ended(call_id))["endedReason"] == "customer_ended"
        if why:
            refused = await local_server.log.event("call.web_refused", call_id=call_id)
            assert why in refused["why"]
        await other.hears(10)


async def test_a_flood_of_frames_ends_the_call(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with web_call(local_server.client, agent_id) as (call_id, browser):
        for _ in range(4501):
            await browser.socket.send_bytes(bytes(2 * FRAME))
        assert await browser.closed() == 1008
    assert "Too many frames" in (await local_server.log.event("call.web_refused", call_id=call_id))["why"]


async def test_a_test_call_tells_no_webhook_unless_asked(local_server: LocalServer) -> None:
    async with Receiver() as receiver:
        agent_id = await local_server.client.agent(
            systemPrompt="Yes.", firstSpeaker="user", postCallWebhookUrl=receiver.url,
            postCallWebhookEvents=["call.started", "call.answered", "call.turn", "call.completed"],
        )  # fmt: skip
        told = []
        for deliver in (False, True):
            async with web_call(local_server.client, agent_id, deliverWebhook=deliver) as (call_id, browser):
                await browser.hears(10)
            await local_server.ended(call_id)
            told.append(call_id)
        _, body = await receiver.about(told[1])
        told_of = json.loads(body)
        assert (told_of["test"], told_of["event"]) == (True, "call.started")
        assert not [request for request in receiver.received if told[0].encode() in request[1]]


async def test_a_test_call_costs_nothing_and_counts_against_the_organizations_calls(local_server: LocalServer) -> None:
    database = local_server.server.database
    owner = await database.write(lambda conn: organizations.create(conn, "narrow", plan="paid", max_calls=1))
    _, key = await database.write(lambda conn: api_keys.create(conn, owner.id))
    async with Client(local_server.server.api_origin, key, set()) as narrow:
        agent_id = await narrow.agent(systemPrompt="Yes.", firstSpeaker="user")
        async with web_call(narrow, agent_id) as (call_id, browser):
            await browser.hears(5)
            assert await narrow.status("POST", "calls/test", {"agentId": agent_id}) == 429
            assert await local_server.client.status("GET", f"calls/{call_id}") == 404
            assert await local_server.client.status("POST", "calls/test", {"agentId": agent_id}) == 404
        await local_server.log.event("call.ended", call_id=call_id)
        assert "cost" not in await narrow.call(call_id)
        async with web_call(narrow, agent_id) as (_, browser):
            assert len(await browser.hears(5)) >= 5 * FRAME


async def test_silence_is_sent_all_the_time(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with web_call(local_server.client, agent_id) as (_, browser):
        assert not np.abs(await browser.hears(50)).max()


async def test_a_given_version_of_the_agent_is_run(local_server: LocalServer) -> None:
    client = local_server.client
    agent_id = await client.agent(systemPrompt="First. END", firstSpeaker="agent")
    await client.v1("PATCH", f"agents/{agent_id}", {"systemPrompt": "Second. END"})
    for version, said in ((1, "First."), (2, "Second."), (None, "Second.")):
        async with web_call(client, agent_id, version=version) as (call_id, browser):
            await browser.message(type="ended", endedReason="agent_ended")
        found = await local_server.ended(call_id)
        assert (found["agentVersion"], found["transcript"][0]["content"]) == (version or 2, said)
    assert await client.status("POST", "calls/test", {"agentId": agent_id, "version": 3}) == 404


async def test_a_tool_is_told_while_it_runs(local_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def respond(prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        if prompt.messages[-1].role == "user":
            yield ToolCall("1", "send_dtmf", '{"digits": "ww1"}')
        else:
            yield TextDelta("I have pressed it.")

    monkeypatch.setattr(local_server.language, "respond", respond)
    agent_id = await local_server.client.agent(firstSpeaker="user")
    async with web_call(local_server.client, agent_id) as (_, browser):
        await browser.hears(10)
        await browser.send(type="dtmf", digits="5#")
        begun = await browser.message(type="tool")
        assert [message for message in browser.messages if message["type"] == "tool"] == [begun]
        await browser.message(type="state", state="tool")
        ended = await browser.message(type="tool", ok=True)
        turn = await browser.message(type="turn")
    assert begun == {**ended, "arguments": None, "result": None, "ok": None, "endMs": None}
    assert ended["endMs"] - ended["startMs"] >= 1000
    assert (ended["turn"], ended["arguments"]) == (1, {"digits": "ww1"})
    (stored,) = turn["tools"]
    assert stored == {name: ended[name] for name in stored}


@pytest.mark.parametrize("named", ["the target", "the agent"])
async def test_a_web_call_is_transferred_from_a_phone_number(local_server: LocalServer, named: str) -> None:
    """The number of the target, or the agent's."""
    client, database = local_server.client, local_server.server.database
    async with trunk_phone(local_server.target) as phone:
        by_target = named == "the target"
        agent_id = await client.agent(systemPrompt="Yes.", firstSpeaker="user")
        number_id = await client.number("7001", None if by_target else agent_id, sipPort=phone.port)
        target = {"name": "Sales", "description": "Orders", "number": "555", "mode": "cold"}
        targets = [{**target, "phoneNumberId": number_id} if by_target else target]
        await client.v1("PATCH", f"agents/{agent_id}", {"transferTargets": targets})
        async with web_call(client, agent_id) as (call_id, browser):
            await browser.hears(10)
            transfer = await client.v1("POST", f"calls/{call_id}/transfer", {"target": "Sales"})
            callee = await phone.called()
            await browser.message(type="state", state="transferring")
            async with TargetCall(callee) as called:
                await local_server.log.event("transfer.connected", transfer_id=transfer["id"])
                browser.say(tone(RATE, 1000, 3))
                called.say(tone(8000, 440, 3))
                await asyncio.gather(browser.hears(50), called.hears(50))
                at_browser, at_target = await asyncio.gather(browser.hears(50), called.hears(50))
                assert loudest_hz(at_browser, RATE) == pytest.approx(440, abs=5)
                assert loudest_hz(at_target, 8000) == pytest.approx(1000, abs=5)
                await called.hang_up()
                await browser.message(type="ended", endedReason="transferred")
        found = await local_server.ended(call_id)
        assert found["transferCalls"][0]["transferStatus"] == "completed"
        child = await local_server.ended(transfer["id"])
        assert (child["parentCallId"], child["metadata"]) == (call_id, {"test": True})
        stored = await database.read(lambda conn: calls.get(conn, child["organizationId"], child["id"]))
        assert stored is not None
        assert (stored.test, stored.deliver_webhook, stored.is_free) == (True, False, False)


async def test_the_agent_goes_on_with_a_caller_who_cannot_be_transferred(
    local_server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports: list[str] = []

    async def respond(prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        if prompt.messages[-1].role == "user":
            yield ToolCall("1", "transfer_call", '{"target": "Sales"}')
        else:
            reports.append(prompt.messages[-1].content)
            yield TextDelta("I am still here.")

    monkeypatch.setattr(local_server.language, "respond", respond)
    target = {"name": "Sales", "description": "Orders", "number": "555", "mode": "cold"}
    agent_id = await local_server.client.agent(firstSpeaker="user", transferTargets=[target])
    async with web_call(local_server.client, agent_id) as (call_id, browser):
        await browser.hears(10)
        assert await local_server.client.status("POST", f"calls/{call_id}/transfer", {"target": "Sales"}) == 409
        await browser.send(type="dtmf", digits="5#")
        await browser.message(type="transcript", role="assistant", content="I am still here.")
    assert all("has no phone number" in report for report in reports)
    assert reports
