"""Chats over the API, with a complete server and a language model that does what it is told."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from calls.chat import chat_session, chats
from models.protocols import SEARCH_KNOWLEDGE
from storage.accounts import api_keys, organizations
from storage.calls import calls
from tests.calls.http_server import serving
from tests.trunkline.api_client import Client
from tests.trunkline.obedient_llm import GREETING, ObedientLlm
from tests.trunkline.server_in_process import LocalServer, open_local_server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    folder = tmp_path_factory.mktemp("server")
    async with open_local_server(folder, egress={"allow": ["127.0.0.0/8"]}) as local_server:
        yield local_server


@pytest.fixture
def llm(local_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> ObedientLlm:
    """The language model of all agents."""
    obedient = ObedientLlm()
    monkeypatch.setattr(local_server.language, "respond", obedient.respond)
    return obedient


async def chat(local_server: LocalServer, body: dict[str, Any] | None = None, **agent: Any) -> str:
    """Open a chat with a new agent, which waits for the user unless its fields say otherwise; returns its id."""
    agent_id = await local_server.client.agent(**{"firstSpeaker": "user", **agent})
    opened = await local_server.client.v1("POST", "calls/chat", {"agentId": agent_id, **(body or {})})
    return str(opened["id"])


async def say(local_server: LocalServer, call_id: str, content: str, edit_turn: int | None = None) -> dict[str, Any]:
    body = {"content": content} if edit_turn is None else {"content": content, "editTurn": edit_turn}
    answer: dict[str, Any] = await local_server.client.v1("POST", f"calls/{call_id}/messages", body)
    return answer


async def refused(local_server: LocalServer, call_id: str, body: Any) -> int:
    return await local_server.client.status("POST", f"calls/{call_id}/messages", body)


@pytest.mark.usefixtures("llm")
async def test_a_chat_is_a_test_call_with_transcript_and_timeline(local_server: LocalServer) -> None:
    agent_id = await local_server.client.agent(
        firstSpeaker="agent", agentGreetingEnabled=True, agentGreeting="Good day, {{name}}!"
    )
    opened = await local_server.client.v1(
        "POST", "calls/chat", {"agentId": agent_id, "contextVariables": {"name": "Pat"}}
    )
    assert (opened["provider"], opened["status"], opened["agentVersion"]) == ("chat", "in_progress", 1)
    assert opened["state"] == "listening"
    assert opened["metadata"] == {"test": True}
    assert [item["content"] for item in opened["transcript"]] == ["Good day, Pat!"]
    answer = await say(local_server, opened["id"], "  hello  ")
    assert 0 <= answer.pop("responseGapMs") <= answer.pop("durationMs")
    assert answer == {"turn": 1, "content": "Message 1 is hello.", "tools": [], "sources": [], "ended": False}
    await local_server.client.v1("POST", f"calls/{opened['id']}/hangup")
    found = await local_server.ended(opened["id"])
    assert (found["status"], found["endedReason"], found["turnCount"]) == ("completed", "api_hangup", 1)
    assert (found["recordingUrl"], found["mediaQuality"], found["customerNumber"]) == (None, None, "chat")
    assert [item["content"] for item in found["transcript"]] == ["Good day, Pat!", "hello", "Message 1 is hello."]
    timeline = await local_server.client.v1("GET", f"calls/{opened['id']}/timeline")
    assert [(turn["turn"], turn["endedBy"]) for turn in timeline["turns"]] == [(0, None), (1, "typed")]
    assert timeline["turns"][1]["responseGapMs"] >= 0


async def test_an_earlier_turn_is_edited_and_the_conversation_goes_on_from_there(
    local_server: LocalServer, llm: ObedientLlm
) -> None:
    call_id = await chat(local_server, firstSpeaker="agent", agentGreetingEnabled=False)
    for words in ("one", "two", "three"):
        await say(local_server, call_id, words)
    answer = await say(local_server, call_id, "zwei", edit_turn=2)
    assert (answer["turn"], answer["content"]) == (2, "Message 2 is zwei.")
    assert [(message.role, message.content) for message in llm.prompts[-1].messages] == [
        ("assistant", GREETING),
        ("user", "one"),
        ("assistant", "Message 1 is one."),
        ("user", "zwei"),
    ]
    assert (await say(local_server, call_id, "drei"))["turn"] == 3
    await local_server.client.v1("POST", f"calls/{call_id}/hangup")
    found = await local_server.ended(call_id)
    assert [item["content"] for item in found["transcript"] if item["role"] == "user"] == ["one", "zwei", "drei"]
    timeline = await local_server.client.v1("GET", f"calls/{call_id}/timeline")
    assert [turn["turn"] for turn in timeline["turns"]] == [0, 1, 2, 3]


@pytest.mark.usefixtures("llm")
async def test_tools_are_told_with_arguments_and_result(local_server: LocalServer) -> None:
    async def depth(request: web.Request) -> web.Response:
        return web.json_response({"metres": 4, "berth": request.query["berth"]})

    async with serving(depth) as origin:
        tool = await local_server.client.v1(
            "POST",
            "tools",
            {
                "name": "Look up depth",
                "type": "http",
                "config": {
                    "url": f"{origin}/depth",
                    "method": "GET",
                    "body": [{"name": "berth", "type": "string", "required": True}],
                },
            },
        )
        call_id = await chat(local_server, toolIds=[tool["id"]])
        answer = await say(local_server, call_id, 'call Look_up_depth {"berth": "B7"}')
    (used,) = answer["tools"]
    assert (used["name"], used["arguments"], used["ok"]) == ("Look_up_depth", {"berth": "B7"}, True)
    assert json.loads(used["result"].partition("\n")[2] or used["result"])["metres"] == 4
    assert answer["content"].startswith("The tool says:")
    keys = await say(local_server, call_id, 'call send_dtmf {"digits": "1"}')
    (pressed,) = keys["tools"]
    assert pressed.pop("durationMs") >= 0
    assert pressed == {
        "name": "send_dtmf", "arguments": {"digits": "1"}, "result": "The keys were pressed.", "ok": True,
    }  # fmt: skip


@pytest.mark.usefixtures("llm")
async def test_a_transfer_calls_nobody_and_the_agent_goes_on(local_server: LocalServer) -> None:
    target = {"name": "Sales", "description": "Berths", "number": "100", "mode": "cold"}
    call_id = await chat(local_server, transferTargets=[target], holdMessage="One moment.")
    answer = await say(local_server, call_id, 'call transfer_call {"target": "Sales"}')
    (used,) = answer["tools"]
    assert (used["name"], used["arguments"]["target"]) == ("transfer_call", "Sales")
    assert "nobody is called" in used["result"]
    assert answer["content"].startswith("One moment. The tool says: This is a written test")
    assert (await say(local_server, call_id, "thanks"))["turn"] == 2


@pytest.mark.usefixtures("llm")
async def test_the_agent_ends_the_chat(local_server: LocalServer) -> None:
    call_id = await chat(local_server, allowEndCall=True)
    answer = await say(local_server, call_id, "bye")
    assert (answer["content"], answer["ended"]) == ("Message 1 is bye.", True)
    assert [tool["name"] for tool in answer["tools"]] == ["end_call"]
    assert (await local_server.ended(call_id))["endedReason"] == "agent_ended"
    assert await refused(local_server, call_id, {"content": "hello"}) == 409


@pytest.mark.usefixtures("llm")
async def test_a_model_that_fails_twice_ends_the_chat(local_server: LocalServer) -> None:
    call_id = await chat(local_server)
    first = await say(local_server, call_id, "fail")
    assert (first["ended"], bool(first["content"])) == (False, True)
    last = await say(local_server, call_id, "fail")
    assert (last["ended"], last["tools"]) == (True, [])
    assert (await local_server.ended(call_id))["endedReason"] == "error"


async def test_passages_about_the_words_are_found_before_the_answer(
    local_server: LocalServer, llm: ObedientLlm
) -> None:
    client = local_server.client
    agent_id = await client.agent(firstSpeaker="user", knowledgeSearchInstructions="Search for fees.")
    text = "The fee for a berth of twelve metres is forty euros for each night in the harbour."
    await client.v1(
        "POST",
        "knowledge",
        {
            "agentId": agent_id,
            "name": "Fees",
            "filename": "fees.txt",
            "fileSize": len(text),
            "fileBase64": base64.b64encode(text.encode()).decode(),
            "mimeType": "text/plain",
        },
    )
    await local_server.log.event("knowledge.ready")
    opened = await client.v1("POST", "calls/chat", {"agentId": agent_id})
    question = "what is the fee for a berth of twelve metres each night"
    answer = await say(local_server, opened["id"], question)
    assert [source["document"] for source in answer["sources"]] == ["Fees"]
    assert any(call.name == SEARCH_KNOWLEDGE for each in llm.prompts[-1].messages for call in each.tool_calls)
    again = await say(local_server, opened["id"], question, edit_turn=1)
    assert again["sources"] == answer["sources"], "the edited turn gets the passages again"


async def test_a_message_while_another_is_answered_and_a_hangup_meanwhile(
    local_server: LocalServer, llm: ObedientLlm
) -> None:
    call_id = await chat(local_server)
    first = asyncio.create_task(refused(local_server, call_id, {"content": "wait"}))
    await llm.asked.wait()
    assert await refused(local_server, call_id, {"content": "hello"}) == 409
    assert await refused(local_server, call_id, {"content": "hello", "editTurn": 1}) == 409
    await local_server.client.v1("POST", f"calls/{call_id}/hangup")
    assert await first == 409
    assert await local_server.client.status("POST", f"calls/{call_id}/hangup") == 409


async def test_an_answer_that_takes_too_long_goes_on(
    local_server: LocalServer, llm: ObedientLlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_session, "REPLY_S", 0.05)
    call_id = await chat(local_server)
    assert await refused(local_server, call_id, {"content": "wait"}) == 503
    assert await refused(local_server, call_id, {"content": "hello"}) == 409
    monkeypatch.setattr(chat_session, "REPLY_S", 30.0)
    llm.may_answer.set()
    async with asyncio.timeout(10):
        while await refused(local_server, call_id, {"content": "hello"}) == 409:  # noqa: ASYNC110 - until it is answered
            await asyncio.sleep(0.02)
    await local_server.client.v1("POST", f"calls/{call_id}/hangup")
    found = await local_server.ended(call_id)
    assert [item["content"] for item in found["transcript"]][:2] == ["wait", "Message 1 is wait."]


@pytest.mark.usefixtures("llm")
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"content": ""},
        {"content": "  \n"},
        {"content": "x" * 4001},
        {"content": 7},
        {"content": "hello", "editTurn": 0},
        {"content": "hello", "editTurn": 1},
        {"content": "hello", "unheardOf": 1},
    ],
    ids=["nothing", "empty", "blank", "long", "number", "turn 0", "unknown turn", "unknown field"],
)
async def test_what_is_no_message_is_refused(local_server: LocalServer, body: dict[str, Any]) -> None:
    call_id = await chat(local_server)
    assert await refused(local_server, call_id, body) == 400
    assert (await say(local_server, call_id, "hello"))["turn"] == 1
    await local_server.client.v1("POST", f"calls/{call_id}/hangup")


@pytest.mark.usefixtures("llm")
async def test_a_chat_has_a_most_of_turns(local_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_session, "MAX_TURNS", 2)
    call_id = await chat(local_server)
    await say(local_server, call_id, "one")
    await say(local_server, call_id, "two")
    assert await refused(local_server, call_id, {"content": "three"}) == 409
    assert (await say(local_server, call_id, "zwei", edit_turn=2))["turn"] == 2


@pytest.mark.usefixtures("llm")
async def test_an_idle_chat_ends(local_server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_session, "IDLE_S", 0.05)
    call_id = await chat(local_server)
    found = await local_server.ended(call_id)
    assert (found["status"], found["endedReason"]) == ("completed", "customer_silent")
    assert await refused(local_server, call_id, {"content": "hello"}) == 409


@pytest.mark.usefixtures("llm")
async def test_chats_are_bounded_and_take_no_place_of_a_call(
    local_server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = local_server.server.database
    owner = await database.write(lambda conn: organizations.create(conn, "bounded", max_calls=1))
    _, key = await database.write(lambda conn: api_keys.create(conn, owner.id))
    monkeypatch.setattr(chats, "MAX_CHATS_OF_ORGANIZATION", 2)
    async with Client(local_server.server.api_origin, key, set()) as client:
        agent_id = await client.agent(firstSpeaker="user")
        opened = [await client.v1("POST", "calls/chat", {"agentId": agent_id}) for _ in range(2)]
        assert await client.status("POST", "calls/chat", {"agentId": agent_id}) == 429
        assert (await database.read(lambda conn: calls.count_open(conn, owner.id))).organization == 0
        web_call = await client.v1("POST", "calls/test", {"agentId": agent_id})
        for each in (*(chat["id"] for chat in opened), web_call["call"]["id"]):
            await client.v1("POST", f"calls/{each}/hangup")
        monkeypatch.setattr(chats, "MAX_CHATS", 0)
        assert await client.status("POST", "calls/chat", {"agentId": agent_id}) == 503


async def test_a_version_and_a_draft_of_the_agent(local_server: LocalServer, llm: ObedientLlm) -> None:
    client = local_server.client
    agent_id = await client.agent(firstSpeaker="user", systemPrompt="Be first.")
    await client.v1("PATCH", f"agents/{agent_id}", {"systemPrompt": "Be second."})

    async def prompt_of(body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        opened = await client.v1("POST", "calls/chat", {"agentId": agent_id, **body})
        await say(local_server, opened["id"], "hello")
        await client.v1("POST", f"calls/{opened['id']}/hangup")
        return llm.prompts[-1].system, opened

    system, opened = await prompt_of({"version": 1})
    assert ("Be first." in system, opened["agentVersion"]) == (True, 1)
    system, opened = await prompt_of(
        {"agent": {"systemPrompt": "Be a draft, {{name}}."}, "contextVariables": {"name": "Pat"}}
    )
    assert "Be a draft, Pat." in system
    assert (opened["agentVersion"], opened["metadata"]) == (None, {"test": True, "draft": True})
    assert (await client.v1("GET", f"agents/{agent_id}"))["version"] == 2, "nothing was saved"


async def test_what_is_no_chat_is_refused(local_server: LocalServer) -> None:
    client = local_server.client
    agent_id = await client.agent(firstSpeaker="user")
    unknown = "11111111-1111-4111-8111-111111111111"

    async def status(body: dict[str, Any]) -> int:
        return await client.status("POST", "calls/chat", body)

    assert await status({}) == 400
    assert await status({"agentId": unknown}) == 404
    assert await status({"agentId": agent_id, "version": 9}) == 404
    assert await status({"agentId": agent_id, "version": 0}) == 400
    assert await status({"agentId": agent_id, "agent": {"unheardOf": 1}}) == 400
    assert await status({"agentId": agent_id, "agent": {"voiceId": unknown}}) == 400
    assert await status({"agentId": agent_id, "agent": {"voicemailDetection": "leave_message"}}) == 400
    assert await status({"agentId": agent_id, "contextVariables": {"a b": 1}}) == 400
    inactive = await client.agent(isActive=False)
    assert await status({"agentId": inactive}) == 400
    assert await refused(local_server, unknown, {"content": "hello"}) == 404
    web_call = (await client.v1("POST", "calls/test", {"agentId": agent_id}))["call"]
    assert await refused(local_server, web_call["id"], {"content": "hello"}) == 409
    await client.v1("POST", f"calls/{web_call['id']}/hangup")


@pytest.mark.usefixtures("llm")
async def test_a_chat_is_not_held_transferred_or_heard_and_is_of_its_organization(local_server: LocalServer) -> None:
    call_id = await chat(local_server)
    for action, body in (("hold", None), ("unhold", None), ("transfer", {"target": "Sales"})):
        assert await local_server.client.status("POST", f"calls/{call_id}/{action}", body) == 409
    database = local_server.server.database
    owner = await database.write(lambda conn: organizations.create(conn, "elsewhere"))
    _, key = await database.write(lambda conn: api_keys.create(conn, owner.id))
    async with Client(local_server.server.api_origin, key, set()) as stranger:
        assert await stranger.status("POST", f"calls/{call_id}/messages", {"content": "hello"}) == 404
        assert await stranger.status("POST", f"calls/{call_id}/hangup") == 404
    assert (await say(local_server, call_id, "hello"))["turn"] == 1
    await local_server.client.v1("POST", f"calls/{call_id}/hangup")


@pytest.mark.usefixtures("llm")
async def test_a_chat_is_analysed_and_sends_no_webhook(local_server: LocalServer) -> None:
    received: list[str] = []

    async def hook(request: web.Request) -> web.Response:
        received.append(await request.text())
        return web.Response()

    async with serving(hook) as origin:
        call_id = await chat(local_server, postCallSummaryEnabled=True, postCallWebhookUrl=f"{origin}/hook")
        await say(local_server, call_id, "hello")
        await local_server.client.v1("POST", f"calls/{call_id}/hangup")
        found = await local_server.ended(call_id)
        assert found["analysis"]["summary"]
        deliveries = await local_server.client.v1("GET", f"calls/{call_id}/webhook-deliveries")
    assert (deliveries, received) == ([], [])
