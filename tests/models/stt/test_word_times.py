"""Beginnings of words by tokens, and by another text of the same speech."""

from __future__ import annotations

import pytest

from models.stt.word_times import starts_of_other_text, starts_of_tokens


def test_a_word_begins_with_its_first_token() -> None:
    assert starts_of_tokens("the mole", ["\u2581the", "\u2581mo", "le"], [0.5, 0.9, 1.1]) == [0.5, 0.9]
    assert starts_of_tokens("the mole", [" the", " mo", "le"], [0.5, 0.9, 1.1]) == [0.5, 0.9]


@pytest.mark.parametrize("text", ["themole", "the mo le", ""])
def test_tokens_that_are_not_those_of_the_text_time_nothing(text: str) -> None:
    assert starts_of_tokens(text, ["\u2581the", "\u2581mo", "le"], [0.5, 0.9, 1.1]) == []


def test_words_that_another_recognizer_has_heard_too_begin_where_it_heard_them() -> None:
    first, starts = "i need to birds on friday", [0.0, 0.3, 0.6, 0.9, 1.5, 1.8]
    assert starts_of_other_text("I need two berths, on Friday.", first, starts) == pytest.approx(
        [0.0, 0.3, 0.7, 1.1, 1.5, 1.8]
    )
    assert starts_of_other_text("Well, I need to go", first, starts) == [0.0, 0.0, 0.3, 0.6, 1.8]
    assert starts_of_other_text("Something else", first, starts) == []
    assert starts_of_other_text("I need", first, []) == []
