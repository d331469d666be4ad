"""When a server that fails is left alone, and when it is asked again. Time is what the test says."""

from __future__ import annotations

from models.remote.breaker import Breaker, BreakerBounds, Circuit

BOUNDS = BreakerBounds(failures=3, open_s=10, longest_s=25)


def opened(at_s: float = 0) -> Breaker:
    breaker = Breaker(BOUNDS)
    for _ in range(3):
        assert breaker.allows(at_s)
        breaker.failed(at_s)
    return breaker


def test_failures_in_a_row_open_the_circuit_and_an_answer_between_them_does_not_let_it() -> None:
    breaker = Breaker(BOUNDS)
    opened_by = []
    for fails in (True, True, False, True, True, True):
        assert breaker.allows(0)
        if fails:
            opened_by.append(breaker.failed(0))
        else:
            breaker.succeeded()
    assert opened_by == [False] * 4 + [True]
    assert breaker.circuit(0) is Circuit.OPEN


def test_an_open_circuit_lets_nothing_through_until_its_time_is_over() -> None:
    breaker = opened(at_s=100)
    assert not breaker.allows(100)
    assert not breaker.allows(109.9)
    assert breaker.wait_s(104) == 6
    assert breaker.circuit(110) is Circuit.HALF_OPEN


def test_a_half_open_circuit_lets_one_request_find_out() -> None:
    breaker = opened()
    assert [breaker.allows(10) for _ in range(3)] == [True, False, False]
    breaker.succeeded()
    assert breaker.circuit(10) is Circuit.CLOSED
    assert [breaker.allows(10) for _ in range(3)] == [True, True, True]


def test_each_try_that_fails_doubles_the_time_up_to_the_longest() -> None:
    breaker, now_s, waits = opened(), 0.0, []
    for _ in range(4):
        waits.append(breaker.wait_s(now_s))
        now_s += waits[-1]
        assert breaker.allows(now_s)
        assert breaker.failed(now_s)
    assert waits == [10, 20, 25, 25]


def test_after_an_answer_the_time_is_short_again() -> None:
    breaker = opened()
    assert breaker.allows(10)
    breaker.failed(10)
    assert breaker.allows(30)
    breaker.succeeded()
    for _ in range(3):
        breaker.failed(40)
    assert breaker.wait_s(40) == 10


def test_requests_from_before_the_circuit_opened_do_not_prolong_it() -> None:
    breaker = opened()
    assert not breaker.failed(9)
    assert breaker.wait_s(9) == 1


def test_a_try_that_nobody_waited_for_leaves_the_next_one_to_find_out() -> None:
    breaker = opened()
    assert breaker.allows(10)
    breaker.abandoned()
    assert breaker.allows(10)
    assert not breaker.allows(10)
