"""Redaction of numbers of cards and persons in all spoken forms; all other numbers stay."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from calls.post_call.redaction.redactor import RedactionRules, redact_json, redact_transcript, redact_transfer
from config.clock import utc_now
from storage.calls.calls import TranscriptItem
from storage.calls.transfers import Transfer

NUMBERS = RedactionRules(numbers=True)


def user(*texts: str) -> list[TranscriptItem]:
    return [{"role": "user", "content": text} for text in texts]


def redacted(*texts: str, rules: RedactionRules = NUMBERS) -> list[str]:
    """Returns a redacted transcript; the caller begins, and the sides alternate."""
    transcript: list[TranscriptItem] = [
        {"role": "assistant" if turn % 2 else "user", "content": text} for turn, text in enumerate(texts)
    ]
    return [item["content"] for item in redact_transcript(transcript, rules)]


@pytest.mark.parametrize(
    "said",
    [
        "4111111111111111",
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "4111.1111.1111.1111",
        "4111, 1111, 1111, 1111",
        "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
        "".join(chr(0x660 + int(digit)) for digit in "4111111111111111"),
        "3782 822463 10005",
        "5555 5555 5555 4444",
        "2223 0031 2200 3222",
        "6759 6498 2643 8453",
        "four one one one one one one one one one one one one one one one",
        "four triple one, double one double one, one one one one, uh one one one one",
        "Four, one, one, one. One, one, one, one. One, one, one, one. One, one, one, one",
        "forty-one eleven eleven eleven eleven eleven eleven eleven",
        "five five five five, five five five five, five five five five, for for four four",
        "five double five five, 5555, double five double five, and then four four 44",
        "vier eins eins eins eins eins eins eins eins eins eins eins eins eins eins eins",
        "einundvierzig elf elf elf elf elf elf elf",
        "quarante et un, onze, onze, onze, onze, onze, onze, onze",
        "cuatro uno uno uno uno uno uno uno uno uno uno uno uno uno uno uno",
        "quattro uno uno uno uno uno uno uno uno uno uno uno uno uno uno uno",
        "quatro um um um um um um um um um um um um um um um",
    ],
)
def test_a_card_is_redacted_in_every_spoken_form(said: str) -> None:
    assert redacted(f"It is {said}, thanks a lot.") == ["It is [card], thanks a lot."]


def test_text_after_a_card_stays() -> None:
    assert redacted("4111 1111 1111 1111, 12 29") == ["[card], 12 29"]


def test_a_card_over_several_turns_is_redacted_in_each_and_where_the_agent_repeats_it() -> None:
    assert redacted(
        "My card is four one one one",
        "Four one one one, go on.",
        "one one one one, 1111",
        "And the last four?",
        "1111.",
        "So it ends with 1111. The price is 41 euros.",
    ) == [
        "My card is [card]",
        "[card], go on.",
        "[card]",
        "And the last four?",
        "[card].",
        "So it ends with [card]. The price is 41 euros.",
    ]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (["4111 1111 1111 1111 and 5500 0055 5555 5559, 4111 1111 1111 1111"], ["[card] and [card], [card]"]),
        (["5500 0055 5555 5559", "4111 1111 1111 1111", "3782 822463 10005"], ["[card]", "[card]", "[card]"]),
        (["0170 1234567, 4111 1111 1111 1111, 12 29"], ["0170 1234567, [card], 12 29"]),
        (["+49 30 12345678", "4111 1111 1111 1111"], ["+49 30 12345678", "[card]"]),
        (["+49 30 12345678, 4111 1111 1111 1111"], ["+49 30 12345678, [card]"]),
        (["1", "+49 30 123456", "4111 1111 1111 1111"], ["1", "+49 30 123456", "[card]"]),
        (["004930123456", "four triple one, 1111 1111 1111"], ["004930123456", "[card]"]),
        (["1", "4111111111111111", "5"], ["1", "[card]", "5"]),
        (["0", "0", "4111111111111111"], ["0", "0", "[card]"]),
        (["9", "41111111", "11111111", "2"], ["9", "[card]", "[card]", "2"]),
        (
            ["The credit card: 1 2 2 9 four 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 9 9 9"],
            ["The credit card: 1 2 2 9 [card] 9 9 9"],
        ),
    ],
)
def test_a_card_is_redacted_beside_any_other_digits(said: list[str], kept: list[str]) -> None:
    assert [each["content"] for each in redact_transcript(user(*said), NUMBERS)] == kept


def test_a_card_entered_by_dtmf_is_redacted_also_if_it_is_short_or_in_parts() -> None:
    assert redacted("4222222222222") == ["[card]"]
    assert redacted("500000000009") == ["[card]"]
    assert [each["content"] for each in redact_transcript(user("41111111", "11111111"), NUMBERS)] == [
        "[card]",
        "[card]",
    ]


def test_a_misrecognized_card_is_redacted_if_the_topic_is_cards() -> None:
    asked = [{"role": "assistant", "content": "What is your card number?"}, *user("4111 1111 1111 111")]
    assert redact_transcript(asked, NUMBERS)[1]["content"] == "[card]"  # type: ignore[arg-type]
    assert redacted("4111 1111 1111 111") == ["4111 1111 1111 111"]


@pytest.mark.parametrize("code", ["737", "seven three seven", "1234"])
def test_a_cards_security_code_is_redacted(code: str) -> None:
    assert redacted(f"The security code is {code}.") == ["The security code is [number]."]
    assert redacted("Sure.", "And the CVC?", f"{code}, please.")[2] == "[number], please."


@pytest.mark.parametrize(
    "number",
    [
        "DE89 3704 0044 0532 0130 00",
        "DE89370400440532013000",
        "D E eight nine, three seven zero four, zero zero four four, 0532 0130 00",
        "GB82 WEST 1234 5698 7654 32",
        "fr14 2004 1010 0505 0001 3M02 606",
        "219-09-9999",
        "86095742719",
        "86 095 742 719",
        "2 55 08 14 168 025 38",
        "188052A01600456",
        "12345678Z",
        "12345678-Z",
        "12.345.678-Z",
        "X1234567L",
        "x one two three four five six seven, l",
        "219\u201309\u20139999",
        "one two three four five six seven eight Z",
        "RSSMRA85T10A562S",
        "RSSMRA 85T10 A562S",
        "15 070649 C 103",
    ],
)
def test_numbers_of_accounts_and_persons_are_redacted(number: str) -> None:
    assert redacted(f"Yes: {number}.") == ["Yes: [number]."]


def test_nine_digits_are_redacted_if_the_topic_is_social_security() -> None:
    asked = "What is your social security number?"
    assert redacted("Hello", asked, "219 09 9999") == ["Hello", asked, "[number]"]
    assert redacted("Hello", "Your order number?", "219099999")[2] == "219099999"


@pytest.mark.parametrize(
    "text",
    [
        "Call me at +49 1512 3456789 or +4111111111111111, 004915123456789 or 0170 1234567.",
        "My number is four nine, one five one two, three four five six seven eight nine.",
        "(212) 555-0123, 1-800-555-0199, 06 12 34 56 78, 020 7946 0958",
        "The order is 4711 and the invoice is RE-2026-000123, 4111-1111-1111-1112.",
        "At 12:30 on 21.11.2026 or 2026-11-22, from 9 to 5, 10, 11, 12, 13 or 14 o'clock.",
        "It costs 1,299.00 or 12.50, 13.50, 14.50 and 15.50; three for 9.99.",
        "We have ten, twenty, thirty, forty, fifty, sixty, seventy, eighty and ninety of them.",
        "five one, twenty two for you and one to many",
        "5b04ac7c-2be9-4887-97d5-5fafa43022f1",
        "DE88 3704 0044 0532 0130 00",
        "86095742718, 2 55 08 14 168 025 39, 12345678A, X1234567M, 12.345.678-A, RSSMRA85T10A562T",
        "Tracking 00340434161094042557, customer 1234567890123",
        "",
    ],
)
def test_other_numbers_stay(text: str) -> None:
    assert redacted(text) == [text]


@pytest.mark.parametrize(
    "text",
    [
        *("double " * 8_000, "one to " * 5_000, "4 " * 8_000, "card number 12, abcde, " * 2_000, "1" * 50_000),
    ],
)
def test_redaction_takes_linear_time(text: str) -> None:
    """Also for adverse texts: quadratic time would be minutes."""
    began = time.process_time()
    redacted(text, text)
    assert time.process_time() - began < 5


def test_digits_of_both_sides_are_not_joined() -> None:
    transcript = ("4111 1111", "1111 1111")
    assert redacted(*transcript) == list(transcript)


def test_all_dtmf_entries_are_redacted_if_that_is_set() -> None:
    assert redacted("1234#", "I heard 1234.", "No, 12 34", rules=RedactionRules(dialled=True)) == [
        "[number]",
        "I heard 1234.",
        "No, 12 34",
    ]


def test_values_of_tools_and_extractions_are_redacted() -> None:
    value = {
        "card": "4111 1111 1111 1111",
        "number": 4111111111111111,
        "ok": True,
        "total": 12.5,
        "list": ["219-09-9999", None, 4711],
        "id": "41111111-1111-1111-a111-111111111111",
    }
    assert redact_json(value, NUMBERS) == {
        "card": "[card]",
        "number": None,
        "ok": True,
        "total": 12.5,
        "list": ["[number]", None, 4711],
        "id": "41111111-1111-1111-a111-111111111111",
    }
    assert redact_json(value, RedactionRules()) == value


def test_the_texts_of_a_transfer_are_redacted_and_its_number_stays() -> None:
    card = "4111 1111 1111 1111"
    transfer = Transfer(
        id="8f14e45f-ceea-467f-a0e6-0123456789ab",
        organization_id="8f14e45f-ceea-467f-a0e6-0123456789ac",
        parent_call_id="8f14e45f-ceea-467f-a0e6-0123456789ad",
        mode="cold",
        status="declined",
        target_name="Sales",
        number="4111111111111111",
        reason=f"pay by {card}",
        summary=f"The card is {card}",
        requested_by="agent",
        decline_reason=None,
        created_at=utc_now(),
    )
    expected = replace(transfer, reason="pay by [card]", summary="The card is [card]")
    assert redact_transfer(transfer, NUMBERS) == expected
    declined = replace(transfer, decline_reason=f"{card} is blocked")
    assert redact_transfer(declined, NUMBERS).decline_reason == "[card] is blocked"
    assert redact_transfer(declined, RedactionRules()) == declined


def test_connected_parties_are_sides_of_their_own() -> None:
    said: list[TranscriptItem] = [
        {"role": "user", "content": "my card is 4111 1111"},
        {"role": "user", "content": "1111", "speaker": "target"},
        {"role": "user", "content": "1111 1111", "speaker": "caller"},
        {"role": "user", "content": "5555 5555", "speaker": "target"},
        {"role": "user", "content": "5555 4444", "speaker": "target"},
    ]
    texts = [item["content"] for item in redact_transcript(said, NUMBERS)]
    assert texts == ["my card is [card]", "[card]", "[card]", "[card]", "[card]"]
    assert [item.get("speaker") for item in redact_transcript(said, NUMBERS)] == [item.get("speaker") for item in said]
    assert redact_transcript(said[:2], NUMBERS) == said[:2]
