"""When a server that fails is left alone, and when it is asked again. Time is what the test says."""

from __future__ import annotations

from models.remote.circuit_breaker import CircuitBreaker, CircuitBreakerSettings, CircuitState, Permit

BOUNDS = CircuitBreakerSettings(failures=3, open_s=10, longest_s=25)


def sent(breaker: CircuitBreaker, at_s: float) -> Permit:
    """A request that may be sent."""
    permit = breaker.acquire(at_s)
    assert permit is not None
    return permit


def opened(at_s: float = 0) -> CircuitBreaker:
    breaker = CircuitBreaker(BOUNDS)
    for _ in range(3):
        breaker.on_failure(sent(breaker, at_s), at_s)
    return breaker


def test_failures_in_a_row_open_the_circuit_and_an_answer_between_them_does_not_let_it() -> None:
    breaker = CircuitBreaker(BOUNDS)
    opened_by = []
    for fails in (True, True, False, True, True, True):
        permit = sent(breaker, 0)
        if fails:
            opened_by.append(breaker.on_failure(permit, 0))
        else:
            breaker.on_success()
    assert opened_by == [False] * 4 + [True]
    assert breaker.state(0) is CircuitState.OPEN


def test_an_open_circuit_lets_nothing_through_until_its_time_is_over() -> None:
    breaker = opened(at_s=100)
    assert not breaker.acquire(100)
    assert not breaker.acquire(109.9)
    assert breaker.wait_s(104) == 6
    assert breaker.state(110) is CircuitState.HALF_OPEN


def test_a_half_open_circuit_lets_one_request_find_out() -> None:
    breaker = opened()
    assert [bool(breaker.acquire(10)) for _ in range(3)] == [True, False, False]
    breaker.on_success()
    assert breaker.state(10) is CircuitState.CLOSED
    assert [bool(breaker.acquire(10)) for _ in range(3)] == [True, True, True]


def test_each_try_that_fails_doubles_the_time_up_to_the_longest() -> None:
    breaker, now_s, waits = opened(), 0.0, []
    for _ in range(4):
        waits.append(breaker.wait_s(now_s))
        now_s += waits[-1]
        assert breaker.on_failure(sent(breaker, now_s), now_s)
    assert waits == [10, 20, 25, 25]


def test_after_an_answer_the_time_is_short_again() -> None:
    breaker = opened()
    breaker.on_failure(sent(breaker, 10), 10)
    sent(breaker, 30)
    breaker.on_success()
    for _ in range(3):
        breaker.on_failure(sent(breaker, 40), 40)
    assert breaker.wait_s(40) == 10


def before_the_trial() -> tuple[CircuitBreaker, Permit]:
    """A half-open circuit whose try is on its way, and a request from before it opened."""
    breaker = CircuitBreaker(BOUNDS)
    old = sent(breaker, 0)
    for _ in range(3):
        breaker.on_failure(sent(breaker, 0), 0)
    sent(breaker, 10)
    return breaker, old


def test_requests_from_before_the_circuit_opened_do_not_prolong_it() -> None:
    breaker = CircuitBreaker(BOUNDS)
    old = sent(breaker, 0)
    for _ in range(3):
        breaker.on_failure(sent(breaker, 0), 0)
    assert not breaker.on_failure(old, 9)
    assert breaker.wait_s(9) == 1


def test_an_old_request_that_fails_is_not_taken_for_the_try() -> None:
    breaker, old = before_the_trial()
    assert not breaker.on_failure(old, 11)
    assert breaker.state(11) is CircuitState.HALF_OPEN
    assert breaker.wait_s(11) == 0


def test_an_old_request_that_is_given_up_lets_no_second_try_through() -> None:
    breaker, old = before_the_trial()
    breaker.on_abandoned(old)
    assert not breaker.acquire(11)


def test_a_try_that_nobody_waited_for_leaves_the_next_one_to_find_out() -> None:
    breaker = opened()
    breaker.on_abandoned(sent(breaker, 10))
    assert breaker.acquire(10)
    assert not breaker.acquire(10)
