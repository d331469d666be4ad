"""What the last words say about whether more is coming."""

from __future__ import annotations

import pytest

from models.end_of_turn.lexical import LexicalEndOfTurn

DEFAULT_THRESHOLD = 0.1
EOT = LexicalEndOfTurn()


@pytest.mark.parametrize(
    ("partial", "language"),
    [
        ("i would like to", None),
        ("my number is um", "en"),
        ("we could come on monday or", "en-GB"),
        ("ich hätte gern einen", "de"),
        ("je voudrais une", "fr-FR"),
        ("quiero hablar con", "es"),
    ],
)
def test_an_incomplete_last_word_keeps_the_turn_open(partial: str, language: str | None) -> None:
    assert EOT.probability(partial, language) < DEFAULT_THRESHOLD


@pytest.mark.parametrize(
    ("partial", "language"),
    [("yes", None), ("no thank you", "en"), ("ja bitte", "de"), ("au revoir", "fr"), ("eso es todo", "es-MX")],
)
def test_a_complete_phrase_ends_the_turn(partial: str, language: str | None) -> None:
    assert EOT.probability(partial, language) > 0.9


def test_without_words_the_probability_is_undecided() -> None:
    assert EOT.probability("", None) == 0.5


def test_a_question_may_end_with_an_auxiliary() -> None:
    assert EOT.probability("what is it about", "en") > EOT.probability("it is about", "en")


@pytest.mark.parametrize("language", [None, "en", "xx", "zh-Hant-TW", ""])
@pytest.mark.parametrize("partial", ["", " ", "?", "a", "where is your office", "\u4f60\u597d"])
def test_the_result_is_a_probability_for_any_text(partial: str, language: str | None) -> None:
    assert 0.0 <= EOT.probability(partial, language) <= 1.0


def test_every_word_list_matters() -> None:
    """The same words in another language are not dangling."""
    assert EOT.probability("und", "de") < DEFAULT_THRESHOLD < EOT.probability("und", "en")
