"""What a talk reads and writes counts once."""

from __future__ import annotations

import pytest

from models.token_usage import TokenUsage


def test_what_was_said_before_counts_once() -> None:
    first = TokenUsage()
    first.count_prompt("m", [1, 2, 3])
    first.count_written(4)
    first.count_written(5)
    second = TokenUsage(first)
    second.count_prompt("m", [1, 2, 3, 4, 5, 6, 7])
    assert (first.read, first.written, second.read) == (3, 2, 2)


def test_an_answer_that_was_cut_is_read_again_from_there() -> None:
    first = TokenUsage()
    first.count_prompt("m", [1, 2, 3])
    first.count_written(4, 5, 6)
    second = TokenUsage(first)
    second.count_prompt("m", [1, 2, 3, 4, 9, 8])
    assert second.read == 2


def test_an_answer_that_is_not_given_leaves_no_trace_in_the_next() -> None:
    first = TokenUsage()
    first.count_prompt("m", [1, 2])
    wasted, given = TokenUsage(first), TokenUsage(first)
    wasted.count_prompt("m", [1, 2, 3, 4])
    wasted.count_written(5)
    given.count_prompt("m", [1, 2, 3, 4])
    assert given.read == 2


def test_another_model_reads_all_of_it() -> None:
    first = TokenUsage()
    first.count_prompt("m", [1, 2])
    second = TokenUsage(first)
    second.count_prompt("other", [1, 2, 3])
    assert second.read == 3


def test_rounds_of_one_answer_add_up() -> None:
    count = TokenUsage()
    count.count_prompt("m", [1, 2])
    count.count_written(3)
    count.count_prompt("m", [1, 2, 3, 4])
    count.count_written(5)
    count.count_reported(10, 20)
    assert (count.read, count.written) == (2 + 1 + 10, 2 + 20)


@pytest.mark.parametrize("shared", range(9))
def test_every_length_of_a_common_beginning_is_found(shared: int) -> None:
    first = TokenUsage()
    first.count_prompt("m", [7] * 8)
    second = TokenUsage(first)
    second.count_prompt("m", [7] * shared + [1] * (10 - shared))
    assert second.read == 10 - shared
