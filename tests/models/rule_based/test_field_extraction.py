"""Field values extracted by rules; an uncertain one stays null."""

from __future__ import annotations

import json
from typing import Any

import pytest

from models.rule_based.field_extraction import MAX_VALUE_CHARACTERS, FieldSpec, extract_values

FIELDS = {
    "guests": FieldSpec("guests", "Number of people who come", "number"),
    "budget": FieldSpec("budget", "What the customer wants to spend", "number"),
    "orderNumber": FieldSpec("orderNumber", "The order number", "number"),
    "day": FieldSpec("day", "Day of the visit", "string"),
    "time": FieldSpec("time", "Time of the visit", "string"),
    "caller_name": FieldSpec("caller_name", "The caller's name", "string"),
    "email": FieldSpec("email", "E-mail address", "string"),
    "phone": FieldSpec("phone", "Telephone number to call back", "string"),
    "city": FieldSpec("city", "The city where the customer lives", "string"),
    "booking code": FieldSpec("booking code", "", "string"),
    "newCustomer": FieldSpec("newCustomer", "Whether this is the first order", "boolean"),
    "smoking": FieldSpec("smoking", "Smoking room", "boolean"),
    "reason": FieldSpec("reason", "Why the customer calls", "string"),
}


def extract(*said: str, wanted: tuple[str, ...] = tuple(FIELDS)) -> dict[str, Any]:
    """The non-null values of a conversation in which the agent speaks first."""
    talk = [("user" if place % 2 else "assistant", text) for place, text in enumerate(said)]
    values = extract_values([FIELDS[name] for name in wanted], talk)
    assert list(values) == list(wanted)
    return {name: value for name, value in values.items() if value is not None}


@pytest.mark.parametrize(
    ("question", "answer", "values"),
    [
        ("How many people will come?", "Four.", {"guests": 4}),
        ("How many people will come?", "We are four people.", {"guests": 4}),
        ("For how many guests?", "Twenty five, I think.", {"guests": 25}),
        ("For how many guests?", "three, no, make it four", {"guests": 4}),
        ("What is your budget?", "About 1,200 euros.", {"budget": 1200}),
        ("How much would you like to spend?", "two hundred and fifty", {"budget": 250}),
        ("What is your order number?", "four seven one one", {"orderNumber": 4711}),
        ("Which day suits you?", "Friday would be good.", {"day": "Friday"}),
        (
            "When would you like to come?",
            "On March 3rd at half past seven.",
            {"day": "March 3rd", "time": "half past seven"},
        ),
        ("Which day?", "may the 5th", {"day": "may the 5th"}),
        ("At what time?", "at seven o'clock in the evening", {"time": "seven o'clock"}),
        ("May I have your name?", "It's Anna Berg.", {"caller_name": "Anna Berg"}),
        ("Who am I speaking to?", "My name is John Miller and I have a question", {"caller_name": "John Miller"}),
        ("What is your e-mail address?", "john dot smith at example dot com", {"email": "john.smith@example.com"}),
        ("Which number can we call back?", "0176 123 45 67", {"phone": "01761234567"}),
        ("In which city do you live?", "In Hamburg, please.", {"city": "Hamburg"}),
        ("Is this your first order?", "Yes, it is.", {"newCustomer": True}),
        ("Would you like a smoking room?", "No, thank you.", {"smoking": False}),
        ("Möchten Sie smoking?", "Nein danke.", {"smoking": False}),
    ],
)
def test_an_answer_to_a_question_is_the_value(question: str, answer: str, values: dict[str, Any]) -> None:
    assert extract(question, answer) == values


@pytest.mark.parametrize(
    ("said", "values"),
    [
        ("I would like a table for four people on Friday at 19:30.", {"guests": 4, "day": "Friday", "time": "19:30"}),
        ("Could I have a table for two on Sunday, please?", {"day": "Sunday"}),
        ("My budget would be about three hundred.", {"budget": 300}),
        ("My booking code is K7 42.", {"booking code": "K7 42"}),
        ("My name is Anna Berg.", {"caller_name": "Anna Berg"}),
        ("You can write to anna@example.org.", {"email": "anna@example.org"}),
        ("My number is plus 49 176 1234567.", {"phone": "+491761234567"}),
        ("I do not want a smoking room.", {"smoking": False}),
        (
            "my name is john miller and i would like a table for four people on friday please",
            {"caller_name": "john miller", "guests": 4, "day": "friday"},
        ),
        ("can i come on friday", {"day": "friday"}),
        ("A smoking room, please.", {"smoking": True}),
    ],
)
def test_a_value_stated_by_name_needs_no_question(said: str, values: dict[str, Any]) -> None:
    assert extract("Good morning, how can I help you?", said) == values


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How many people will come?", "I don't know yet."),
        ("How many people will come?", "Why do you ask?"),
        ("How many people will come?", "Maybe four, maybe five."),
        ("How many people will come?", "It could be four or five."),
        ("What is your order number?", "It is in another room, I will call again."),
        ("May I have your name?", "Why do you need to know that in the first place, may I ask"),
        ("What is your e-mail address?", "I have none."),
        ("Would you like a smoking room?", "Well, yes and no."),
        ("Is there anything else?", "No."),
        ("Good morning.", "I was with you last Monday."),
        ("Good morning.", "Is there a smoking room?"),
        ("Good morning.", "is there a smoking room"),
        ("Good morning.", "what are your opening hours on friday"),
        ("Which day suits you?", "what days do you have, tuesday"),
        ("Good morning.", "If there is a smoking room I do not come."),
        ("Good morning.", "There were three cars and two dogs."),
        ("Which day and at what time for how many people?", "Yes."),
    ],
)
def test_an_uncertain_value_is_null(question: str, answer: str) -> None:
    assert extract(question, answer) == {}


def test_a_later_value_overrides_and_its_absence_does_not() -> None:
    talk = (
        "How many guests?",
        "Four.",
        "Which day?",
        "Saturday.",
        "Fine.",
        "Sorry, we are six guests.",
        "Good.",
        "Bye.",
    )
    assert extract(*talk) == {"guests": 6, "day": "Saturday"}


@pytest.mark.parametrize(
    "name", ["", " ", "a" * 5000, "\x00", '"};{', "(?P<x>", "\\", "🙂", "名前", "__proto__", "x\ny", "[", "*" * 60, "ß"]
)
def test_any_field_name_is_allowed(name: str) -> None:
    wanted = [
        FieldSpec(name, name, "string"),
        FieldSpec("guests", "[(", "number"),
        FieldSpec(f"{name}2", "", "boolean"),
    ]
    talk = [("assistant", f"What is {name}?"), ("user", f"my {name} is four, for four guests")]
    values = extract_values(wanted, talk)
    assert set(values) == {each.name for each in wanted}
    json.dumps(values, allow_nan=False)


def test_numbers_beyond_float_are_null() -> None:
    assert extract("How many people will come?", "1e999") == {}


def test_a_hundred_fields_of_a_hundred_turns_are_distinguished() -> None:
    wanted = [FieldSpec(f"thing{place}", "the thing " * 200, "number") for place in range(100)]
    talk = [
        line
        for place in range(100)
        for line in (("assistant", f"What is the thing{place}?"), ("user", f"It is {place + 1000}."))
    ]
    assert extract_values(wanted, talk) == {f"thing{place}": place + 1000 for place in range(100)}


def test_with_very_many_fields_only_the_beginning_is_searched() -> None:
    """The time is bounded."""
    wanted = [FieldSpec(f"thing{place}", "", "number") for place in range(2000)]
    talk = [("user", f"The thing{place} is {place + 1000}. {'And so on. ' * 10}") for place in range(200)]
    values = extract_values(wanted, talk)
    assert (values["thing0"], values["thing199"], len(values)) == (1000, None, 2000)
    assert extract_values(wanted[150:200], talk)["thing199"] == 1199


def test_a_text_value_is_limited() -> None:
    [name] = extract_values([FIELDS["caller_name"]], [("user", f"My name is {'a' * 3000}.")]).values()
    assert name == "a" * MAX_VALUE_CHARACTERS
