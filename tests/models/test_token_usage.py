"""Token usage counts each token of a conversation once."""

from __future__ import annotations

import pytest

from models.token_usage import TokenUsage


def test_earlier_prompt_tokens_count_once() -> None:
    first = TokenUsage()
    first.add_prompt("m", [1, 2, 3])
    first.add_completion(4)
    first.add_completion(5)
    second = TokenUsage(first)
    second.add_prompt("m", [1, 2, 3, 4, 5, 6, 7])
    assert (first.prompt_tokens, first.completion_tokens, second.prompt_tokens) == (3, 2, 2)


def test_a_cut_response_counts_again_from_the_cut() -> None:
    first = TokenUsage()
    first.add_prompt("m", [1, 2, 3])
    first.add_completion(4, 5, 6)
    second = TokenUsage(first)
    second.add_prompt("m", [1, 2, 3, 4, 9, 8])
    assert second.prompt_tokens == 2


def test_a_discarded_response_does_not_change_the_next_count() -> None:
    first = TokenUsage()
    first.add_prompt("m", [1, 2])
    wasted, given = TokenUsage(first), TokenUsage(first)
    wasted.add_prompt("m", [1, 2, 3, 4])
    wasted.add_completion(5)
    given.add_prompt("m", [1, 2, 3, 4])
    assert given.prompt_tokens == 2


def test_another_model_counts_the_whole_prompt() -> None:
    first = TokenUsage()
    first.add_prompt("m", [1, 2])
    second = TokenUsage(first)
    second.add_prompt("other", [1, 2, 3])
    assert second.prompt_tokens == 3


def test_rounds_of_one_response_add_up() -> None:
    count = TokenUsage()
    count.add_prompt("m", [1, 2])
    count.add_completion(3)
    count.add_prompt("m", [1, 2, 3, 4])
    count.add_completion(5)
    count.add_reported(10, 20)
    assert (count.prompt_tokens, count.completion_tokens) == (2 + 1 + 10, 2 + 20)


@pytest.mark.parametrize("shared", range(9))
def test_every_length_of_a_common_prefix_is_found(shared: int) -> None:
    first = TokenUsage()
    first.add_prompt("m", [7] * 8)
    second = TokenUsage(first)
    second.add_prompt("m", [7] * shared + [1] * (10 - shared))
    assert second.prompt_tokens == 10 - shared
