"""Tool calls in a response's text, however it is cut into pieces."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.llm.llama.output.tool_call_formats import Tools
from models.llm.llama.output.tool_call_parser import ToolCallParser
from models.protocols import LlmOutput, TextDelta, ToolCall

TOOLS: Tools = {
    "book_table": {"type": "object", "properties": {"people": {"type": "integer"}, "note": {"type": "string"}}},
    "end_call": {"type": "object"},
}
BOOK = ("book_table", '{"people": 2}')


def parse(*pieces: str, tools: Tools = TOOLS) -> tuple[str, list[tuple[str, str]]]:
    """The text, and the calls."""
    numbers = itertools.count()
    parser = ToolCallParser(tools, lambda: f"c{next(numbers)}")
    parts: list[LlmOutput] = [part for token_to_piece in pieces for part in parser.feed(token_to_piece)]
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
    "JSON of no tool": ('{"a": 1}', ("", [])),
    "JSON that is no call": ('Gladly. {"name": "Miller", "people": 2} Goodbye.', ("Gladly.  Goodbye.", [])),
    "JSON later": ('Bye. {"name": "end_call"}', ("Bye. ", [("end_call", "{}")])),
    "JSON that breaks off": ('Well. {"name": "book_table", "arguments": {"peo', ("Well. ", [])),
    "JSON of an unknown tool": ('{"name": "fly", "parameters": {"to": "Rome"}}', ("", [("fly", '{"to": "Rome"}')])),
    "as Python writes it": ("[book_table(people=2), end_call()]", ("", [BOOK, ("end_call", "{}")])),
    "one, as Python writes it": ("book_table(people=2)", ("", [BOOK])),
    "marked Python": ("<|python_tag|>book_table.call(people=2)", ("", [BOOK])),
    "Python that does things": ("book_table(people=__import__('os').getpid())", ("", [])),
    "Python in a fence": ("```tool_code\nbook_table(people=2)\n```", ("", [BOOK])),
    "a dict of Python": ("{'name': 'book_table', 'arguments': {'people': 2}}", ("", [])),
    "a word like a tool": ("book a table then", ("book a table then", [])),
    "a tool's name in words": ("end_call is what I do", ("end_call is what I do", [])),
    "qwen coder": (
        "<tool_call>\n<function=book_table>\n<parameter=people>\n2\n</parameter>\n<parameter=note>\n2\n</parameter>\n"
        "</function>\n</tool_call>",
        ("", [("book_table", '{"people": 2, "note": "2"}')]),
    ),
    "qwen coder without tags": (
        "Well.\n<function=book_table>\n<parameter=people>2</parameter></function> Done.",
        ("Well. Done.", [BOOK]),
    ),
    "llama, in a function's tag": ('<function=book_table>{"people": 2}</function>', ("", [BOOK])),
    "glm": (
        "<tool_call>book_table\n<arg_key>people</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
        ("", [BOOK]),
    ),
    "glm without arguments": ("<tool_call>end_call\n</tool_call>", ("", [("end_call", "{}")])),
    "mistral, new": (
        '[TOOL_CALLS]book_table[ARGS]{"people": 2}[TOOL_CALLS]end_call[CALL_ID]abc123[ARGS]{}',
        ("", [BOOK, ("end_call", "{}")]),
    ),
    "kimi": (
        "One moment.<|tool_calls_section_begin|><|tool_call_begin|>functions.book_table:0"
        '<|tool_call_argument_begin|>{"people": 2}<|tool_call_end|><|tool_calls_section_end|>',
        ("One moment.", [BOOK]),
    ),
    "deepseek": (
        "<\uff5ctool\u2581calls\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>book_table\n"
        '```json\n{"people": 2}\n```<\uff5ctool\u2581calls\u2581end\uff5c>',
        ("", [BOOK]),
    ),
    "phi": ('<|tool_call|>[{"name": "book_table", "arguments": {"people": 2}}]<|/tool_call|>', ("", [BOOK])),
    "harmony": (
        "<|channel|>analysis<|message|>They want two<|channel|>final<|message|>Gladly.",
        ("Gladly.", []),
    ),
    "an imagined result": ("Yes.\n<tool_response>\nbooked\n</tool_response>\nDone.", ("Yes. Done.", [])),
    "other thoughts": ("[THINK]so {[/THINK]Gladly.", ("Gladly.", [])),
    "a thought that was begun elsewhere": ("</think>\n\nGladly.", ("Gladly.", [])),
    "code": ("Type ```ls``` there.", ("Type ls there.", [])),
    "line breaks in a string": (
        '<tool_call>{"name": "book_table", "arguments": {"note": "a\nb"}}</tool_call>',
        ("", [("book_table", '{"note": "a\\nb"}')]),
    ),
    "no arguments": ('<tool_call>{"name": "end_call"}</tool_call>', ("", [("end_call", "{}")])),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_text_and_calls_are_separated(name: str) -> None:
    text, expected = ANSWERS[name]
    assert parse(text) == expected
    assert parse(*text) == expected


@settings(deadline=None)
@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(0, 80), max_size=6))
def test_the_result_does_not_depend_on_the_pieces(name: str, cuts: list[int]) -> None:
    text, expected = ANSWERS[name]
    places = [0, *sorted(cuts), len(text)]
    assert parse(*(text[a:b] for a, b in itertools.pairwise(places))) == expected


def test_text_is_emitted_at_once() -> None:
    parser = ToolCallParser(TOOLS, lambda: "c")
    assert list(parser.feed("We open")) == [TextDelta("We open")]
    assert list(parser.feed(" at <")) == [TextDelta(" at ")]
    assert list(parser.feed("5")) == [TextDelta("<5")]


def test_a_call_is_emitted_when_its_tag_closes() -> None:
    parser = ToolCallParser(TOOLS, lambda: "c7")
    assert list(parser.feed('<tool_call>{"name": "end_call", "arguments": {}}</tool_call')) == []
    assert list(parser.feed(">")) == [ToolCall("c7", "end_call", "{}")]


def test_json_is_not_spoken_without_tools_either() -> None:
    call = '{"name": "book_table", "parameters": {"people": 2}}'
    assert parse(call, tools={}) == ("", [BOOK])
    assert parse('{"summary": "all well"}', tools={}) == ("", [])


@settings(deadline=None)
@given(
    st.text(alphabet='<>|[]{}":,/`=()ab_ \n', max_size=60), st.lists(st.sampled_from([*ANSWERS.values()]), max_size=2)
)
def test_any_text_is_parsed_without_an_error(noise: str, answers: list[tuple[str, object]]) -> None:
    parse(*"".join([noise, *(text for text, _ in answers), noise]))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, "book_table(" * 5_000, "f(" + "[" * 300])
def test_a_too_deeply_nested_value_is_no_call(text: str) -> None:
    assert parse(text)[1] == []


@pytest.mark.parametrize("value", ["...", "{1, 2}", "b'x'", "1j", "{(1, 2): 3}"])
def test_values_that_are_no_json_are_no_call(value: str) -> None:
    assert parse(f"end_call(reason={value})")[1] == []


@pytest.mark.parametrize(
    "row",
    [
        "-" * 5000,
        "- " * 2500,
        "a-" * 2500,
        "[CALL_ID]" * 600,
        "```json" * 700,
        "functions." * 500,
        "a:1" * 1700,
        "```" + " " * 9000,
    ],
)
def test_long_rows_of_tags_are_parsed_in_linear_time(row: str) -> None:
    """A degenerate model generates such text, and its parsing blocks all other calls."""
    began = time.monotonic()
    parse(f'<tool_call>{row} a b {{"people": 2}}</tool_call>')
    assert time.monotonic() - began < 1.0


def test_open_thinking_has_its_closing_text() -> None:
    parser = ToolCallParser(TOOLS, lambda: "c")
    assert list(parser.feed("Hm. <think>I wonder")) == [TextDelta("Hm. ")]
    assert parser.thinking_end == "\n</think>\n\n"
    assert list(parser.feed("</think>Yes")) == [TextDelta(" Yes")]
    assert parser.thinking_end is None
