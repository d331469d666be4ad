"""A tool's parameters filled from the caller's words."""

from __future__ import annotations

import time
from typing import Any

import pytest

from models.protocols import ToolDefinition
from models.rule_based.tool_arguments import Parameter, argument_in_answer, arguments_in, parameters_of, question_for

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
def test_a_request_fills_the_arguments_it_names(
    parameters: list[Parameter], said: str, arguments: dict[str, Any]
) -> None:
    assert arguments_in(parameters, said) == arguments


def test_the_topic_of_a_request_is_no_value() -> None:
    what = Parameter("what", "string", "", True)
    assert arguments_in([what], "a question about books", {"book"}) == {}
    assert arguments_in([what], "a question about trees", {"book"}) == {"what": "trees"}


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
def test_an_answer_fills_the_parameter_asked_for(parameter: Parameter, said: str, value: object) -> None:
    assert argument_in_answer(parameter, said) == value


@pytest.mark.parametrize("text", ["a" * 40_000, "a " * 20_000 + "at b", "a dot " * 8_000, "double " * 12_000 + "a"])
@pytest.mark.parametrize("parameter", [EMAIL, PEOPLE], ids=lambda each: each.name)
def test_the_time_is_linear_in_the_text(parameter: Parameter, text: str) -> None:
    """Quadratic time would be many seconds."""
    began = time.process_time()
    assert argument_in_answer(parameter, text) is None
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


def test_a_question_lists_the_choices() -> None:
    assert question_for(SIZE) == "What is the size: small, medium or extra large?"


def test_a_tool_that_needs_an_object_cannot_be_filled() -> None:
    items: dict[str, Any] = {"items": {"type": "array"}, "note": {"type": "string"}}
    optional = ToolDefinition("order", "", {"type": "object", "properties": items})
    needed = ToolDefinition("order", "", {"type": "object", "properties": items, "required": ["items"]})
    assert parameters_of(optional) == [Parameter("note", "string", "", False)]
    assert parameters_of(needed) is None
