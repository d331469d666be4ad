"""Tool results as speech; errors are not read out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from calls.tools.toolset import ToolResult, ToolSet
from config.errors import TrunklineError
from models.protocols import ChatMessage, ToolCall, ToolDefinition
from models.rule_based.tool_results import DONE, NOTHING, SORRY, passage_sentences, speak_result

CALL = ToolCall("1", "order_status", '{"order_number": "4711"}')


def speak(content: str, *, ok: bool = True) -> ChatMessage:
    return ChatMessage("tool", content, tool_call_id=CALL.id, ok=ok)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("It is sunny. It is warm. It is late.", "It is sunny. It is warm."),
        ({"message": "Your table is booked.", "id": 3}, "Your table is booked."),
        ({"status": "sent", "deliveryDate": "Monday"}, "The order status is sent, and the delivery date is Monday."),
        ({"order": "4711", "status": "sent"}, "The order status is sent."),
        ({"status": "in_transit"}, "The order status is in transit."),
        ({"order_id": 5, "link": "https://example.com", "uuid": "1f0e1f0e-aaaa", "total": 12.5}, "The total is 12.5."),
        ({"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, "The a is 1, the b is 2, the c is 3, and the d is 4."),
        ({"opening_hours": "nine to five"}, "The opening hours are nine to five."),
        ({"in_stock": True, "isOpen": False}, "It is in stock, and it is not open."),
        ({"has_parking": False}, "It has no parking."),
        ({"data": {"temperature": 7}}, "The temperature is 7."),
        ({"success": True}, DONE),
        ([{"name": "Anna"}, {"name": "Ben"}, {"name": "Carl"}], "I found Anna, Ben and Carl."),
        ([{"time": "noon"}], "The time is noon."),
        (["red", "blue"], "I found red and blue."),
        ([], NOTHING),
        ({}, NOTHING),
        (None, NOTHING),
        (True, "Yes."),
        (7, "It is 7."),
        ({"_": 3}, "The value is 3."),
        ("", DONE),
        ("Done: the tool answered with status 204 and nothing else.", DONE),
    ],
)  # fmt: skip
def test_a_result_is_spoken_as_a_sentence(content: Any, said: str) -> None:
    assert speak_result(speak(content if isinstance(content, str) else json.dumps(content)), CALL) == said


@pytest.mark.parametrize(
    "content",
    [
        "Error: no such order",
        '{"error": "no such order"}',
        '{"success": false, "message": "E_FAIL"}',
        '{"items": [1, 2\n[The answer is longer; this is its beginning.]',
        "(no text: 512 bytes of type image/png)",
        "[" * 4000 + "]" * 4000,
        '{"a":' * 1300 + "1" + "}" * 1300,
    ],
)
def test_an_error_is_an_apology_without_its_text(content: str) -> None:
    assert speak_result(speak(content), CALL) == SORRY


WORDS = "herring " * 1000


@pytest.mark.parametrize(
    "content", [WORDS, json.dumps(WORDS), json.dumps({"message": WORDS}), json.dumps([WORDS]), json.dumps([WORDS] * 9)]
)
def test_a_text_without_an_end_is_cut_at_a_word(content: str) -> None:
    said = speak_result(speak(content), CALL)
    assert "herring herring" in said
    assert len(said) < 400
    assert set(said.removeprefix("I found ").replace(" and", ",").replace(",", "").rstrip(".").split()) == {"herring"}


def test_a_text_without_words_is_cut_too() -> None:
    assert speak_result(speak("x" * 8000), CALL) == "x" * 300


class _Broken:
    definition = ToolDefinition("count", "", {"type": "object", "properties": {"n": {"type": "integer"}}})
    has_effects = False

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        raise TrunklineError("out of order")


@pytest.mark.parametrize("call", [("count", '{"n": 1}'), ("count", '{"n": "x"}'), ("count", "{"), ("other", "{}")])
def test_every_failure_of_a_call_is_an_error(call: tuple[str, str]) -> None:
    result = asyncio.run(ToolSet([_Broken()]).run(ToolCall("1", *call)))
    assert not result.ok
    assert speak_result(speak(result.content, ok=result.ok), CALL) == SORRY


def test_passages_are_split_without_document_names() -> None:
    passages = "From the document menu.pdf:\nSoup is hot. Tea too.\n\nFrom the document b.txt:\nWifi is free."
    assert passage_sentences(speak(passages)) == ["Soup is hot.", "Tea too.", "Wifi is free."]
    assert passage_sentences(speak("The documents say nothing about that.")) == []
    assert passage_sentences(speak("`search_knowledge` does not work at the moment.", ok=False)) == []
