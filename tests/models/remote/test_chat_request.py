"""Conversations as requests that every server accepts."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from calls.call_record.transcript import ToolUse, Transcript, TranscriptLine
from models.protocols import ChatMessage, ChatPrompt, ToolCall, ToolDefinition
from models.remote.chat_request import (
    AUTO_PRIORITY,
    CALL_START,
    MAX_JSON_TOKENS,
    SALT_PER_ORGANIZATION,
    ChatRequestBuilder,
)
from models.remote.config import RemoteModel
from models.runtime.request_context import RequestContext, requests_for

MODEL = RemoteModel("gpu", "llm", "http://gpu:8000/v1", "qwen3-8b", context_length=4096)
CALL = ToolCall("c1", "look_up", '{"n": 1}')


def request_body(prompt: ChatPrompt, model: RemoteModel = MODEL) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(ChatRequestBuilder(model).streaming_request(prompt))
    return request


def contents_of(*messages: ChatMessage, system: str = "You help.") -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = request_body(ChatPrompt("call", system, messages))["messages"]
    return lines


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def agent(text: str, *calls: ToolCall) -> ChatMessage:
    return ChatMessage("assistant", text, tool_calls=calls)


def test_a_conversation_with_tools_is_a_valid_request() -> None:
    tool = ToolDefinition("look_up", "Looks up.", {"type": "object", "properties": {"n": {"type": "integer"}}})
    messages = (user("Hello?"), agent("", CALL), ChatMessage("tool", "It is there.", tool_call_id="c1"))
    assert request_body(ChatPrompt("call", "You help.", messages, tools=[tool])) == {
        "model": "qwen3-8b",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 400,
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "user", "content": "Hello?"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"n": 1}'}}
                ],
            },
            {"role": "tool", "content": "It is there.", "tool_call_id": "c1"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "look_up", "description": "Looks up.", "parameters": tool.parameters},
            }
        ],
    }


def test_the_user_begins_and_messages_of_one_role_are_merged() -> None:
    begins = {"role": "user", "content": CALL_START}
    assert contents_of() == [{"role": "system", "content": "You help."}, begins]
    assert contents_of(agent("Good morning."), user("My order"), user("has not come"), system="") == [
        begins,
        {"role": "assistant", "content": "Good morning."},
        {"role": "user", "content": "My order\n\nhas not come"},
    ]


def test_arguments_that_are_no_object_are_sent_as_an_empty_one() -> None:
    (line,) = [
        line for line in contents_of(user("x"), agent("", replace(CALL, arguments="{n: 1"))) if "tool_calls" in line
    ]
    assert line["tool_calls"][0]["function"]["arguments"] == "{}"


def test_extra_fields_override_those_of_every_request() -> None:
    extra = {"temperature": 0.2, "max_tokens": 60}
    request = request_body(ChatPrompt("call", "", [user("x")]), replace(MODEL, extra=extra))
    assert (request["temperature"], request["max_tokens"]) == (0.2, 60)


def test_a_lone_surrogate_is_replaced() -> None:
    assert "a?b" in str(contents_of(user("a\ud83db")))


def test_a_too_long_conversation_loses_its_oldest_turns_and_keeps_its_prefix_for_some_turns() -> None:
    requests, talk, begins = ChatRequestBuilder(replace(MODEL, context_length=1024)), [], []
    for turn in range(60):
        talk += [user(f"question {turn}"), agent("x" * 100)]
        prompt = ChatPrompt("call", "You help.", [*talk, user("and now?")])
        lines = json.loads(requests.streaming_request(prompt))["messages"]
        assert sum(len(line["content"]) for line in lines) // 3 < 1024 - 400
        assert (lines[0]["content"], lines[-1]["content"]) == ("You help.", "and now?")
        begins.append(lines[1]["content"])
    assert begins[-1] != "question 0"
    assert len(set(begins)) < 15, "what the server has read stays of use for several turns"


def test_a_json_request_has_the_schema() -> None:
    schema = {"type": "object", "properties": {"mood": {"type": "string"}}}
    request = json.loads(ChatRequestBuilder(MODEL).json_request(ChatPrompt("call", "", [user("x")]), schema))
    assert request["response_format"]["json_schema"]["schema"] == schema
    assert "tools" not in request
    assert request["max_tokens"] == MAX_JSON_TOKENS


def long_talk() -> list[ChatMessage]:
    return [line for turn in range(12) for line in (user(f"question {turn} " + "word " * 40), agent("answer " * 40))]


def contents(request: bytes) -> list[str]:
    return [line["content"] for line in json.loads(request)["messages"]]


def test_turns_dropped_from_responses_are_kept_in_a_json_request() -> None:
    requests = ChatRequestBuilder(replace(MODEL, context_length=1024))
    answer = ChatPrompt("call", "You help.", [*long_talk(), user("and now?")])
    spoken = contents(requests.streaming_request(answer))
    form = ChatPrompt("call", "Sum it up.", [user("The talk.")])
    assert contents(requests.json_request(form, {})) == ["Sum it up.", "The talk."]
    assert contents(requests.streaming_request(answer)) == spoken, "a form does not change what is left out of answers"


def test_a_json_request_drops_no_turns_of_later_responses() -> None:
    requests = ChatRequestBuilder(replace(MODEL, context_length=1024))
    requests.json_request(ChatPrompt("call", "Sum it up.", long_talk()), {})
    assert len(contents(requests.streaming_request(ChatPrompt("call", "", long_talk()[:4])))) == 4


def test_another_conversation_of_the_call_loses_no_turns_that_fit() -> None:
    requests = ChatRequestBuilder(replace(MODEL, context_length=1024))
    requests.streaming_request(ChatPrompt("call", "You help.", [*long_talk(), user("and now?")]))
    assert contents(requests.streaming_request(ChatPrompt("call", "", [user("Hello?")]))) == ["Hello?"]
    short = long_talk()[:4]
    assert len(contents(requests.streaming_request(ChatPrompt("call", "", short)))) == len(short)


def test_no_user_message_follows_a_tool_result() -> None:
    """Some servers reject that. Results from before the user's message are moved behind it."""
    found = [agent("", CALL), ChatMessage("tool", "It is there.", tool_call_id="c1")]
    talk = [*found, user("is it there"), agent("Yes."), *found, user("and now?")]
    lines = json.loads(ChatRequestBuilder(MODEL).streaming_request(ChatPrompt("call", "", talk)))["messages"]
    assert [line["role"] for line in lines] == ["user", "assistant", "tool", "assistant", "user", "assistant", "tool"]
    assert [line["content"] for line in lines if line["role"] == "user"] == ["is it there", "and now?"]


@pytest.mark.parametrize("turns", [1, 6])
def test_no_request_begins_with_a_tool_result(turns: int) -> None:
    """The new conversation has a tool result where the old one was cut."""
    requests = ChatRequestBuilder(replace(MODEL, context_length=1024))
    requests.streaming_request(ChatPrompt("call", "", [*long_talk(), user("and now?")]))
    (dropped,) = requests._dropped.values()
    result = ChatMessage("tool", "It is there.", tool_call_id="c1")
    before = [user("x"), agent("y")] * (dropped // 2 - 1) + [user("x")]
    for talk in ([*before, agent("", CALL), *[result] * turns, user("next")], [result, user("next")]):
        lines = json.loads(requests.streaming_request(ChatPrompt("call", "", talk)))["messages"]
        assert lines[0]["role"] != "tool"
        assert [line["content"] for line in lines if line["role"] == "user"][-1].endswith("next")
        called = {call["id"] for line in lines for call in line.get("tool_calls", [])}
        assert all(line["tool_call_id"] in called for line in lines if line["role"] == "tool")


def test_requests_of_a_conversation_grow_at_their_end_alone() -> None:
    """So that the server computes only what is new: passages, tool calls and their results are behind what was said
    before, and system prompt and tools are byte-identical."""
    requests, transcript = ChatRequestBuilder(MODEL), Transcript()
    tools = [ToolDefinition(name, "Looks up.", {"type": "object", "properties": {}}) for name in ("b", "a")]
    sent: list[dict[str, Any]] = []

    def ask() -> None:
        prompt = ChatPrompt("call", "You help.", transcript.messages(), tools=tools)
        sent.append(json.loads(requests.streaming_request(prompt)))

    transcript.add_agent_line(TranscriptLine("assistant", "Good morning."))
    for turn in range(5):
        if turn % 2:
            transcript.add_tool_use(ToolUse(replace(CALL, id=f"recalled_{turn}"), "A passage."))
        transcript.add_user_turn(f"question {turn}")
        ask()
        if turn == 3:
            transcript.add_tool_use(ToolUse(replace(CALL, id=f"called_{turn}"), "It is there."))
            ask()
        transcript.add_agent_line(TranscriptLine("assistant", f"answer {turn}"))
    for before, after in pairwise(sent):
        shared = len(before["messages"])
        assert after["messages"][:shared] == before["messages"] and len(after["messages"]) > shared
        assert json.dumps(after["tools"]) == json.dumps(before["tools"])


def test_a_full_window_is_cut_in_large_steps() -> None:
    requests, first = ChatRequestBuilder(replace(MODEL, context_length=2048)), []
    for turns in range(1, 120):
        lines = [each for turn in range(turns) for each in (user(f"{turn} " + "question " * 8), agent("answer " * 12))]
        prompt = ChatPrompt("call", "You help.", [*lines, user("and now?")])
        first.append(json.loads(requests.streaming_request(prompt))["messages"][1]["content"])
    cuts = sum(before != after for before, after in pairwise(first))
    assert 1 < cuts < 119 / 8, "the prefix stays for eight turns and more"


def test_each_organization_has_a_salt_of_its_own() -> None:
    model = replace(MODEL, extra={"cache_salt": SALT_PER_ORGANIZATION})
    with requests_for(RequestContext("first")):
        own = request_body(ChatPrompt("call", "", [user("x")]), model)["cache_salt"]
        assert own == request_body(ChatPrompt("other call", "", [user("y")]), model)["cache_salt"]
    with requests_for(RequestContext("third")):
        assert own != request_body(ChatPrompt("call", "", [user("x")]), model)["cache_salt"]
    assert len(own) == 32


def test_requests_for_which_nobody_waits_have_a_later_priority() -> None:
    requests = ChatRequestBuilder(replace(MODEL, extra={"priority": AUTO_PRIORITY, "max_tokens": 60}))
    prompt = ChatPrompt("call", "You help.", [])
    every = [requests.streaming_request(prompt), requests.prefill_request(prompt), requests.json_request(prompt, {})]
    assert [json.loads(each)["priority"] for each in every] == [0, 1, 2]
    assert [json.loads(each)["max_tokens"] for each in every] == [60, 1, 60]
    assert "priority" not in request_body(prompt)
