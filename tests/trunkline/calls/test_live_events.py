"""What a client that follows the events is told of real calls."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from storage.accounts import api_keys, organizations
from tests.event_stream import EventStream, following
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.api_client import Client
from tests.trunkline.callees import ReceivedCall, TargetCall, trunk_phone
from tests.trunkline.caller_speech import words
from tests.trunkline.phone_calls import agent_call
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import refusal
from tests.trunkline.transferred_calls import call_with_target

pytestmark = pytest.mark.asyncio(loop_scope="module")
GREETS: dict[str, Any] = {"firstSpeaker": "agent", "agentGreeting": "Welcome.", "agentGreetingEnabled": True}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server")) as local_server:
        yield local_server


def states_of(stream: EventStream, call_id: str) -> list[str]:
    """The states that a call was told with, each once."""
    told = [each.data["state"] for each in stream.events if each.name.startswith("call.") and "state" in each.data
            and each.data["id"] == call_id]  # fmt: skip
    return [state for at, state in enumerate(told) if not at or told[at - 1] != state]


async def test_a_call_is_told_from_its_beginning_to_its_end(local_server: LocalServer) -> None:
    client = local_server.client
    async with following(client.origin, client.key) as stream:
        async with agent_call(local_server, "Certainly.", **GREETS) as call:
            of_call = call.call_id.__eq__
            created = (await stream.event("call.created")).data
            assert (created["id"], created["state"], created["status"]) == (call.call_id, "ringing", "ringing")
            await stream.event("call.updated", lambda data: of_call(data["id"]) and data["state"] == "speaking")
            await stream.event("call.turn", lambda data: of_call(data["callId"]) and data["content"] == "Welcome.")
            call.says(words("hello there"))
            await stream.event("call.updated", lambda data: data["state"] == "thinking")
            answer = (await stream.event("call.turn", lambda data: data["content"] == "Certainly.")).data
            await stream.event("call.updated", lambda data: data["state"] == "listening")
            shown = await client.call(call.call_id)
            (listed,) = [each for each in await client.v1("GET", "calls?status=in_progress") if of_call(each["id"])]
            await call.phone.hang_up()
            ended = (await stream.event("call.ended", lambda data: of_call(data["id"]))).data
        told = states_of(stream, call.call_id)
    assert [answer[name] for name in ("role", "sequence", "interrupted")] == ["assistant", 3, False]
    turns = (await client.v1("GET", f"calls/{call.call_id}/timeline"))["turns"]
    assert answer["turn"] == turns[-1]
    assert (shown["state"], listed["state"]) == ("listening", "listening")
    assert shown["live"]["responseGapMs"] == listed["live"]["responseGapMs"] == turns[-1]["responseGapMs"]
    assert shown["live"]["lossPercent"] == 0.0
    assert shown["live"]["mos"] > 4
    assert shown["live"]["durationSeconds"] >= 0
    assert [state for state in told if state != "listening"] == [
        *("ringing", "speaking", "thinking", "speaking", "ended"),
    ]  # fmt: skip
    stored = await client.call(call.call_id)
    assert ended == {name: stored[name] for name in ended if name != "recordingUrl"} | {
        "recordingUrl": ended["recordingUrl"]
    }
    assert (ended["status"], ended["endedReason"], ended["live"]) == ("completed", "customer_ended", None)
    assert stored["transcript"][-1]["content"] == "Certainly."


async def test_words_of_an_unfinished_turn_are_told(local_server: LocalServer) -> None:
    client = local_server.client
    async with following(client.origin, client.key) as stream, agent_call(local_server, "Yes.") as call:
        call.says(words("hello there"))
        await stream.event("call.turn", lambda data: data["callId"] == call.call_id)
        with_words = [
            each for each in stream.data("call.updated", id=call.call_id) if each["live"]["partialTranscript"]
        ]
        assert with_words
        await call.phone.hang_up()
        await stream.event("call.ended", lambda data: data["id"] == call.call_id)


async def test_an_organization_that_redacts_gets_redacted_turns_and_no_words_of_unfinished_ones(
    local_server: LocalServer,
) -> None:
    async with organization_of_its_own(local_server, redact=True) as redacting:
        client = redacting.client
        async with (
            following(client.origin, client.key) as stream,
            agent_call(redacting, "Your card is 4111 1111 1111 1111.") as call,
        ):
            call.says(words("hello there"))
            told = await stream.event("call.turn", lambda data: data["role"] == "assistant")
            await call.phone.hang_up()
            await stream.event("call.ended")
            assert told.data["content"] == "Your card is [card]."
            assert {each["live"]["partialTranscript"] for each in stream.data("call.updated") if each["live"]} == {None}
            assert "4111" not in str(stream.events)


async def test_a_transfer_is_told_with_its_second_leg(local_server: LocalServer) -> None:
    client = local_server.client
    async with (
        trunk_phone(local_server.target) as phone,
        following(client.origin, client.key) as stream,
        call_with_target(local_server, phone.port, mode="cold") as call,
    ):
        started = await call.transfer()
        initiated = await stream.event("transfer.updated")
        assert (initiated.data["id"], initiated.data["callId"]) == (started["id"], call.call_id)
        second = await stream.event("call.created", lambda data: data["id"] == started["id"])
        assert second.data["parentCallId"] == call.call_id
        async with TargetCall(await phone.called()) as target:
            await stream.event("transfer.updated", lambda data: data["transferStatus"] == "connected")
            shown = await client.call(call.call_id)
            assert (shown["state"], shown["transferStatus"]) == ("transferring", "connected")
            assert (await client.call(started["id"]))["state"] != "ended"
            await target.hang_up()
            await call.caller.hung_up()
        await stream.event("call.ended")
        await stream.event("call.ended")
        ended = {each["id"]: each["endedReason"] for each in stream.data("call.ended")}
        assert ended == {call.call_id: "transferred", started["id"]: "customer_ended"}
        states = [each["transferStatus"] for each in stream.data("transfer.updated")]
        assert [state for at, state in enumerate(states) if not at or states[at - 1] != state] == [
            *("initiated", "ringing", "connected", "completed"),
        ]  # fmt: skip


async def test_a_held_call_is_on_hold(local_server: LocalServer) -> None:
    client = local_server.client
    async with following(client.origin, client.key) as stream, agent_call(local_server, "Yes.") as call:
        await stream.event("call.updated", lambda data: data["state"] == "listening")
        await client.v1("POST", f"calls/{call.call_id}/hold")
        await stream.event("call.updated", lambda data: data["state"] == "on_hold")
        await client.v1("POST", f"calls/{call.call_id}/unhold")
        await stream.event("call.updated", lambda data: data["state"] == "listening")
        await client.v1("POST", f"calls/{call.call_id}/hangup")
        ended = await stream.event("call.ended")
        assert (ended.data["id"], ended.data["endedReason"]) == (call.call_id, "api_hangup")


async def test_an_outbound_call_is_queued_ringing_and_then_talks(local_server: LocalServer) -> None:
    client = local_server.client
    agent_id = await client.agent(systemPrompt="Yes.", firstSpeaker="user")
    async with trunk_phone(local_server.target) as callee, following(client.origin, client.key) as stream:
        number_id = await client.number("+4940555", agent_id, sipPort=callee.port)
        body = {"agentId": agent_id, "phoneNumberId": number_id, "to": "+4940777"}
        call_id = (await client.v1("POST", "calls", body))["id"]
        created = await stream.event("call.created")
        assert (created.data["id"], created.data["state"]) == (call_id, "queued")
        called = await callee.called()
        called.ring()
        await stream.event("call.updated", lambda data: data["state"] == "ringing")
        async with ReceivedCall(called) as talking:
            talks = await stream.event("call.updated", lambda data: data["state"] == "listening")
            assert (talks.data["status"], talks.data["direction"]) == ("in_progress", "outbound")
            await talking.hang_up()
        await stream.event("call.ended", lambda data: data["id"] == call_id)


@asynccontextmanager
async def organization_of_its_own(local_server: LocalServer, **changes: Any) -> AsyncIterator[LocalServer]:
    """The server as a new organization sees it, which has these fields."""
    database, origin = local_server.server.database, local_server.client.origin
    owner = await database.write(lambda conn: organizations.create(conn, f"place {local_server.numbers}"))
    await database.write(lambda conn: organizations.change(conn, owner, changes))
    _, key = await database.write(lambda conn: api_keys.create(conn, owner.id))
    local_server.numbers += 10
    async with Client(origin, key, set()) as client:
        yield replace(local_server, client=client, numbers=local_server.numbers - 10)


async def test_capacity_and_numbers_are_told_when_they_change(local_server: LocalServer) -> None:
    async with organization_of_its_own(local_server) as fresh:
        await capacity_and_numbers_are_told(fresh)


async def capacity_and_numbers_are_told(local_server: LocalServer) -> None:
    """Calls, a number's new name and its end."""
    client = local_server.client
    before = await client.v1("GET", "capacity")
    assert before["callsLeft"] <= before["maxCalls"] - before["calls"]
    assert (before["rejectionReason"], before["warnings"]) == (None, [])
    async with following(client.origin, client.key) as stream:
        async with agent_call(local_server, "Yes.") as call:
            number_id = (await client.call(call.call_id))["phoneNumberId"]
            told = await stream.event("number.updated", lambda data: data["id"] == number_id)
            assert told.data == await client.v1("GET", f"phone-numbers/{number_id}")
            busy = await stream.event("capacity.updated", lambda data: data["calls"] == before["calls"] + 1)
            assert busy.data["callsLeft"] == before["callsLeft"] - 1
            await call.phone.hang_up()
        await stream.event("capacity.updated", lambda data: data["calls"] == before["calls"])
        await client.v1("PATCH", f"phone-numbers/{number_id}", {"name": "Night"})
        await stream.event("number.updated", lambda data: data.get("name") == "Night")
        await client.v1("DELETE", f"phone-numbers/{number_id}")
        gone = await stream.event("number.updated", lambda data: data["id"] == number_id)
        assert gone.data == {"id": number_id, "deleted": True}


async def test_a_number_whose_registration_fails_is_told_with_the_reason(local_server: LocalServer) -> None:
    client = local_server.client
    async with RawPhone(local_server.target) as registrar, following(client.origin, client.key) as stream:
        trunk = {"sipMode": "registration", "sipUsername": "desk", "sipPassword": "secret-of-desk"}
        body = {"number": "+4940556", "provider": "sip", **trunk, "sipProxy": f"127.0.0.1:{registrar.sip.port}"}
        number_id = (await client.v1("POST", "phone-numbers", body))["id"]
        registrar.reply(await registrar.next_request("REGISTER"), "403 Forbidden")
        failed = await stream.event("number.updated", lambda data: data.get("sipStatus") == "failed")
        assert failed.data["id"] == number_id
        assert "403" in failed.data["sipStatusDetail"]
        assert "secret-of-desk" not in str(stream.events)
        await client.v1("DELETE", f"phone-numbers/{number_id}")


async def test_a_refused_call_is_told_with_the_reason(local_server: LocalServer) -> None:
    client = local_server.client
    number_id = await client.number("4712", None)
    async with following(client.origin, client.key) as stream:
        answer = await refusal(local_server.target, "4712")
        told = (await stream.event("call.refused")).data
        assert (told["phoneNumberId"], told["dialledNumber"], told["statusCode"]) == (number_id, "4712", answer.status)
        assert told in await client.v1("GET", f"phone-numbers/refused-calls?phoneNumberId={number_id}")


async def test_a_document_is_told_from_its_upload_to_its_end(local_server: LocalServer) -> None:
    client = local_server.client
    agent_id = await client.agent(knowledgeSearchInstructions="For fees")
    file = {"fileBase64": base64.b64encode(b"A berth costs 20 euros.").decode(), "fileSize": 23}
    body = {"agentId": agent_id, "name": "Fees", "filename": "fees.txt", "mimeType": "text/plain", **file}
    async with following(client.origin, client.key) as stream:
        document_id = (await client.v1("POST", "knowledge", body))["id"]
        ready = await stream.event("document.updated", lambda data: data.get("status") == "ready")
        assert ready.data == await client.v1("GET", f"knowledge/{document_id}")
        assert [each["status"] for each in stream.data("document.updated")] == ["pending", "processing", "ready"]
        await client.v1("DELETE", f"knowledge/{document_id}")
        gone = await stream.event("document.updated", lambda data: "deleted" in data)
        assert gone.data == {"id": document_id, "deleted": True}


async def test_an_organization_is_told_nothing_of_anothers_calls(local_server: LocalServer) -> None:
    client = local_server.client
    async with (
        organization_of_its_own(local_server) as others,
        following(client.origin, others.client.key) as theirs,
        following(client.origin, client.key) as ours,
        agent_call(local_server, "Yes.", **GREETS) as call,
    ):
        await ours.event("call.turn")
        await call.phone.hang_up()
        await ours.event("call.ended")
        own_agent = await others.client.agent()
        await others.client.number("4711", own_agent)
        await theirs.event("number.updated", lambda data: data["agentId"] == own_agent)
        assert {each.name for each in theirs.events} <= {"", "number.updated", "capacity.updated"}
        assert call.call_id not in str(theirs.events)
        assert {each["calls"] for each in theirs.data("capacity.updated")} <= {0}
        assert own_agent not in str(ours.events)


async def test_a_client_that_was_away_is_told_what_it_has_missed(local_server: LocalServer) -> None:
    client = local_server.client
    async with agent_call(local_server, "Yes.", **GREETS) as call:
        async with following(client.origin, client.key) as stream:
            seen = stream.events[-1].id
        await call.answers(1)
        await call.phone.hang_up()
        await call.stored()
        async with following(client.origin, client.key, after=seen) as again:
            await again.event("call.turn", lambda data: data["callId"] == call.call_id)
            ended = await again.event("call.ended")
            assert ended.data["id"] == call.call_id
            assert not again.data("resync")
