"""Conversations in which the responder uses tools: the calls, their arguments, and the text around them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from models.protocols import END_CALL_TOOL, ChatMessage, ChatPrompt, TextDelta, ToolCall, ToolDefinition
from models.rule_based.ivr_keys import keys_to_press
from models.rule_based.responder import ExtractiveResponder
from models.rule_based.tool_results import SORRY
from models.rule_based.tool_selection import CANCELLED, GIVEN_UP, NOT_UNDERSTOOD

PROMPT = """You answer for Harbour Shop. Our opening hours are nine to five. We are located at twelve Harbour Street.
Delivery costs five dollars. Orders are packed by hand."""
HOURS = "Our opening hours are nine to five."
ASKED = "What is your order number?"
AGAIN = f"{NOT_UNDERSTOOD} {ASKED}"
SHIPPED = '{"status": "shipped", "order_id": 4711}'
TOLD = "The order status is shipped."
DOCUMENT = "From the document a.txt:\nWifi is free. The password is on the wall.\nBreakfast is at eight."


def tool(name: str, description: str, required: Sequence[str] = (), **properties: Mapping[str, Any]) -> ToolDefinition:
    return ToolDefinition(name, description, {"type": "object", "properties": properties, "required": [*required]})


TEXT = {"type": "string"}
ORDER = tool(
    "order_status", "Tells where the caller's order is and when it comes", ["order_number"],
    order_number={"type": "string", "description": "The caller's order number"},
)  # fmt: skip
CANCEL = tool("cancel_order", "Cancels an order", ["order_number"], order_number=TEXT)
WEATHER = tool("get_weather", "Weather forecast for a city", ["city"], city=TEXT, days={"type": "integer"})
TABLE = tool(
    "book_table", "Books a table", ["people", "day"],
    people={"type": "integer", "description": "How many people will come?"}, day=TEXT,
)  # fmt: skip
HOURS_TOOL = tool("get_opening_hours", "Opening hours of the shop")
SEARCH = tool("search_knowledge", "Search the documents", ["query"], query=TEXT)
KEYS = tool("send_dtmf", "Press telephone keys", ["digits"], digits=TEXT)
SHOP = (ORDER, CANCEL, WEATHER, TABLE, END_CALL_TOOL)


def run_conversation(
    lines: Sequence[str],
    tools: Sequence[ToolDefinition] = SHOP,
    result: str = SHIPPED,
    system: str = PROMPT,
    *,
    ok: bool = True,
) -> list[str]:
    """The agent's text and tool calls (`name {arguments}`) for each line of the caller; every call has the result
    `result`."""
    model = ExtractiveResponder()
    messages: list[ChatMessage] = []
    done: list[str] = []

    async def turn() -> bool:
        """One response of the model; True if it calls a tool."""
        found = [part async for part in model.respond(ChatPrompt("call", system, tuple(messages), tools=tools))]
        text = "".join(part.text for part in found if isinstance(part, TextDelta))
        calls = [part for part in found if isinstance(part, ToolCall)]
        done.extend(filter(None, [text, *(f"{call.name} {call.arguments}" for call in calls)]))
        if text or calls:
            messages.append(ChatMessage("assistant", text, calls))
        messages.extend(ChatMessage("tool", result, tool_call_id=call.id, ok=ok) for call in calls)
        return bool(calls)

    async def full_text() -> None:
        for line in lines:
            messages.append(ChatMessage("user", line))
            while await turn():
                assert len(messages) < 50, "it calls tools without end"

    asyncio.run(full_text())
    ids = [call.id for message in messages for call in message.tool_calls]
    assert len(ids) == len(set(ids)), "each call has an id of its own"
    return done


@pytest.mark.parametrize(
    ("lines", "done"),
    [
        (["where is my order", "four seven one one"], [ASKED, 'order_status {"order_number": "4711"}', TOLD]),
        (["where is order number four seven one one"], ['order_status {"order_number": "4711"}', TOLD]),
        (["where is my order", "hello", "it's 4711"], [ASKED, AGAIN, 'order_status {"order_number": "4711"}', TOLD]),
        (["where is my order", "i don't know", "no idea"], [ASKED, AGAIN, GIVEN_UP]),
        (["where is my order", "never mind"], [ASKED, CANCELLED]),
        (["where is my order", "what are your opening hours"], [ASKED, HOURS]),
        (["where is my order", "can you repeat that", "4711"], [ASKED, ASKED]),
        (["cancel my order double four two"], ['cancel_order {"order_number": "442"}', "The status is shipped."]),
        (["what is the weather in london"], ['get_weather {"city": "london"}', "The status is shipped."]),
        (
            ["i would like to reserve a table", "we are four", "tomorrow evening"],
            ["How many people will come?", "What is the day?", 'book_table {"people": 4, "day": "tomorrow evening"}'],
        ),
        (
            ["i would like to book a table for two on friday"],
            ['book_table {"people": 2, "day": "friday"}', "The status is shipped."],
        ),
    ],
)  # fmt: skip
def test_a_tool_is_called_with_all_required_arguments(lines: list[str], done: list[str]) -> None:
    assert run_conversation(lines)[: len(done)] == done


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("what are your opening hours", HOURS),
        ("how much does delivery cost", "Delivery costs five dollars."),
        ("are orders packed by hand", "Orders are packed by hand."),
        ("thank you very much", "You are welcome. Is there anything else I can help you with?"),
    ],
)
def test_a_fact_of_the_prompt_needs_no_tool(line: str, said: str) -> None:
    assert run_conversation([line], (*SHOP, HOURS_TOOL, SEARCH)) == [said]


def test_a_tool_with_an_effect_needs_its_verb() -> None:
    assert run_conversation(["the order is a table"], (CANCEL, TABLE)) == ["Orders are packed by hand."]
    assert run_conversation(["cancel the order 4711"], (ORDER, CANCEL))[0].startswith("cancel_order")
    assert run_conversation(["where is the order 4711"], (CANCEL, ORDER))[0].startswith("order_status")


def test_the_same_request_calls_a_tool_once_and_another_one_again() -> None:
    line, call = "where is my order 4711", 'order_status {"order_number": "4711"}'
    assert run_conversation([line, line]) == [call, TOLD, TOLD]
    assert run_conversation([line, "is the order 4711 there"]) == [call, TOLD, call, TOLD]


def test_a_failed_call_is_repeated_on_request() -> None:
    line, call = "where is my order 4711", 'order_status {"order_number": "4711"}'
    assert run_conversation([line, line], result="The tool answered with status 500.", ok=False) == [
        call,
        SORRY,
        call,
        SORRY,
    ]


def test_a_question_that_was_cut_short_is_still_answered() -> None:
    said = [ChatMessage("user", "where is my order"), ChatMessage("assistant", "What is your")]
    prompt = ChatPrompt("call", PROMPT, [*said, ChatMessage("user", "4711")], tools=SHOP)

    async def parts() -> list[object]:
        return [part async for part in ExtractiveResponder().respond(prompt)]

    [call] = asyncio.run(parts())
    assert isinstance(call, ToolCall)
    assert (call.name, json.loads(call.arguments)) == ("order_status", {"order_number": "4711"})


def test_a_question_without_a_fact_searches_the_documents() -> None:
    query = 'search_knowledge {"query": "do you have wifi"}'
    assert run_conversation(["do you have wifi"], [SEARCH], DOCUMENT) == [query, "Wifi is free."]
    assert run_conversation(["do you have wifi"], [SEARCH], "The documents say nothing about that.") == [
        query,
        "I am sorry, I do not know that. You can ask me about opening hours, delivery and orders.",
    ]


def test_courtesies_are_not_searched() -> None:
    assert (
        run_conversation(["hello", "yes please", "no", "good morning"], [SEARCH], DOCUMENT)[0]
        == "Hello! How can I help you?"
    )
    assert not [each for each in run_conversation(["thanks a lot", "okay"], [SEARCH]) if each.startswith("search")]


@pytest.mark.parametrize(
    ("heard", "system", "keys"),
    [
        ("press one", "", "1"),
        ("please press star two", "", "*2"),
        ("for sales press one for support press two to hear this again stay on the line", "Ask their support.", "2"),
        ("dial four seven then the pound key", "", "47#"),
        ("for sales press one for support press two", "Ask their support about a phone.", "2"),
        ("press one for sales press two for support", "Ask their support about a phone.", "2"),
        ("for sales press one for support press two", "At the menu, press 1.", "1"),
        ("for sales press one for support press two", "", "1"),
        ("to repeat this menu press nine", "", "9"),
        ("press on regardless", "", ""),
        ("i have type two diabetes", "", ""),
        ("i am one", "", ""),
    ],
)
def test_requested_keys_are_found(heard: str, system: str, keys: str) -> None:
    assert keys_to_press(heard, system) == keys


def test_keys_are_pressed_without_speech_for_an_ivr_menu() -> None:
    result = "The keys were pressed."
    assert run_conversation(["to repeat this menu press nine"], [KEYS], result) == ['send_dtmf {"digits": "9"}']
    assert run_conversation(["press nine"], [KEYS], result) == ['send_dtmf {"digits": "9"}', "That is done."]
    assert run_conversation(["press the star key"], [])[0].startswith("I am sorry"), "there is no way to press it"


def test_goodbye_hangs_up_after_the_farewell_and_says_nothing_more() -> None:
    assert run_conversation(["okay goodbye"], result="The call ends.") == [
        "Thank you for calling. Goodbye!",
        "end_call {}",
    ]
