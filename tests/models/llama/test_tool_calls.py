"""Tool calls in an answer's text, however it is cut into pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llama.tool_calls import ToolCallParser
from models.protocols import AnswerPart, TextDelta, ToolCall

TOOLS = ("book_table", "end_call")
BOOK = ("book_table", '{"people": 2}')


def parse(*pieces: str, tools: tuple[str, ...] = TOOLS) -> tuple[str, list[tuple[str, str]]]:
    """What is said, and the calls."""
    numbers = itertools.count()
    parser = ToolCallParser(tools, lambda: f"c{next(numbers)}")
    parts: list[AnswerPart] = [part for piece in pieces for part in parser.feed(piece)]
    parts += parser.finish()
    said = "".join(part.text for part in parts if isinstance(part, TextDelta))
    return said, [(part.name, part.arguments) for part in parts if isinstance(part, ToolCall)]


ANSWERS = {
    "plain": ("We open at five.", ("We open at five.", [])),
    "qwen": (
        'One moment.\n<tool_call>\n{"name": "book_table", "arguments": {"people": 2}}\n</tool_call>',
        ("One moment.", [BOOK]),
    ),
    "two calls": (
        '<tool_call>{"name": "book_table", "arguments": {"people": 2}}</tool_call>\n'
        '<tool_call>{"name": "end_call", "arguments": {}}</tool_call>',
        ("", [BOOK, ("end_call", "{}")]),
    ),
    "no closing tag": ('<tool_call>\n{"name": "book_table", "arguments": {"people": 2}}', ("", [BOOK])),
    "words after it": (
        '<tool_call>{"name": "book_table", "arguments": {"people": 2}}</tool_call>\nDone.',
        ("Done.", [BOOK]),
    ),
    "llama": ('{"name": "book_table", "parameters": {"people": 2}}', ("", [BOOK])),
    "llama, two": (
        '{"name": "book_table", "parameters": {"people": 2}}; {"name": "end_call", "parameters": {}}',
        ("", [BOOK, ("end_call", "{}")]),
    ),
    "llama, marked": ('<|python_tag|>{"name": "book_table", "parameters": {"people": 2}}', ("", [BOOK])),
    "llama, typed": (
        '{"type": "function", "name": "book_table", "parameters": {"people": 2}}',
        ("", [BOOK]),
    ),
    "openai": ('{"function": {"name": "book_table", "arguments": "{\\"people\\": 2}"}}', ("", [BOOK])),
    "list": ('[{"name": "book_table", "arguments": {"people": 2}}]', ("", [BOOK])),
    "fenced": ('```json\n{"name": "book_table", "arguments": {"people": 2}}\n```', ("", [BOOK])),
    "fenced in tags": (
        '<tool_call>\n```json\n{"name": "book_table", "arguments": {"people": 2}}\n```\n</tool_call>',
        ("", [BOOK]),
    ),
    "mistral": ('[TOOL_CALLS][{"name": "book_table", "arguments": {"people": 2}, "id": "x"}]', ("", [BOOK])),
    "thoughts": ("<think>\nThey want <b>two</b>\n</think>\n\nGladly.", ("Gladly.", [])),
    "no thoughts": ("<think>\n\n</think>\n\nGladly.", ("Gladly.", [])),
    "thoughts without end": ("<think>Hm, what", ("", [])),
    "thoughts, then JSON": (
        '<think>Now</think>\n{"name": "book_table", "arguments": {"people": 2}}',
        ("", [BOOK]),
    ),
    "broken": ('Well.<tool_call>{"name": "book_table", "arguments": {"peo</tool_call>', ("Well.", [])),
    "unknown in tags": ('<tool_call>{"name": "fly", "arguments": {}}</tool_call>', ("", [("fly", "{}")])),
    "brackets that are words": ("[laughs] Hello {friend}", ("[laughs] Hello {friend}", [])),
    "less-than": ("It is < 5 and <tool, or <b>", ("It is < 5 and <tool, or <b>", [])),
    "JSON of no tool": ('{"a": 1}', ('{"a": 1}', [])),
    "JSON later": ('Say {"name": "end_call"}', ('Say {"name": "end_call"}', [])),
    "line breaks in a string": (
        '<tool_call>{"name": "book_table", "arguments": {"note": "a\nb"}}</tool_call>',
        ("", [("book_table", '{"note": "a\\nb"}')]),
    ),
    "no arguments": ('<tool_call>{"name": "end_call"}</tool_call>', ("", [("end_call", "{}")])),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_words_and_calls_are_told_apart(name: str) -> None:
    text, expected = ANSWERS[name]
    assert parse(text) == expected
    assert parse(*text) == expected


@settings(deadline=None)
@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(0, 80), max_size=6))
def test_it_does_not_matter_where_the_pieces_end(name: str, cuts: list[int]) -> None:
    text, expected = ANSWERS[name]
    places = [0, *sorted(cuts), len(text)]
    assert parse(*(text[a:b] for a, b in itertools.pairwise(places))) == expected


def test_words_are_said_at_once() -> None:
    parser = ToolCallParser(TOOLS, lambda: "c")
    assert list(parser.feed("We open")) == [TextDelta("We open")]
    assert list(parser.feed(" at <")) == [TextDelta(" at ")]
    assert list(parser.feed("5")) == [TextDelta("<5")]


def test_a_call_comes_as_soon_as_its_tag_is_closed() -> None:
    parser = ToolCallParser(TOOLS, lambda: "c7")
    assert list(parser.feed('<tool_call>{"name": "end_call", "arguments": {}}</tool_call')) == []
    assert list(parser.feed(">")) == [ToolCall("c7", "end_call", "{}")]


def test_without_tools_json_is_an_answer_like_any_other() -> None:
    parser = ToolCallParser((), lambda: "c")
    assert list(parser.feed('{"summary": ')) == [TextDelta('{"summary": ')]
