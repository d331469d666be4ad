"""A talk as a request that every server takes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from models.protocols import ChatMessage, ChatPrompt, ToolCall, ToolDefinition
from models.remote.chat_request import BEGINS, ChatRequests
from models.remote.remote_model import RemoteModel

MODEL = RemoteModel("gpu", "llm", "http://gpu:8000/v1", "qwen3-8b", context_length=4096)
CALL = ToolCall("c1", "look_up", '{"n": 1}')


def asked(prompt: ChatPrompt, model: RemoteModel = MODEL) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(ChatRequests(model).streamed(prompt))
    return request


def said(*messages: ChatMessage, system: str = "You help.") -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = asked(ChatPrompt("call", system, messages))["messages"]
    return lines


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def agent(text: str, *calls: ToolCall) -> ChatMessage:
    return ChatMessage("assistant", text, tool_calls=calls)


def test_a_talk_with_tools_is_told_as_the_protocol_has_it() -> None:
    tool = ToolDefinition("look_up", "Looks up.", {"type": "object", "properties": {"n": {"type": "integer"}}})
    messages = (user("Hello?"), agent("", CALL), ChatMessage("tool", "It is there.", tool_call_id="c1"))
    assert asked(ChatPrompt("call", "You help.", messages, tools=[tool])) == {
        "model": "qwen3-8b",
        "stream": True,
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


def test_the_user_begins_and_lines_of_one_speaker_in_a_row_are_one() -> None:
    begins = {"role": "user", "content": BEGINS}
    assert said() == [{"role": "system", "content": "You help."}, begins]
    assert said(agent("Good morning."), user("My order"), user("has not come"), system="") == [
        begins,
        {"role": "assistant", "content": "Good morning."},
        {"role": "user", "content": "My order\n\nhas not come"},
    ]


def test_arguments_that_are_no_object_are_told_as_an_empty_one() -> None:
    (line,) = [line for line in said(user("x"), agent("", replace(CALL, arguments="{n: 1"))) if "tool_calls" in line]
    assert line["tool_calls"][0]["function"]["arguments"] == "{}"


def test_what_the_operator_added_is_in_every_request_and_wins() -> None:
    extra = {"temperature": 0.2, "max_tokens": 60}
    request = asked(ChatPrompt("call", "", [user("x")]), replace(MODEL, extra=extra))
    assert (request["temperature"], request["max_tokens"]) == (0.2, 60)


def test_half_a_character_does_no_harm() -> None:
    assert "a?b" in str(said(user("a\ud83db")))


def test_a_talk_that_is_too_long_loses_its_oldest_turns_and_keeps_its_beginning_for_some_time() -> None:
    requests, talk, begins = ChatRequests(replace(MODEL, context_length=1024)), [], []
    for turn in range(60):
        talk += [user(f"question {turn}"), agent("x" * 100)]
        prompt = ChatPrompt("call", "You help.", [*talk, user("and now?")])
        lines = json.loads(requests.streamed(prompt))["messages"]
        assert sum(len(line["content"]) for line in lines) // 3 < 1024 - 400
        assert (lines[0]["content"], lines[-1]["content"]) == ("You help.", "and now?")
        begins.append(lines[1]["content"])
    assert begins[-1] != "question 0"
    assert len(set(begins)) < 15, "what the server has read stays of use for several turns"


def test_a_form_is_asked_for_by_its_schema() -> None:
    schema = {"type": "object", "properties": {"mood": {"type": "string"}}}
    request = json.loads(ChatRequests(MODEL).formed(ChatPrompt("call", "", [user("x")]), schema))
    assert request["response_format"]["json_schema"]["schema"] == schema
    assert "tools" not in request
