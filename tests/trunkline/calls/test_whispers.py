"""Notes to the agent of a live call, with a SIP phone and a complete server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import uuid4

import pytest
import pytest_asyncio

from models.protocols import ChatPrompt
from storage.accounts import api_keys, audit_log, organizations
from tests.trunkline.api_client import Client
from tests.trunkline.callees import TargetCall, trunk_phone
from tests.trunkline.caller_speech import words
from tests.trunkline.phone_calls import AgentCall, agent_call, scripted
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.transferred_calls import call_with_target

pytestmark = pytest.mark.asyncio(loop_scope="module")
NOTE = "Offer her half the price"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server"), scripted) as local_server:
        yield local_server


def notes_in(prompt: ChatPrompt) -> list[str]:
    return [message.content for message in prompt.messages if NOTE in message.content]


async def asks(call: AgentCall) -> None:
    """The caller says something, and the agent has answered."""
    since = call.local_server.log.mark()
    call.says(words("hello there"))
    await call.local_server.log.event("turn.user", since=since, call_id=call.call_id)
    await call.local_server.log.event("turn.agent", since=since, call_id=call.call_id)
    await call.agent_is_silent(len(call.phone.packets), 25)


async def test_the_model_has_the_note_from_its_next_response_on_and_nobody_hears_it(local_server: LocalServer) -> None:
    async with agent_call(local_server, "Certainly.", firstSpeaker="user") as call:
        await asks(call)
        before = len(local_server.language.prompts)
        given = await local_server.client.v1("POST", f"calls/{call.call_id}/whisper", {"content": NOTE})
        await local_server.log.event("call.whispered", call_id=call.call_id)
        await asks(call)
        await call.phone.hang_up()
    assert (given["callId"], given["content"]) == (call.call_id, NOTE)
    prompts = local_server.language.prompts
    assert [notes_in(prompt) for prompt in prompts[:before]] == [[]] * before
    (note,) = notes_in(prompts[-1])
    assert "never read it out" in note
    assert {message.role for message in prompts[-1].messages if NOTE in message.content} == {"tool"}
    assert prompts[-1].messages[-1].role == "user"
    stored = await call.stored()
    assert NOTE not in str(stored)
    assert {content for role, content in await call.talk() if role == "assistant"} == {"Certainly."}
    timeline = await local_server.client.v1("GET", f"calls/{call.call_id}/timeline")
    (shown,) = timeline["notes"]
    assert (shown["content"], shown["author"]) == (NOTE, given["author"])
    assert timeline["turns"][0]["speechStartMs"] < shown["atMs"] <= timeline["turns"][-1]["agentEndMs"]


async def test_a_note_is_in_the_timeline_and_the_audit_log_while_the_call_goes_on(local_server: LocalServer) -> None:
    async with agent_call(local_server, "Certainly.", firstSpeaker="user") as call:
        await asks(call)
        await local_server.client.v1("POST", f"calls/{call.call_id}/whisper", {"content": NOTE})

        async def stored_note() -> bool:
            return bool((await local_server.client.v1("GET", f"calls/{call.call_id}/timeline"))["notes"])

        for _ in range(100):
            if await stored_note():
                break
            await call.phone.hears(5)
        assert await stored_note()
        await call.phone.hang_up()
    (place,) = [each for each in await local_server.server.database.read(organizations.all_of) if each.name == "place"]
    entries = await local_server.server.database.read(lambda conn: audit_log.entries_since(conn, place.id, EPOCH))
    assert (entries[-1].action, entries[-1].call_id) == ("whisper", call.call_id)
    assert NOTE not in str(entries)


async def test_a_call_without_its_agent_gets_no_notes(local_server: LocalServer) -> None:
    content = {"content": NOTE}
    async with (
        trunk_phone(local_server.target) as phone,
        call_with_target(local_server, phone.port, mode="cold") as call,
    ):
        started = await call.transfer()
        async with TargetCall(await phone.called()) as target:
            await call.event("transfer.connected")
            for call_id in (call.call_id, started["id"]):
                assert await local_server.client.status("POST", f"calls/{call_id}/whisper", content) == 409
            await target.hang_up()
    await call.stored()
    assert await local_server.client.status("POST", f"calls/{call.call_id}/whisper", content) == 409


async def test_notes_to_calls_of_others_and_without_content_are_refused(local_server: LocalServer) -> None:
    database = local_server.server.database
    other = await database.write(lambda conn: organizations.create(conn, "others"))
    _, key = await database.write(lambda conn: api_keys.create(conn, other.id))
    async with agent_call(local_server, "Certainly.", firstSpeaker="user") as call:
        path = f"calls/{call.call_id}/whisper"
        async with Client(local_server.server.api_origin, key, set()) as stranger:
            assert await stranger.status("POST", path, {"content": NOTE}) == 404
        assert await local_server.client.status("POST", f"calls/{uuid4()}/whisper", {"content": NOTE}) == 404
        for content in ("", "x" * 2001, None, 5):
            assert await local_server.client.status("POST", path, {"content": content}) == 400
        await call.phone.hang_up()
    assert (await local_server.client.v1("GET", f"calls/{call.call_id}/timeline"))["notes"] == []
