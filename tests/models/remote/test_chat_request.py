"""A talk as a request that every server takes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from models.protocols import ChatMessage, ChatPrompt, ToolCall, ToolDefinition
from models.remote.chat_request import CALL_BEGINS, MAX_JSON_TOKENS, ChatRequestBuilder
from models.remote.config import RemoteModel

MODEL = RemoteModel("gpu", "llm", "http://gpu:8000/v1", "qwen3-8b", context_length=4096)
CALL = ToolCall("c1", "look_up", '{"n": 1}')


def asked(prompt: ChatPrompt, model: RemoteModel = MODEL) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(ChatRequestBuilder(model).streaming_request(prompt))
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


def test_the_user_begins_and_lines_of_one_speaker_in_a_row_are_one() -> None:
    begins = {"role": "user", "content": CALL_BEGINS}
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


def test_a_form_is_asked_for_by_its_schema() -> None:
    schema = {"type": "object", "properties": {"mood": {"type": "string"}}}
    request = json.loads(ChatRequestBuilder(MODEL).json_request(ChatPrompt("call", "", [user("x")]), schema))
    assert request["response_format"]["json_schema"]["schema"] == schema
    assert "tools" not in request
    assert request["max_tokens"] == MAX_JSON_TOKENS


def long_talk() -> list[ChatMessage]:
    return [line for turn in range(12) for line in (user(f"question {turn} " + "word " * 40), agent("answer " * 40))]


def contents(request: bytes) -> list[str]:
    return [line["content"] for line in json.loads(request)["messages"]]


def test_what_answers_left_out_of_a_long_talk_is_not_left_out_of_a_form() -> None:
    requests = ChatRequestBuilder(replace(MODEL, context_length=1024))
    answer = ChatPrompt("call", "You help.", [*long_talk(), user("and now?")])
    spoken = contents(requests.streaming_request(answer))
    form = ChatPrompt("call", "Sum it up.", [user("The talk.")])
    assert contents(requests.json_request(form, {})) == ["Sum it up.", "The talk."]
    assert contents(requests.streaming_request(answer)) == spoken, "a form does not change what is left out of answers"


def test_a_form_about_a_long_talk_leaves_nothing_out_of_answers() -> None:
    requests = ChatRequestBuilder(replace(MODEL, context_length=1024))
    requests.json_request(ChatPrompt("call", "Sum it up.", long_talk()), {})
    assert len(contents(requests.streaming_request(ChatPrompt("call", "", long_talk()[:4])))) == 4


def test_a_talk_that_has_become_another_one_loses_nothing_that_fits() -> None:
    requests = ChatRequestBuilder(replace(MODEL, context_length=1024))
    requests.streaming_request(ChatPrompt("call", "You help.", [*long_talk(), user("and now?")]))
    assert contents(requests.streaming_request(ChatPrompt("call", "", [user("Hello?")]))) == ["Hello?"]
    short = long_talk()[:4]
    assert len(contents(requests.streaming_request(ChatPrompt("call", "", short)))) == len(short)


def test_no_user_speaks_right_after_a_tool() -> None:
    """Some servers refuse such a talk. What was found before the user spoke comes behind the user's words."""
    found = [agent("", CALL), ChatMessage("tool", "It is there.", tool_call_id="c1")]
    talk = [*found, user("is it there"), agent("Yes."), *found, user("and now?")]
    lines = json.loads(ChatRequestBuilder(MODEL).streaming_request(ChatPrompt("call", "", talk)))["messages"]
    assert [line["role"] for line in lines] == ["user", "assistant", "tool", "assistant", "user", "assistant", "tool"]
    assert [line["content"] for line in lines if line["role"] == "user"] == ["is it there", "and now?"]


@pytest.mark.parametrize("turns", [1, 6])
def test_no_talk_begins_with_a_tools_result(turns: int) -> None:
    """Where the old talk was cut there is a result in the new one."""
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
