"""Redaction of tool calls: arguments and results do not repeat what is redacted in the transcript."""

from __future__ import annotations

from typing import Any

import pytest

from calls.call_record.outcome import CallOutcome
from calls.post_call.redaction.redactor import RedactionRules, redact_outcome, redact_progress
from config.clock import utc_now
from storage.calls.calls import TranscriptItem

NUMBERS, DIALLED = RedactionRules(numbers=True), RedactionRules(dialled=True)


def user(*texts: str) -> list[TranscriptItem]:
    return [{"role": "user", "content": text, "startMs": 100, "endMs": 200} for text in texts]


def redacted_tool(said: list[TranscriptItem], rules: RedactionRules, arguments: Any, result: str) -> tuple[Any, Any]:
    """Arguments and result of a tool in the stored record of a call in which this was said."""
    tool = {"name": "pay", "start_ms": 1, "end_ms": 2, "ok": True, "arguments": arguments, "result": result}
    timeline: list[dict[str, Any]] = [{"turn": 0, "tools": []}, {"turn": 1, "tools": [tool]}, {"answer": "human"}]
    outcome = CallOutcome("completed", "agent_ended", utc_now(), transcript=said, timeline=timeline)
    redacted = redact_outcome(outcome, rules)
    assert [(each["startMs"], each["endMs"]) for each in redacted.transcript] == [(100, 200)] * len(said)
    assert (redacted.timeline[0], redacted.timeline[2]) == (timeline[0], timeline[2])
    (kept,) = redacted.timeline[1]["tools"]
    assert {**kept, "arguments": None, "result": None} == {**tool, "arguments": None, "result": None}
    return kept["arguments"], kept["result"]


def test_a_card_that_was_said_in_words_over_two_turns_is_not_in_the_arguments() -> None:
    said = user("my card is four one one one 1111", "1111 double one double one")
    assert redacted_tool(said, NUMBERS, {"card": "4111111111111111", "parts": ["1111", "x"]}, "Paid 4111 1111.") == (
        {"card": "[card]", "parts": ["[number]", "x"]},
        "Paid [number].",
    )


def test_a_misheard_card_and_its_security_code_are_not_in_the_arguments() -> None:
    said = user("my card number is 4111 1111 1111 1112", "the security code is 123")
    arguments = {"card": 4111111111111112, "code": "123", "amount": 25, "day": "2026-11-21", "order": "98765"}
    assert redacted_tool(said, NUMBERS, arguments, "Charged 25 to 1112, code 123") == (
        {"card": None, "code": "[number]", "amount": 25, "day": "2026-11-21", "order": "98765"},
        "Charged 25 to [number], code [number]",
    )


@pytest.mark.parametrize("pin", ["4", "42", "4711"])
def test_dialled_digits_are_not_in_the_arguments(pin: str) -> None:
    arguments = {"pin": pin, "as_number": int(pin), "note": "nothing"}
    assert redacted_tool(user("hello", pin), DIALLED, arguments, "ok") == (
        {"pin": "[number]", "as_number": None, "note": "nothing"},
        "ok",
    )


@pytest.mark.parametrize(
    ("digits", "redacted"),
    [
        (list("4111111111111112"), ["[number]"] * 16),
        ([int(each) for each in "4111111111111112"], [None] * 16),
        (["41", "11", "11 11", "1111", "1-1", 1, "2"], ["[number]"] * 5 + [None, "[number]"]),
        (["41", "x", "11", 11], ["41", "x", "[number]", None]),
        ([7, "4", "1", 1, 9], [7, "[number]", "[number]", None, 9]),
        ([4, 1, True, 7], [4, 1, True, 7]),
        ([["4", "1", "1"]], [["[number]"] * 3]),
    ],
)
def test_a_number_in_a_list_digit_by_digit_is_not_in_the_arguments(digits: list[Any], redacted: list[Any]) -> None:
    said = user("my card number is 4111 1111 1111 1112")
    assert redacted_tool(said, NUMBERS, {"digits": digits}, "ok") == ({"digits": redacted}, "ok")


def test_a_card_in_a_list_is_recognized_by_itself() -> None:
    arguments = {"card": list("4111111111111111"), "parts": [4111, 1111, 1111, 1111], "counts": [4, 1, 1, 1]}
    assert redacted_tool(user("hello"), NUMBERS, arguments, "ok") == (
        {"card": ["[card]"] * 16, "parts": [None] * 4, "counts": [4, 1, 1, 1]},
        "ok",
    )


def test_without_redacted_items_only_numbers_that_are_recognized_by_themselves_are_redacted() -> None:
    arguments = {"card": "4111 1111 1111 1111", "phone": "+4930123456", "order": "4711", "on": True}
    assert redacted_tool(user("hello"), NUMBERS, arguments, "done") == (
        {"card": "[card]", "phone": "+4930123456", "order": "4711", "on": True},
        "done",
    )
    assert redacted_tool(user("my order is 4711"), DIALLED, arguments, "4711 done") == (arguments, "4711 done")


def test_a_number_that_is_not_finite_is_left_as_it_is() -> None:
    assert redacted_tool(user("4711"), DIALLED, {"n": float("inf")}, "ok") == ({"n": float("inf")}, "ok")


async def test_the_progress_of_a_call_is_redacted_alike() -> None:
    tool = {"name": "check", "start_ms": 1, "end_ms": 2, "ok": True, "arguments": {"pin": "4711"}, "result": "ok 4711"}
    _, turns = await redact_progress(user("4711"), [{"turn": 1, "tools": [tool]}], DIALLED)
    assert turns[0]["tools"][0]["arguments"] == {"pin": "[number]"}
    assert turns[0]["tools"][0]["result"] == "ok [number]"
