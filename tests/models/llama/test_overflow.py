"""Which turns a talk that has grown too long leaves out."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from models.llama.overflow import first_kept, without_middle

TURNS = [True, False] * 5
COSTS = [10] * 10


def test_a_talk_that_fits_stays_whole() -> None:
    assert first_kept(COSTS, TURNS, 100, 0) == 0


def test_the_oldest_turns_go_and_leave_room_for_the_next() -> None:
    assert first_kept(COSTS, TURNS, 99, 0) == 6


def test_what_was_left_out_stays_out_and_no_more_goes_while_it_fits() -> None:
    assert first_kept(COSTS, TURNS, 40, 6) == 6
    assert first_kept([*COSTS, 10, 10], [*TURNS, True, False], 59, 6) == 10


def test_a_result_stays_with_its_call() -> None:
    # user, assistant with a call, tool, assistant; user
    assert first_kept([10, 10, 80, 10, 10], [True, False, False, False, True], 100, 0) == 4


def test_the_last_turn_stays_even_if_it_is_too_long() -> None:
    assert first_kept([10, 10, 500], [True, False, True], 100, 0) == 2
    assert first_kept([500], [False], 100, 0) == 0


def test_a_prompt_that_is_too_long_keeps_its_beginning_and_its_end() -> None:
    assert without_middle(list(range(10)), 5) == [0, 1, 7, 8, 9]
    assert without_middle([1, 2], 5) == [1, 2]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 50), st.booleans()), min_size=1, max_size=30), st.integers(1, 300), st.data())
def test_what_is_kept_fits_or_is_the_last_turn(
    messages: list[tuple[int, bool]], room: int, data: st.DataObject
) -> None:
    costs, begins = [cost for cost, _ in messages], [start for _, start in messages]
    dropped = data.draw(st.integers(0, len(costs) - 1))
    first = first_kept(costs, begins, room, dropped)
    assert dropped <= first < len(costs)
    assert sum(costs[first:]) <= room or not any(begins[first + 1 :])
