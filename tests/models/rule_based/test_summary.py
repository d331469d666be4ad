"""What a summary without a model takes from a talk."""

from __future__ import annotations

from models.rule_based.summary import LONGEST, summarize

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


def test_it_says_what_was_wanted_and_what_came_of_it() -> None:
    summary = summarize(TALK)
    assert summary.startswith("Caller: I would like to change my reservation from Friday to Sunday.")
    assert "Agent: Your reservation 4711 is changed to Sunday" in summary
    assert "Goodbye" not in summary and "Great" not in summary and "help you" not in summary


def test_the_same_talk_has_the_same_summary_in_the_order_of_the_talk() -> None:
    assert summarize(TALK) == summarize(list(TALK))
    assert summarize(TALK).index("Friday") < summarize(TALK).index("changed")


def test_a_hundred_turns_fit_into_a_few_lines_of_both_sides() -> None:
    talk = [
        ("user" if place % 2 else "assistant", f"Item {place} of the long list of offers costs {place} euros. " * 3)
        for place in range(200)
    ]
    summary = summarize(talk)
    assert "Caller: " in summary and "Agent: " in summary
    assert len(summary) <= LONGEST + 40


def test_nothing_is_said_twice() -> None:
    talk = [("user", "I want to cancel my order of the blue lamp.")] * 9
    assert summarize(talk) == "Caller: I want to cancel my order of the blue lamp."


def test_a_talk_of_courtesies_is_told_all_the_same() -> None:
    assert summarize([("user", "Hello?"), ("user", "  ")]) == "Caller: Hello?"
    assert summarize([]) == ""


def test_one_endless_sentence_is_cut() -> None:
    assert len(summarize([("user", "word " * 5000)])) < LONGEST


def test_speakers_are_called_as_the_language_of_the_call_has_it() -> None:
    summary = summarize([("user", "Ich möchte meinen Termin am Freitag absagen.")], "de-DE")
    assert summary == "Anrufer: Ich möchte meinen Termin am Freitag absagen."
