"""A tool's parameters are filled from what was said, and only from that."""

from __future__ import annotations

import time
from typing import Any

import pytest

from models.protocols import ToolDefinition
from models.rule_based.tool_arguments import Parameter, answered_argument, parameters_of, question_for, said_arguments

ORDER = Parameter("order_number", "string", "", True)
PEOPLE = Parameter("people", "integer", "", True)
NIGHTS = Parameter("nights", "integer", "", True)
PRICE = Parameter("maxPrice", "number", "", False)
CITY = Parameter("city", "string", "", True)
NAME = Parameter("name", "string", "", True)
EMAIL = Parameter("email", "string", "", True)
OUTSIDE = Parameter("outside", "boolean", "", False)
DAY = Parameter("day", "string", "", True)
SIZE = Parameter("size", "string", "", True, ("small", "medium", "extra_large"))


@pytest.mark.parametrize(
    ("parameters", "said", "arguments"),
    [
        ([ORDER], "where is my order number four seven one one please", {"order_number": "4711"}),
        ([ORDER], "the order is 0815", {"order_number": "0815"}),
        ([ORDER], "where is my order", {}),
        ([ORDER], "where is the one that i ordered", {}),
        ([PEOPLE], "a table for forty two", {"people": 42}),
        ([PEOPLE, NIGHTS], "three nights for two people", {"people": 2, "nights": 3}),
        ([NIGHTS, PEOPLE], "for two people and three nights", {"people": 2, "nights": 3}),
        ([PEOPLE], "two point five people", {}),
        ([PRICE], "a max price of twelve point five", {"maxPrice": 12.5}),
        ([PRICE], "i need two of them", {}),
        ([CITY], "what is the weather in london", {"city": "london"}),
        ([CITY], "what will it be in new york in three days", {"city": "new york"}),
        ([CITY], "what is the weather for me", {}),
        ([CITY], "the city is Berlin, and it is cold", {"city": "Berlin"}),
        ([NAME, EMAIL], "my name is john and my email is j@example.com", {"name": "john", "email": "j@example.com"}),
        ([EMAIL], "write to john dot smith at example dot co dot uk", {"email": "john.smith@example.co.uk"}),
        ([EMAIL], "it is j o h n at example dot com", {"email": "john@example.com"}),
        ([OUTSIDE], "a table outside", {"outside": True}),
        ([OUTSIDE], "a table not outside", {"outside": False}),
        ([OUTSIDE], "a table", {}),
        ([DAY], "a table on friday evening for two", {"day": "friday evening"}),
        ([DAY], "a table in the garden", {}),
        ([SIZE], "an extra large shirt", {"size": "extra_large"}),
    ],
)  # fmt: skip
def test_a_request_fills_what_it_says(parameters: list[Parameter], said: str, arguments: dict[str, Any]) -> None:
    assert said_arguments(parameters, said) == arguments


def test_what_the_request_is_about_is_no_value() -> None:
    what = Parameter("what", "string", "", True)
    assert said_arguments([what], "a question about books", {"book"}) == {}
    assert said_arguments([what], "a question about trees", {"book"}) == {"what": "trees"}


@pytest.mark.parametrize(
    ("parameter", "said", "value"),
    [
        (ORDER, "it's four seven one one", "4711"),
        (ORDER, "i don't have it", None),
        (PEOPLE, "we are twenty-one", 21),
        (PEOPLE, "zero", 0),
        (PEOPLE, "many", None),
        (OUTSIDE, "yes please", True),
        (OUTSIDE, "no thanks", False),
        (OUTSIDE, "what", None),
        (CITY, "in New York, please", "New York"),
        (NAME, "my name is Anna Schmidt.", "Anna Schmidt"),
        (NAME, "um", None),
        (EMAIL, "anna at example dot com", "anna@example.com"),
        (EMAIL, "anna", None),
        (SIZE, "the medium one", "medium"),
        (SIZE, "the green one", None),
        (DAY, "on the third of may", "third of may"),
    ],
)
def test_an_answer_fills_what_was_asked_for(parameter: Parameter, said: str, value: object) -> None:
    assert answered_argument(parameter, said) == value


@pytest.mark.parametrize("text", ["a" * 40_000, "a " * 20_000 + "at b", "a dot " * 8_000, "double " * 12_000 + "a"])
@pytest.mark.parametrize("parameter", [EMAIL, PEOPLE], ids=lambda each: each.name)
def test_a_long_text_takes_no_longer_than_its_length(parameter: Parameter, text: str) -> None:
    """Whatever is in it: a quadratic way would take many seconds."""
    began = time.process_time()
    assert answered_argument(parameter, text) is None
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("name", "kind", "description", "question"),
    [
        ("order_number", "string", "", "What is the order number?"),
        ("orderNumber", "string", "The number of the order, four digits", "What is the number of the order?"),
        ("order_number", "string", "The caller's order number", "What is your order number?"),
        ("order_number", "string", "What is the number on your receipt?", "What is the number on your receipt?"),
        ("city", "string", "Where", "What is the city?"),
        ("email", "string", "", "What is your e-mail address?"),
        ("gift_wrap", "boolean", "", "Gift wrap, yes or no?"),
        ("_", "boolean", "", "Value, yes or no?"),
        ("...", "boolean", " . ", "Value, yes or no?"),
        ("_", "string", "", "What is the value?"),
    ],
)
def test_a_question_asks_in_plain_words(name: str, kind: str, description: str, question: str) -> None:
    assert question_for(Parameter(name, kind, description, True)) == question


def test_a_question_tells_what_can_be_chosen() -> None:
    assert question_for(SIZE) == "What is the size: small, medium or extra large?"


def test_a_tool_that_needs_an_object_cannot_be_filled() -> None:
    items: dict[str, Any] = {"items": {"type": "array"}, "note": {"type": "string"}}
    optional = ToolDefinition("order", "", {"type": "object", "properties": items})
    needed = ToolDefinition("order", "", {"type": "object", "properties": items, "required": ["items"]})
    assert parameters_of(optional) == [Parameter("note", "string", "", False)]
    assert parameters_of(needed) is None
