"""The states of the circuit breaker, on a virtual clock."""

from __future__ import annotations

from models.remote.circuit_breaker import CircuitBreaker, CircuitBreakerSettings, CircuitState, Permit

SETTINGS = CircuitBreakerSettings(failures=3, open_s=10, max_open_s=25)


def send(breaker: CircuitBreaker, at_s: float) -> Permit:
    """A permitted request."""
    permit = breaker.acquire(at_s)
    assert permit is not None
    return permit


def open_circuit(at_s: float = 0) -> CircuitBreaker:
    breaker = CircuitBreaker(SETTINGS)
    for _ in range(3):
        breaker.on_failure(send(breaker, at_s), at_s)
    return breaker


def test_failures_in_a_row_open_the_circuit_unless_a_response_is_between_them() -> None:
    breaker = CircuitBreaker(SETTINGS)
    opened_by = []
    for fails in (True, True, False, True, True, True):
        permit = send(breaker, 0)
        if fails:
            opened_by.append(breaker.on_failure(permit, 0))
        else:
            breaker.on_success()
    assert opened_by == [False] * 4 + [True]
    assert breaker.state(0) is CircuitState.OPEN


def test_an_open_circuit_permits_no_request_until_its_time_is_over() -> None:
    breaker = open_circuit(at_s=100)
    assert not breaker.acquire(100)
    assert not breaker.acquire(109.9)
    assert breaker.wait_s(104) == 6
    assert breaker.state(110) is CircuitState.HALF_OPEN


def test_a_half_open_circuit_permits_one_probe() -> None:
    breaker = open_circuit()
    assert [bool(breaker.acquire(10)) for _ in range(3)] == [True, False, False]
    breaker.on_success()
    assert breaker.state(10) is CircuitState.CLOSED
    assert [bool(breaker.acquire(10)) for _ in range(3)] == [True, True, True]


def test_each_failed_probe_doubles_the_time_up_to_the_maximum() -> None:
    breaker, now_s, waits = open_circuit(), 0.0, []
    for _ in range(4):
        waits.append(breaker.wait_s(now_s))
        now_s += waits[-1]
        assert breaker.on_failure(send(breaker, now_s), now_s)
    assert waits == [10, 20, 25, 25]


def test_a_response_resets_the_open_time() -> None:
    breaker = open_circuit()
    breaker.on_failure(send(breaker, 10), 10)
    send(breaker, 30)
    breaker.on_success()
    for _ in range(3):
        breaker.on_failure(send(breaker, 40), 40)
    assert breaker.wait_s(40) == 10


def before_the_probe() -> tuple[CircuitBreaker, Permit]:
    """A half-open circuit with its probe in progress, and a request from before it opened."""
    breaker = CircuitBreaker(SETTINGS)
    old = send(breaker, 0)
    for _ in range(3):
        breaker.on_failure(send(breaker, 0), 0)
    send(breaker, 10)
    return breaker, old


def test_requests_from_before_the_circuit_opened_do_not_prolong_it() -> None:
    breaker = CircuitBreaker(SETTINGS)
    old = send(breaker, 0)
    for _ in range(3):
        breaker.on_failure(send(breaker, 0), 0)
    assert not breaker.on_failure(old, 9)
    assert breaker.wait_s(9) == 1


def test_an_old_failed_request_is_not_taken_for_the_probe() -> None:
    breaker, old = before_the_probe()
    assert not breaker.on_failure(old, 11)
    assert breaker.state(11) is CircuitState.HALF_OPEN
    assert breaker.wait_s(11) == 0


def test_an_old_abandoned_request_permits_no_second_probe() -> None:
    breaker, old = before_the_probe()
    breaker.on_abandoned(old)
    assert not breaker.acquire(11)


def test_an_abandoned_probe_permits_the_next_one() -> None:
    breaker = open_circuit()
    breaker.on_abandoned(send(breaker, 10))
    assert breaker.acquire(10)
    assert not breaker.acquire(10)
