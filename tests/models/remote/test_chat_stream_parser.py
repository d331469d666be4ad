"""Streamed responses as servers send them, and malformed ones."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from models.errors import RemoteModelError
from models.protocols import ToolCall
from models.remote.chat_stream_parser import MAX_ARGUMENTS, MAX_CALLS, MAX_TEXT, ChatStreamParser, ThinkingFilter
from models.remote.json_safety import error_excerpt, parse_json


def answer() -> ChatStreamParser:
    return ChatStreamParser(f"own{number}" for number in count(1))


def delta(finish: str | None = None, **said: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": said, "finish_reason": finish}]}


def piece(
    index: int | None = 0, id_: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    given = {key: value for key, value in (("index", index), ("id", id_)) if value is not None}
    return {**given, "type": "function", "function": function}


def calls_of(*chunks: list[dict[str, Any]]) -> list[ToolCall]:
    made = answer()
    for chunk in chunks:
        assert made.feed(delta(tool_calls=chunk)) == ""
    return made.calls()


def test_text_is_returned_piece_by_piece_until_the_finish_reason() -> None:
    made = answer()
    chunks = (delta(role="assistant"), delta(content=""), delta(content="Hel"), delta(content="lo."), delta("stop"))
    assert [made.feed(chunk) for chunk in chunks] == ["", "", "Hel", "lo.", ""]
    assert made.finished
    assert made.feed({"choices": [], "usage": {"total_tokens": 9}}) == ""


def test_calls_whose_arguments_come_in_pieces() -> None:
    assert calls_of(
        [piece(0, "a", "look_up", "")], [piece(0, arguments='{"n"')], [piece(0, arguments=": 1}")],
        [piece(1, "b", "book", "{")], [piece(1, arguments="}")],
    ) == [ToolCall("a", "look_up", '{"n": 1}'), ToolCall("b", "book", "{}")]  # fmt: skip


def test_whole_calls_in_one_chunk_without_numbers() -> None:
    assert calls_of([piece(None, "a", "x", "{}"), piece(None, "b", "y", '{"k": 2}')]) == [
        ToolCall("a", "x", "{}"),
        ToolCall("b", "y", '{"k": 2}'),
    ]


def test_whole_calls_in_chunks_of_their_own_without_numbers_and_ids() -> None:
    first, second = calls_of([piece(None, None, "x", "{}")], [piece(None, None, "y", '{"k": 2}')])
    assert (first.name, first.arguments, second.name, second.arguments) == ("x", "{}", "y", '{"k": 2}')


def test_calls_that_all_have_index_0_are_distinguished_by_their_ids() -> None:
    assert calls_of([piece(0, "a", "x", "{}")], [piece(0, "b", "x", '{"k": 2}')]) == [
        ToolCall("a", "x", "{}"),
        ToolCall("b", "x", '{"k": 2}'),
    ]


def test_repeated_ids_and_names_count_once() -> None:
    assert calls_of([piece(0, "a", "x", "{")], [piece(0, "a", "x", '"k": 2')], [piece(0, "a", "x", "}")]) == [
        ToolCall("a", "x", '{"k": 2}')
    ]


def test_a_name_may_come_in_pieces_too() -> None:
    assert calls_of([piece(0, "a", "look")], [piece(0, name="_up")], [piece(0, arguments="{}")]) == [
        ToolCall("a", "look_up", "{}")
    ]


def test_arguments_that_are_an_object_become_text_and_missing_ones_an_empty_object() -> None:
    assert calls_of([piece(0, "a", "x", {"street": "Hafenstraße"}), piece(1, "b", "y")]) == [
        ToolCall("a", "x", '{"street": "Hafenstraße"}'),
        ToolCall("b", "y", "{}"),
    ]


def test_calls_without_unique_ids_get_new_ones() -> None:
    first, second, third = calls_of([piece(0, None, "x"), piece(1, "a", "y"), piece(2, "a", "z")])
    assert (first.id, second.id, third.id) == ("own1", "a", "own2")


def test_a_response_that_is_not_streamed_is_parsed() -> None:
    made = answer()
    message = {"role": "assistant", "content": "Yes.", "tool_calls": [piece(None, "a", "x", "{}")]}
    assert made.feed({"choices": [{"message": message, "finish_reason": "tool_calls"}]}) == "Yes."
    assert (made.finished, made.calls()) == (True, [ToolCall("a", "x", "{}")])


def test_content_in_parts_is_their_text() -> None:
    assert answer().feed(delta(content=[{"type": "text", "text": "Yes"}, {"type": "image"}])) == "Yes"


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (["<think>hm", "m</thi", "nk>\n\nYes.", " No."], "Yes. No."),
        (["\n<th", "ink>hm</think>Yes."], "Yes."),
        (["<b>", "Yes."], "<b>Yes."),
        (["Yes <think>"], "Yes <think>"),
        (["<think>never said"], ""),
        (["<"], "<"),
    ],
)
def test_thinking_before_the_text_is_not_spoken(pieces: list[str], said: str) -> None:
    thoughts = ThinkingFilter()
    assert "".join(thoughts.feed(each) for each in pieces) + thoughts.rest() == said


def test_reasoning_fields_are_progress_and_not_spoken() -> None:
    made = answer()
    assert made.feed(delta(reasoning_content="hm")) == ""
    assert made.progress == 1


def test_lone_surrogates_and_null_characters_are_removed() -> None:
    assert answer().feed(parse_json(b'{"choices": [{"delta": {"content": "a\\ud83db\\u0000c"}}]}')) == "a?bc"


@pytest.mark.parametrize(
    "chunk",
    [
        None,
        [],
        "text",
        {},
        {"choices": None},
        {"choices": ["x"]},
        {"choices": [{"delta": "x"}]},
        delta(content=7),
        delta(content={"text": "x"}),
        delta(tool_calls="x"),
        delta(tool_calls=["x"]),
        delta(tool_calls=[{"function": "x"}]),
        delta(tool_calls=[piece(0, name="x", arguments=7)]),
        delta(tool_calls=[{"index": "first", "function": {"name": "x"}}]),
        delta(tool_calls=[{"index": 0, "id": 7, "function": {"name": "x"}}]),
        delta(tool_calls=[{"index": 0, "function": {"name": ["x"]}}]),
    ],
)
def test_chunks_of_wrong_types_raise(chunk: Any) -> None:
    with pytest.raises(RemoteModelError) as trouble:
        answer().feed(chunk)
    assert trouble.value.kind == "broken"


def test_an_error_in_the_stream_raises_with_its_text() -> None:
    with pytest.raises(RemoteModelError, match=r"broke off: out of memory"):
        answer().feed({"error": {"message": "out of memory", "code": 500}})


@pytest.mark.parametrize(
    "chunks",
    [
        [delta(content="x" * 1000)] * (MAX_TEXT // 1000 + 1),
        [delta(content="<think>")] + [delta(content="x" * 1000)] * (MAX_TEXT // 1000 + 1),
        [delta(tool_calls=[piece(0, "a", "x", "y" * 1000)])] * (MAX_ARGUMENTS // 1000 + 1),
        [delta(tool_calls=[piece(0, "a", "x" * 129)])],
        [delta(tool_calls=[piece(number, str(number), "x")]) for number in range(MAX_CALLS + 1)],
    ],
    ids=["text", "thoughts", "arguments", "name", "calls"],
)
def test_an_oversized_response_raises(chunks: list[dict[str, Any]]) -> None:
    made = answer()
    with pytest.raises(RemoteModelError):
        for chunk in chunks:
            made.feed(chunk)


def test_a_call_without_a_name_raises() -> None:
    with pytest.raises(RemoteModelError):
        calls_of([piece(0, "a", arguments="{}")])


@pytest.mark.parametrize("text", [b"{", b"", b"\xff", b"[" * 100_000, b"1" * 5000])
def test_invalid_json_raises_a_broken_error(text: bytes) -> None:
    with pytest.raises(RemoteModelError, match="no JSON"):
        parse_json(text)


def test_an_error_excerpt_has_no_echoed_input() -> None:
    assert error_excerpt(b'{"error": {"message": "The model x\\n does not exist."}}') == "The model x does not exist."
    assert error_excerpt(b'{"detail": "Not Found"}') == "Not Found"
    assert error_excerpt(b"<html>\x1b[31m" + b"x" * 500)[:9] == "<html>[31"
    assert len(error_excerpt(b"x" * 500)) == 200
    assert error_excerpt(b'{"detail": [{"msg": "bad", "input": "what the caller said"}]}') == ""
    assert "caller" not in error_excerpt(b'{"message": "1 error, input_value=\'what the caller said\'"}')
    told = error_excerpt(b"{\"message\": \"[{'msg': 'missing', 'input': {'text': 'what the caller said'}}]\"}")
    assert "missing" in told and "caller" not in told
    assert "caller" not in error_excerpt(json.dumps({"error": json.dumps({"input": "what the caller said"})}))
    assert "caller" not in error_excerpt(b'{"input": "what the caller said", ')
    refused = "Invalid input: model qwen not found"
    assert error_excerpt(json.dumps({"error": {"message": refused}})) == refused
