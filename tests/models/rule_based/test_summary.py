"""The extractive summary."""

from __future__ import annotations

from models.rule_based.summary import MAX_CHARACTERS, summarize

TALK = [
    ("assistant", "Good morning, this is the harbour hotel. How can I help you?"),
    ("user", "Hello. I would like to change my reservation from Friday to Sunday."),
    ("assistant", "Of course. What is the number of your reservation?"),
    ("user", "It is 4711."),
    ("assistant", "Thank you. Your reservation 4711 is changed to Sunday, the room is the same."),
    ("user", "Great, thanks."),
    ("assistant", "Is there anything else?"),
    ("user", "No. Goodbye."),
]


def test_it_has_the_request_and_the_outcome() -> None:
    summary = summarize(TALK)
    assert summary.startswith("Caller: I would like to change my reservation from Friday to Sunday.")
    assert "Agent: Your reservation 4711 is changed to Sunday" in summary
    assert "Goodbye" not in summary and "Great" not in summary and "help you" not in summary


def test_it_is_deterministic_and_in_order() -> None:
    assert summarize(TALK) == summarize(list(TALK))
    assert summarize(TALK).index("Friday") < summarize(TALK).index("changed")


def test_a_hundred_turns_become_a_few_sentences_of_both_sides() -> None:
    talk = [
        ("user" if place % 2 else "assistant", f"Item {place} of the long list of offers costs {place} euros. " * 3)
        for place in range(200)
    ]
    summary = summarize(talk)
    assert "Caller: " in summary and "Agent: " in summary
    assert len(summary) <= MAX_CHARACTERS + 40


def test_it_has_no_repetitions() -> None:
    talk = [("user", "I want to cancel my order of the blue lamp.")] * 9
    assert summarize(talk) == "Caller: I want to cancel my order of the blue lamp."


def test_courtesies_alone_have_a_summary_too() -> None:
    assert summarize([("user", "Hello?"), ("user", "  ")]) == "Caller: Hello?"
    assert summarize([]) == ""


def test_an_endless_sentence_is_cut() -> None:
    assert len(summarize([("user", "word " * 5000)])) < MAX_CHARACTERS


def test_speakers_are_named_in_the_calls_language() -> None:
    summary = summarize([("user", "Ich möchte meinen Termin am Freitag absagen.")], "de-DE")
    assert summary == "Anrufer: Ich möchte meinen Termin am Freitag absagen."
