"""Spoken numbers as identifiers and amounts."""

from __future__ import annotations

import pytest

from models.rule_based.spoken_numbers import find_spoken_numbers


@pytest.mark.parametrize(
    ("said", "identifier", "amount"),
    [
        ("four seven one one", "4711", 4711),
        ("forty seven eleven", "4711", 4711),
        ("double oh seven", "007", 7),
        ("oh one seven six double five four", "0176554", 176554),
        ("triple nine", "999", 999),
        ("nineteen ninety nine", "1999", 1999),
        ("forty two", "42", 42),
        ("one hundred and twenty", "120", 120),
        ("three thousand two hundred and five", "3205", 3205),
        ("two hundred and five thousand", "205000", 205000),
        ("one million two hundred thousand and three", "1200003", 1200003),
        ("three point five", "35", 3.5),
        ("4711", "4711", 4711),
        ("2.5", "2.5", 2.5),
        ("ab12", "ab12", None),
        ("47 11", "4711", 4711),
        ("four for to seven", "4427", 4427),
    ],
)
def test_spoken_numbers_are_parsed(said: str, identifier: str, amount: float | None) -> None:
    [number] = find_spoken_numbers(said.split())
    assert (number.identifier, number.amount) == (identifier, amount)
    assert (number.start, number.end) == (0, len(said.split()))


def test_numbers_have_their_positions() -> None:
    said = "a table for two on the third at nineteen thirty please"
    found = find_spoken_numbers(said.split())
    assert [(number.start, number.end, number.identifier) for number in found] == [(3, 4, "2"), (8, 10, "1930")]


def test_and_separates_two_numbers() -> None:
    assert [number.identifier for number in find_spoken_numbers(["one", "two", "and", "three", "four"])] == ["12", "34"]


@pytest.mark.parametrize("said", ["oh i see", "to be or not to be", "and", "", "hundred", "double", "for too long"])
def test_homophones_alone_are_no_numbers(said: str) -> None:
    assert find_spoken_numbers(said.split()) == []
