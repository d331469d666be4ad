"""Sentences come out early, whole, and cut in the right places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.sentences import Sentences, split_sentences

CASES = [
    ("Hello there. How are you? Fine!", ["Hello there.", "How are you?", "Fine!"]),
    ("Dr. Smith is in. Mr. J. R. Jones is not.", ["Dr. Smith is in.", "Mr. J. R. Jones is not."]),
    ("It costs 3.50 dollars. Yes.", ["It costs 3.50 dollars.", "Yes."]),
    ("Wait... what? Well... Then go.", ["Wait... what?", "Well...", "Then go."]),
    ("From 9 a.m. to 5 p.m. The rest is free.", ["From 9 a.m. to 5 p.m.", "The rest is free."]),
    ("1. First thing\n2. Second thing", ["1. First thing", "2. Second thing"]),
    ("\u8fd9\u662f\u4e00\u3002\u90a3\u662f\u4e8c\u3002", ["\u8fd9\u662f\u4e00\u3002", "\u90a3\u662f\u4e8c\u3002"]),
    ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
    ("Pets, e.g. dogs, are fine.", ["Pets, e.g. dogs, are fine."]),
    ("A heading\n\nA text without an end", ["A heading", "A text without an end"]),
]


@pytest.mark.parametrize(("text", "sentences"), CASES, ids=[text[:20] for text, _ in CASES])
def test_sentences_are_cut_in_the_right_places(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


@pytest.mark.parametrize(("text", "sentences"), CASES, ids=[text[:20] for text, _ in CASES])
def test_how_the_text_is_dealt_out_makes_no_difference(text: str, sentences: list[str]) -> None:
    cutter = Sentences()
    found = [sentence for character in text for sentence in cutter.push(character)]
    assert [sentence for sentence in (*found, cutter.rest()) if sentence] == sentences


def test_a_sentence_comes_out_with_the_white_space_behind_it() -> None:
    cutter = Sentences()
    assert cutter.push("We are open.") == []
    assert cutter.push(" ") == ["We are open."]


def test_a_doubtful_end_waits_for_the_next_word() -> None:
    cutter = Sentences()
    assert cutter.push("We close at 5 p.m. ") == []
    assert cutter.push("on") == []
    assert cutter.push(" Sunday. ") == ["We close at 5 p.m. on Sunday."]


def test_after_the_rest_the_next_text_starts_empty() -> None:
    cutter = Sentences()
    cutter.push("half a")
    assert cutter.rest() == "half a"
    assert cutter.rest() == ""


@given(st.lists(st.text(alphabet="ab. !?\n1", max_size=6)))
def test_no_text_is_lost(deltas: list[str]) -> None:
    cutter = Sentences()
    found = [sentence for delta in deltas for sentence in cutter.push(delta)]
    assert "".join("".join((*found, cutter.rest())).split()) == "".join("".join(deltas).split())
