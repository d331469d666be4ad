"""Outbound calls of API clients, over SIP with a complete server."""

from __future__ import annotations

import asyncio
import json
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import sqlalchemy as sa

from bench.turn.scripted_models import WORDS
from storage import tables
from tests.media.speech import speech
from tests.peers.baresip import Baresip
from tests.peers.ports import free_port
from tests.trunkline.callees import ReceivedCall, TrunkPhone, trunk_phone
from tests.trunkline.recording_analysis import audible, read_wav
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.server_process import Receiver

RING_TIMEOUT_S = 1.5
TO = "+41445550199"
in_this_module = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module, with a short ring timeout."""
    folder = tmp_path_factory.mktemp("server")
    async with open_local_server(
        folder, sip={"ring_timeout_s": RING_TIMEOUT_S}, limits={"max_outbound_per_second": 50}
    ) as local_server:
        yield local_server


@pytest_asyncio.fixture(loop_scope="module")
async def phone(local_server: LocalServer) -> AsyncIterator[TrunkPhone]:
    """The callee's phone."""
    async with trunk_phone(local_server.target) as phone:
        yield phone


async def body_for(
    local_server: LocalServer, port: int, *, trunk: dict[str, Any] | None = None, **agent: Any
) -> dict[str, Any]:
    """The body of POST /calls for a new agent and a new number, whose trunk is at that port."""
    local_server.numbers += 1
    agent_id = await local_server.client.agent(**{"systemPrompt": "Thank you. END", **agent})
    number_id = await local_server.client.number(str(local_server.numbers), None, sipPort=port, **(trunk or {}))
    return {"agentId": agent_id, "phoneNumberId": number_id, "to": TO}


async def start(local_server: LocalServer, body: dict[str, Any]) -> str:
    """Create an outbound call; returns its id."""
    return str((await local_server.client.v1("POST", "calls", body))["id"])


def outcome(call: dict[str, Any]) -> tuple[str, str]:
    """Status and ended reason of a call."""
    return call["status"], call["endedReason"]


@in_this_module
async def test_a_call_is_answered_held_stored_and_sent_to_the_webhook(
    local_server: LocalServer, phone: TrunkPhone
) -> None:
    since = local_server.log.mark()
    async with Receiver() as receiver:
        body = await body_for(
            local_server, phone.port, trunk={"name": "Front desk"}, firstSpeaker="agent", agentGreetingEnabled=True,
            agentGreeting="Hello {{first_name}}, this is the harbour office.", postCallWebhookUrl=receiver.url,
            systemPrompt="You are {{vip}}. END", recordingAnnouncement="{{first_name}}, this call is recorded.",
        )  # fmt: skip
        body |= {"contextVariables": {"first_name": "Ann", "vip": True}, "metadata": {"order": 7}}
        call_id = await start(local_server, body)
        callee = await phone.called()
        assert callee.invite.first_line.split()[1] == f"sip:{TO}@127.0.0.1:{phone.port};transport=udp"
        assert callee.invite.header("From").startswith(f'"Front desk" <sip:{local_server.numbers}@127.0.0.1>')
        callee.ring()
        await local_server.log.event("call.ringing", call_id=call_id)
        async with ReceivedCall(callee) as call:
            await local_server.log.events_of("turn.agent", 2, call_id=call_id)
            call.say(speech("hello there"))
            await call.hung_up()
            heard = call.sound()
        payload = json.loads((await receiver.about(call_id))[1])
    ended = await local_server.ended(call_id)
    assert outcome(ended) == ("completed", "agent_ended")
    assert [item["content"] for item in ended["transcript"]] == [
        "Ann, this call is recorded.",
        "Hello Ann, this is the harbour office.",
        WORDS,
        "You are true.",
    ]
    assert (ended["callSid"], ended["customerNumber"]) == (callee.invite.header("Call-ID"), TO)
    assert ended["calledNumber"] == TO
    assert audible(heard, 8000).mean() > 0.3
    fields = ("direction", "status", "customerNumber", "calledNumber", "contextVariables", "metadata")
    assert {name: payload[name] for name in fields} == {name: ended[name] for name in fields}
    rate, sides = read_wav(await local_server.client.recording(call_id))
    assert audible(sides[:, 0], rate).any(), "the callee is on the left"
    assert audible(sides[:, 1], rate).any(), "the agent is on the right"
    events = [each for each in local_server.log.events[since:] if each.get("call_id") == call_id]
    steps = [each["event"] for each in events if each["event"].startswith("call.")]
    assert steps == ["call.queued", "call.placed", "call.ringing", "call.answered", "call.ended"]
    shown = {each["event"] for each in local_server.log.events[since:] if TO in json.dumps(each)}
    assert shown == {"outbound.attempt", "call.placed"}


@in_this_module
async def test_baresip_is_called_and_holds_a_conversation(local_server: LocalServer, tmp_path: Path) -> None:
    sound = tmp_path / "says.wav"
    with wave.open(str(sound), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(2 * 8000 * 2) + speech("hello there").tobytes() + bytes(2 * 8000 * 20))
    async with Baresip("PCMU/8000/1", play=sound, user=TO) as baresip:
        body = await body_for(
            local_server, baresip.port, firstSpeaker="agent", agentGreetingEnabled=True, agentGreeting="Good morning."
        )
        call_id = await start(local_server, body)
        await baresip.event("CALL_ESTABLISHED")
        await baresip.event("CALL_CLOSED")
        _, heard = await baresip.received_audio()
    ended = await local_server.ended(call_id)
    assert outcome(ended) == ("completed", "agent_ended")
    assert [item["content"] for item in ended["transcript"]] == ["Good morning.", WORDS, "Thank you."]
    assert audible(heard, 8000).any()


@in_this_module
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("486 Busy Here", ("failed", "busy")),
        ("404 Not Found", ("failed", "invalid_number")),
        ("603 Decline", ("failed", "rejected")),
        ("480 Temporarily Unavailable", ("no_answer", "no_answer")),
        ("302 Moved Temporarily", ("failed", "unreachable")),
    ],
)
async def test_a_rejection_sets_the_ended_reason(
    local_server: LocalServer, phone: TrunkPhone, status: str, expected: tuple[str, str]
) -> None:
    call_id = await start(local_server, await body_for(local_server, phone.port))
    callee = await phone.called()
    callee.ring(phone.phone.offer("0"), "183 Session Progress")
    callee.reject(status, "Contact: <sip:elsewhere@127.0.0.1:9>")
    await callee.next_request("ACK")
    ended = await local_server.ended(call_id)
    assert (outcome(ended), ended["startedAt"], ended["recordingUrl"]) == (expected, None, None)


@in_this_module
async def test_a_call_that_rings_longer_than_the_ring_timeout_is_cancelled(
    local_server: LocalServer, phone: TrunkPhone
) -> None:
    call_id = await start(local_server, await body_for(local_server, phone.port))
    callee = await phone.called()
    callee.ring()
    await callee.expect_cancel()
    ended = await local_server.ended(call_id)
    assert outcome(ended) == ("no_answer", "no_answer")


@in_this_module
async def test_a_callee_that_does_not_respond_is_unreachable(local_server: LocalServer, phone: TrunkPhone) -> None:
    call_id = await start(local_server, await body_for(local_server, phone.port))
    callee = await phone.called()
    assert outcome(await local_server.ended(call_id)) == ("failed", "unreachable")
    callee.send_trying()
    await callee.expect_cancel()


@in_this_module
async def test_a_trunk_that_refuses_connections_is_unreachable_at_once(local_server: LocalServer) -> None:
    call_id = await start(local_server, await body_for(local_server, free_port(), trunk={"sipProtocol": "tcp"}))
    assert outcome(await local_server.ended(call_id)) == ("failed", "unreachable")


@in_this_module
async def test_a_trunk_is_reached_by_its_host_name(local_server: LocalServer, phone: TrunkPhone) -> None:
    call_id = await start(local_server, await body_for(local_server, phone.port, trunk={"sipIp": "localhost"}))
    callee = await phone.called()
    assert f"@127.0.0.1:{phone.port}" in callee.invite.first_line
    callee.reject("486 Busy Here")
    assert outcome(await local_server.ended(call_id)) == ("failed", "busy")


@in_this_module
async def test_a_ringing_call_is_hung_up_by_the_api(local_server: LocalServer, phone: TrunkPhone) -> None:
    call_id = await start(local_server, await body_for(local_server, phone.port))
    callee = await phone.called()
    callee.ring()
    await local_server.log.event("call.ringing", call_id=call_id)
    hanging_up = asyncio.create_task(local_server.client.v1("POST", f"calls/{call_id}/hangup"))
    await callee.expect_cancel()
    assert outcome(await hanging_up) == ("no_answer", "api_hangup")


@in_this_module
async def test_an_answered_call_is_hung_up_by_the_api(local_server: LocalServer, phone: TrunkPhone) -> None:
    call_id = await start(local_server, await body_for(local_server, phone.port))
    async with ReceivedCall(await phone.called()) as call:
        await local_server.log.event("call.answered", call_id=call_id)
        await call.hears(5)
        hanging_up = asyncio.create_task(local_server.client.v1("POST", f"calls/{call_id}/hangup"))
        await call.hung_up()
    assert outcome(await hanging_up) == ("completed", "api_hangup")


@in_this_module
async def test_a_hangup_by_the_callee_ends_the_call(local_server: LocalServer, phone: TrunkPhone) -> None:
    call_id = await start(local_server, await body_for(local_server, phone.port))
    async with ReceivedCall(await phone.called()) as call:
        await call.hears(25)
        await call.hang_up()
    assert outcome(await local_server.ended(call_id)) == ("completed", "customer_ended")


@in_this_module
async def test_an_answer_without_usable_media_ends_the_call_as_unreachable(
    local_server: LocalServer, phone: TrunkPhone
) -> None:
    call_id = await start(local_server, await body_for(local_server, phone.port))
    callee = await phone.called()
    callee.answer(sdp="")
    await callee.expect_bye()
    ended = await local_server.ended(call_id)
    assert outcome(ended) == ("completed", "unreachable")
    assert ended["transcript"] == []


@in_this_module
async def test_a_repeated_request_makes_one_call(local_server: LocalServer, phone: TrunkPhone) -> None:
    body = await body_for(local_server, phone.port)
    session, url = local_server.client._session, f"{local_server.server.api_origin}/v1/calls"
    responses = [await session.post(url, json=body, headers={"Idempotency-Key": "one-call"}) for _ in range(3)]
    assert {await response.read() for response in responses} == {await responses[0].read()}
    callee = await phone.called()
    callee.reject("486 Busy Here")
    await callee.next_request("ACK")
    await local_server.ended((await responses[0].json())["data"]["id"])
    await phone.phone.options()
    assert phone.phone.sip.received.empty(), "nobody else was called"


@in_this_module
async def test_outbound_calls_count_against_the_organizations_call_limit(
    local_server: LocalServer, phone: TrunkPhone
) -> None:
    async def allow(most: int | None) -> None:
        change = sa.update(tables.organizations).values(max_calls=most)
        await local_server.server.database.write(lambda conn: conn.execute(change))

    body = await body_for(local_server, phone.port)
    await allow(2)
    url = f"{local_server.server.api_origin}/v1/calls"
    responses = await asyncio.gather(*(local_server.client._session.post(url, json=body) for _ in range(6)))
    statuses = sorted(response.status for response in responses)
    await allow(None)
    assert statuses == [201, 201, 429, 429, 429, 429]
    for _ in range(2):
        (await phone.called()).reject("486 Busy Here")
    for response in responses:
        if response.status == 201:
            await local_server.ended((await response.json())["data"]["id"])
