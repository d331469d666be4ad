"""The extractive responder answers with the prompt's facts, handles small talk, and invents nothing."""

from __future__ import annotations

import asyncio

import pytest

from models.protocols import END_CALL_TOOL, ChatMessage, ChatPrompt, LanguageModel, TextDelta, ToolCall
from models.rule_based.prompt_facts import parse_prompt
from models.rule_based.responder import ExtractiveResponder
from models.text.bm25 import Bm25Index

PROMPT = """You are Anna, the assistant of the Harbour Dental Clinic. Be brief and friendly.
Our opening hours are Monday to Friday from nine to five. The office is at twelve Main Street, next to the library.
- Parking is free behind the building.
- A check-up costs eighty dollars. Cleaning costs one hundred and twenty dollars.
- Never give medical advice.
If the caller is in pain, tell them to come at once.
You can cancel appointments for the caller.
The caller dialled 123.
We accept cash and all major credit cards.
Q: Do you treat children?
A: Yes, from the age of three."""
HOURS = "Our opening hours are Monday to Friday from nine to five."
OFFER = "Is there anything else I can help you with?"


def respond_to(
    heard: str | None, *, before: str | None = None, system: str = PROMPT, may_end: bool = True
) -> tuple[str, bool]:
    """The response's text, and True if the call ends with it."""
    model: LanguageModel = ExtractiveResponder()
    messages = [ChatMessage("assistant", before)] if before else []
    if heard is not None:
        messages.append(ChatMessage("user", heard))
    tools = [END_CALL_TOOL] if may_end else []

    async def parts() -> tuple[str, bool]:
        found = [part async for part in model.respond(ChatPrompt("call", system, messages, tools=tools))]
        calls = [part for part in found if isinstance(part, ToolCall)]
        assert calls in ([], found[-1:]), "a tool is called when all is said"
        assert all((call.name, call.arguments) == ("end_call", "{}") for call in calls)
        return "".join(part.text for part in found if isinstance(part, TextDelta)), bool(calls)

    return asyncio.run(parts())


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("what are your opening hours", HOURS),
        ("are you open on sunday", HOURS),
        ("where is your office", "The office is at twelve Main Street, next to the library."),
        ("do you have parking", "Parking is free behind the building."),
        ("how much does a check up cost", "A check-up costs eighty dollars."),
        ("how much is a cleaning", "Cleaning costs one hundred and twenty dollars."),
        ("can i pay by credit card", "We accept cash and all major credit cards."),
        ("do you treat children", "Yes, from the age of three."),
    ],
)
def test_a_question_is_answered_with_the_matching_fact(question: str, answer: str) -> None:
    assert respond_to(question) == (answer, False)


@pytest.mark.parametrize("misheard", ["what are your openings hours", "what is the parkin", "where is your offices"])
def test_an_almost_correct_word_matches(misheard: str) -> None:
    assert not respond_to(misheard)[0].startswith("I am sorry")


def test_without_a_fact_it_offers_its_topics() -> None:
    text, ends = respond_to("what is the meaning of life")
    assert text == "I am sorry, I do not know that. You can ask me about opening hours, office and parking."
    assert not ends


def test_instructions_are_not_facts() -> None:
    facts = " ".join(fact.text for fact in parse_prompt(PROMPT).facts)
    for instruction in ("brief", "medical", "pain", "cancel", "dialled", "You are"):
        assert instruction not in facts


def test_it_greets_with_its_role() -> None:
    assert respond_to(None) == (
        "Hello, this is Anna, the assistant of the Harbour Dental Clinic. How can I help you?",
        False,
    )
    assert respond_to(None, system="") == ("Hello! How can I help you?", False)
    assert respond_to(None, system="You answer the telephone of Harbour Dental.")[0].startswith(
        "Hello, this is Harbour Dental."
    )


def test_asked_who_it_is_it_does_not_pass_for_a_human() -> None:
    assert "computer" in respond_to("are you a human")[0]
    assert "Anna" in respond_to("who are you")[0]


def test_asked_again_it_repeats_what_was_played() -> None:
    assert respond_to("can you repeat that please", before=HOURS) == (HOURS, False)


@pytest.mark.parametrize("heard", ["thank you goodbye", "good bye", "ok bye", "that's all"])
def test_goodbye_ends_the_call(heard: str) -> None:
    assert respond_to(heard) == ("Thank you for calling. Goodbye!", True)


def test_it_does_not_hang_up_without_the_tool() -> None:
    assert respond_to("goodbye", may_end=False) == ("Thank you for calling. Goodbye!", False)


def test_no_to_an_offer_of_more_help_ends_the_call_and_to_anything_else_does_not() -> None:
    assert respond_to("no thank you", before=f"You are welcome. {OFFER}")[1]
    assert not respond_to("no thank you", before=HOURS)[1]


def test_yes_to_an_offer_of_more_help_gets_the_topics() -> None:
    assert respond_to("yes please", before=f"You are welcome. {OFFER}") == (
        "Of course. You can ask me about opening hours, office and parking.",
        False,
    )


def test_thanks_are_answered() -> None:
    assert respond_to("thank you very much", before=HOURS) == (f"You are welcome. {OFFER}", False)


def test_the_response_is_streamed_by_sentence() -> None:
    async def parts() -> list[object]:
        prompt = ChatPrompt("call", PROMPT, [ChatMessage("user", "thank you")])
        return [part async for part in ExtractiveResponder().respond(prompt)]

    assert asyncio.run(parts()) == [TextDelta("You are welcome. "), TextDelta(OFFER)]


def test_the_same_question_has_the_same_answer() -> None:
    model = ExtractiveResponder()

    async def twice() -> list[list[object]]:
        prompt = ChatPrompt("call", PROMPT, [ChatMessage("user", "where can i park my car")])
        return [[part async for part in model.respond(prompt)] for _ in range(2)]

    first, second = asyncio.run(twice())
    assert first == second


def test_the_longest_prompt_is_parsed() -> None:
    filler = " ".join(f"Room {number} is on floor {number % 9}." for number in range(1200))[:31900]
    assert respond_to("where is the swimming pool", system=f"{filler}\nThe swimming pool is on the roof.")[0].endswith(
        "roof."
    )


def test_a_rare_word_weighs_more_than_a_common_one() -> None:
    index = Bm25Index(["the room has a bath", "the room has a safe", "the room has a view"])
    assert index.search("a room with a view")[0].index == 2
