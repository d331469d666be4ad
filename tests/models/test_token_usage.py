"""What a talk reads and writes counts once."""

from __future__ import annotations

import pytest

from models.token_usage import TokenCount


def test_what_was_said_before_counts_once() -> None:
    first = TokenCount()
    first.asked("m", [1, 2, 3])
    first.wrote(4)
    first.wrote(5)
    second = TokenCount(first)
    second.asked("m", [1, 2, 3, 4, 5, 6, 7])
    assert (first.read, first.written, second.read) == (3, 2, 2)


def test_an_answer_that_was_cut_is_read_again_from_there() -> None:
    first = TokenCount()
    first.asked("m", [1, 2, 3])
    first.wrote(4, 5, 6)
    second = TokenCount(first)
    second.asked("m", [1, 2, 3, 4, 9, 8])
    assert second.read == 2


def test_an_answer_that_is_not_given_leaves_no_trace_in_the_next() -> None:
    first = TokenCount()
    first.asked("m", [1, 2])
    wasted, given = TokenCount(first), TokenCount(first)
    wasted.asked("m", [1, 2, 3, 4])
    wasted.wrote(5)
    given.asked("m", [1, 2, 3, 4])
    assert given.read == 2


def test_another_model_reads_all_of_it() -> None:
    first = TokenCount()
    first.asked("m", [1, 2])
    second = TokenCount(first)
    second.asked("other", [1, 2, 3])
    assert second.read == 3


def test_rounds_of_one_answer_add_up() -> None:
    count = TokenCount()
    count.asked("m", [1, 2])
    count.wrote(3)
    count.asked("m", [1, 2, 3, 4])
    count.wrote(5)
    count.told(10, 20)
    assert (count.read, count.written) == (2 + 1 + 10, 2 + 20)


@pytest.mark.parametrize("shared", range(9))
def test_every_length_of_a_common_beginning_is_found(shared: int) -> None:
    first = TokenCount()
    first.asked("m", [7] * 8)
    second = TokenCount(first)
    second.asked("m", [7] * shared + [1] * (10 - shared))
    assert second.read == 10 - shared
