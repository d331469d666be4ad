"""Passages are short, have their headings, and together contain the complete document."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.document_reader.base.blocks import Block, Role, heading, normalize, paragraph, row
from storage.document_reader.chunker import MAX_WORDS, OVERLAP_WORDS, Chunk, chunks_of


def texts(*blocks: Block, words: int = MAX_WORDS, overlap: int = OVERLAP_WORDS) -> list[str]:
    return [chunk.text for chunk in chunks_of(blocks, words, overlap)]


def numbered(first: int, last: int) -> str:
    return " ".join(f"w{number}" for number in range(first, last + 1))


def test_a_short_document_is_one_passage() -> None:
    assert list(chunks_of([paragraph("We open at nine."), paragraph("We close at six.")])) == [
        Chunk(0, "We open at nine.\nWe close at six.", "we open at nine we close at six")
    ]


def test_a_heading_begins_a_passage_with_its_path() -> None:
    blocks = [
        heading("The Clinic", 0), paragraph("Welcome."),
        heading("Hours", 1), heading("Summer", 2), paragraph("Nine to five."), heading("Winter", 2), paragraph("Ten."),
        heading("Prices", 1), row(["Item", "Price"], ["Tea", "2"]),
    ]  # fmt: skip
    assert texts(*blocks) == [
        "The Clinic\nWelcome.",
        "The Clinic > Hours > Summer\nNine to five.",
        "The Clinic > Hours > Winter\nTen.",
        "The Clinic > Prices\nItem: Tea; Price: 2",
    ]
    assert [chunk.position for chunk in chunks_of(blocks)] == [0, 1, 2, 3]


def test_a_heading_without_text_is_a_passage() -> None:
    assert texts(heading("A", 1), heading("B", 1), heading("C", 2)) == ["A", "B > C"]


def test_a_repeated_title_occurs_once_in_the_path() -> None:
    assert texts(heading("Opening hours", 0), heading("Opening Hours", 1), paragraph("Daily.")) == [
        "Opening Hours\nDaily."
    ]


def test_a_long_heading_is_shortened_in_the_path_and_complete_below() -> None:
    long = "A heading that is as long as a whole paragraph. " * 5
    (text,) = texts(heading(long.strip(), 1), paragraph("Body."))
    path, body = text.split("\n", 1)
    assert len(path) == 120
    assert path.endswith("\u2026")
    assert body == f"{long.strip()}\nBody."


def test_outer_headings_are_left_out_of_a_long_path() -> None:
    blocks = [heading(f"{letter} " + "x" * 110, level) for level, letter in enumerate("ABCDE")]
    (text,) = texts(*blocks, paragraph("Body."))
    path = text.split("\n")[0]
    assert path.startswith("D ")
    assert " > E " in path


def test_paragraphs_are_cut_between_sentences_and_overlap_by_whole_ones() -> None:
    sentences = [f"Sentence {number} has six words." for number in range(100)]
    passages = texts(paragraph(" ".join(sentences)))
    assert all(re.fullmatch(r"(Sentence \d+ has six words\. ?)+", passage) for passage in passages)
    assert all(len(passage.split()) <= MAX_WORDS for passage in passages)
    for before, after in pairwise(passages):
        shared = after[: after.index(before[-28:]) + 28] if before[-28:] in after else ""
        assert 20 <= len(shared.split()) <= OVERLAP_WORDS
        assert before.endswith(shared)


def test_a_passage_ends_at_a_paragraph_when_it_is_half_full() -> None:
    first, second = numbered(1, 150) + ".", " ".join(f"Sentence {number} of it." for number in range(20))
    passages = texts(paragraph(first), paragraph(second))
    assert passages[0] == first
    assert passages[1].endswith(second)
    assert passages[1] == f"{numbered(121, 150)}.\n{second}"


def test_a_passage_is_at_least_half_full_when_a_paragraph_goes_on() -> None:
    sentences = " ".join(f"Sentence {number} has six words." for number in range(100))
    first, *_ = texts(paragraph("A short one."), paragraph(sentences))
    assert first.startswith("A short one.\nSentence 0")
    assert len(first.split()) > MAX_WORDS - 10


def test_table_rows_are_neither_cut_nor_repeated_in_part() -> None:
    rows = [row(["Name", "Use"], [f"tool {number}", "many words " * 15]) for number in range(40)]
    passages = texts(*rows)
    assert len(passages) > 5
    whole = {block.text for block in rows}
    assert all(line in whole for passage in passages for line in passage.split("\n"))


def test_short_rows_are_repeated_whole() -> None:
    passages = texts(*(row(["N"], [f"row {number}"]) for number in range(120)))
    lines = [passage.split("\n") for passage in passages]
    assert len(lines) > 1
    assert all(before[-10:] == after[:10] for before, after in pairwise(lines))


def test_a_row_longer_than_a_passage_is_cut_like_text() -> None:
    passages = texts(row(["Notes"], [numbered(1, 500)]))
    assert len(passages) == 3
    assert all(len(passage.split()) <= MAX_WORDS for passage in passages)


def test_an_endless_sentence_is_cut_between_words() -> None:
    passages = texts(paragraph(numbered(1, 1000)))
    assert all(len(passage.split()) <= MAX_WORDS for passage in passages)
    assert passages[:2] == [numbered(1, 170), numbered(141, 340)]


def test_an_endless_word_is_cut() -> None:
    passages = texts(paragraph("x" * 50_000))
    assert all(passage and len(passage) <= MAX_WORDS * 60 for passage in passages)
    assert len("".join(passages)) >= 50_000


CHINESE = "\u4eca\u5929\u6211\u4eec\u4e5d\u70b9\u5f00\u95e8\u3002"
JAPANESE = "\u5348\u524d\u4e5d\u6642\u306b\u958b\u304d\u307e\u3059\u3002"
THAI = "\u0e40\u0e1b\u0e34\u0e14\u0e40\u0e01\u0e49\u0e32\u0e42\u0e21\u0e07"


@pytest.mark.parametrize("sentence", [CHINESE, JAPANESE, THAI], ids=["Chinese", "Japanese", "Thai"])
def test_a_text_without_spaces_is_cut_by_characters(sentence: str) -> None:
    text = sentence * 200
    passages = texts(paragraph(text))
    assert len(passages) > 2
    assert all(100 <= len(passage) <= 2 * MAX_WORDS * 2 for passage in passages)
    # Nothing is lost, no vowel sign is parted from its letter, no space is put in between.
    assert all(passage in text and not re.match("[\u0e34\u0e49]", passage) for passage in passages)
    if sentence is not THAI:
        assert all(passage.startswith(sentence) and passage.endswith(sentence) for passage in passages)


documents = st.lists(
    st.tuples(st.sampled_from(Role), st.integers(0, 3), st.lists(st.sampled_from(" \n.!"), min_size=1, max_size=20)),
    max_size=12,
)


@given(documents, st.integers(1, 12), st.integers(0, 4))
def test_no_word_is_lost_or_moved_and_no_passage_is_empty_or_too_long(
    document: list[tuple[Role, int, list[str]]], words: int, overlap: int
) -> None:
    count = 0
    blocks: list[Block] = []
    for role, level, ends in document:
        text = "".join(f"w{count + number}{end}{' ' * (end in '.!')}" for number, end in enumerate(ends))
        blocks.append(Block(role, normalize(text), level))
        count += len(ends)
    seen: list[int] = []
    headings = {block.text.replace("\n", " ") for block in blocks if block.role is Role.HEADING}
    for position, chunk in enumerate(chunks_of(blocks, words, min(overlap, words))):
        assert chunk.position == position
        path, _, body = chunk.text.partition("\n")
        if not set(path.split(" > ")) <= headings:
            path, body = "", chunk.text
        assert len(body.split()) <= words
        numbers = [int(number) for number in re.findall(r"w(\d+)", body if body else path)]
        assert numbers
        seen += [number for number in numbers if number > max(seen, default=-1)]
    in_body = [number for block in blocks if block.role is not Role.HEADING for number in _numbers(block)]
    assert [number for number in seen if number in in_body] == in_body


def _numbers(block: Block) -> list[int]:
    return [int(number) for number in re.findall(r"w(\d+)", block.text)]


def test_an_abbreviation_ends_no_sentence() -> None:
    text = "Ask Dr. Smith or J. Miller. They work in Str. 5 today."
    assert texts(paragraph(text), words=6, overlap=0) == ["Ask Dr. Smith or J. Miller.", "They work in Str. 5 today."]
    assert texts(paragraph(text), words=4, overlap=0)[0] == "Ask Dr. Smith or"  # longer than a passage: cut anywhere
