"""When a trunk registers, refreshes and retries; time is an argument."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sipcore.trunks.registration import (
    EXPIRES_S,
    FIRST_RETRY_S,
    JITTER,
    LOOKUP_TIMEOUT_S,
    MAX_RETRY_AFTER_S,
    MAX_RETRY_S,
    RESPONSE_TIMEOUT_S,
    RegisterResult,
    Registration,
)
from sipcore.trunks.trunk import TrunkStatus

NOON = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
SOURCE = "192.0.2.1"
SILENCE = RegisterResult("timeout", source=SOURCE)


def answer(code: int, reason: str = "", expires_s: int = 0, **more: int) -> RegisterResult:
    return RegisterResult("answered", code, reason, SOURCE, expires_s, **more)


class TimedRegistration:
    """A registration and its time; `chance` is the value of its jitter."""

    def __init__(self, chance: float = 0.0) -> None:
        self.now_s = 1000.0
        self.registration = Registration(self.now_s, lambda: chance)

    def send(self) -> int:
        """Advance to the next REGISTER; returns its expiry."""
        assert self.registration.due_s is not None
        self.now_s = max(self.now_s, self.registration.due_s)
        return self.registration.begin_request(self.now_s)

    def send_and_receive(self, result: RegisterResult, *, has_untried_target: bool = False) -> float | None:
        """Send, and report this result; returns the seconds until the next REGISTER."""
        self.send()
        self.registration.on_result(self.now_s, NOON, result, has_untried_target=has_untried_target)
        return None if self.registration.due_s is None else self.registration.due_s - self.now_s


def test_first_register_is_at_once_with_a_response_timeout() -> None:
    timed = TimedRegistration()
    assert (timed.registration.status, timed.registration.due_s) == (TrunkStatus("registering"), timed.now_s)
    assert timed.send() == EXPIRES_S
    assert (timed.registration.due_s, timed.registration.response_deadline_s) == (
        None,
        timed.now_s + RESPONSE_TIMEOUT_S,
    )


def test_status_has_expiry_and_source_of_the_registration() -> None:
    timed = TimedRegistration()
    timed.send_and_receive(answer(200, "OK", 300))
    assert timed.registration.status == TrunkStatus("registered", "registered until 12:05:05Z at 192.0.2.1")


@pytest.mark.parametrize(
    ("granted_s", "refresh_s"), [(300, 240), (120, 60), (100, 50), (30, 15), (3, 1.5), (1, 1), (7200, 240)]
)
def test_refresh_is_a_minute_before_expiry_or_at_half_of_a_short_one(granted_s: int, refresh_s: float) -> None:
    """A longer expiry than requested is not relied upon."""
    timed = TimedRegistration(chance=1.0)
    assert timed.send_and_receive(answer(200, "OK", granted_s)) == refresh_s


def test_retries_come_after_5_s_doubling_to_300_s() -> None:
    timed = TimedRegistration()
    assert [timed.send_and_receive(answer(500, "Server Error")) for _ in range(9)] == [
        5,
        10,
        20,
        40,
        80,
        160,
        300,
        300,
        300,
    ]


def test_success_resets_the_retry_backoff() -> None:
    timed = TimedRegistration()
    timed.send_and_receive(SILENCE)
    timed.send_and_receive(SILENCE)
    timed.send_and_receive(answer(200, "OK", 300))
    assert timed.send_and_receive(SILENCE) == FIRST_RETRY_S


def test_jitter_delays_retries_by_at_most_a_tenth() -> None:
    assert TimedRegistration(chance=1.0).send_and_receive(SILENCE) == pytest.approx(FIRST_RETRY_S * (1 + JITTER))
    assert TimedRegistration(chance=0.5).send_and_receive(answer(503, retry_after_s=100)) == pytest.approx(105)


@pytest.mark.parametrize(
    ("said_s", "waits_s"), [(77, 77), (0, FIRST_RETRY_S), (3, FIRST_RETRY_S), (999_999, MAX_RETRY_AFTER_S)]
)
def test_retry_after_is_honoured_within_bounds(said_s: int, waits_s: float) -> None:
    assert TimedRegistration().send_and_receive(answer(503, "Busy", retry_after_s=said_s)) == waits_s


@pytest.mark.parametrize("code", [401, 403, 404, 407])
def test_permanent_failure_is_retried_after_the_maximum_delay(code: int) -> None:
    timed = TimedRegistration()
    assert [timed.send_and_receive(answer(code)) for _ in range(3)] == [MAX_RETRY_S] * 3


def test_423_raises_the_expiry_at_once_and_permanently() -> None:
    timed = TimedRegistration()
    assert timed.send_and_receive(answer(423, "Interval Too Brief", min_expires_s=1800)) == 0
    assert timed.registration.status.state == "registering"
    assert timed.send() == 1800
    timed.registration.on_result(timed.now_s, NOON, answer(200, "OK", 1800))
    assert timed.registration.due_s == timed.now_s + 1740
    assert timed.send() == 1800


@pytest.mark.parametrize("least_s", [None, 0, EXPIRES_S, 100_000])
def test_423_without_a_usable_min_expires_is_a_failure(least_s: int | None) -> None:
    timed = TimedRegistration()
    assert (
        timed.send_and_receive(RegisterResult("answered", 423, "Interval Too Brief", SOURCE, min_expires_s=least_s))
        == FIRST_RETRY_S
    )
    assert timed.registration.status.state == "failed"


@pytest.mark.parametrize(
    ("outcome", "detail"),
    [
        (answer(403, "Forbidden"), "403 Forbidden from 192.0.2.1"),
        (answer(401, "Unauthorized"), "401 Unauthorized from 192.0.2.1: the user name or the password is wrong"),
        (answer(480), "480 from 192.0.2.1"),
        (SILENCE, "no answer from 192.0.2.1"),
        (RegisterResult("unreachable", source=SOURCE), "no connection to 192.0.2.1"),
        (
            RegisterResult("unreachable", 0, "End of file (PJ_EEOF)", SOURCE),
            "no connection to 192.0.2.1: it ended the connection",
        ),
        (
            RegisterResult("unreachable", 0, "No route to host", SOURCE),
            "no connection to 192.0.2.1: there is no route to it",
        ),
        (RegisterResult("unresolved"), "the host name is unknown"),
        (answer(200, "OK", 0), "200 OK from 192.0.2.1, but it has not kept the registration"),
        (
            RegisterResult("unsupported_challenge", 401, "Unauthorized", SOURCE),
            "401 Unauthorized from 192.0.2.1: it asks for a kind of authentication that is not supported",
        ),
    ],
)
def test_failure_detail_is_for_the_operator(outcome: RegisterResult, detail: str) -> None:
    timed = TimedRegistration()
    timed.now_s += LOOKUP_TIMEOUT_S
    timed.send_and_receive(outcome)
    assert timed.registration.status == TrunkStatus("failed", detail)


def test_host_is_not_unknown_during_its_first_lookup() -> None:
    timed = TimedRegistration()
    assert timed.send_and_receive(RegisterResult("unresolved")) == LOOKUP_TIMEOUT_S
    assert timed.registration.status == TrunkStatus("registering")
    assert timed.send_and_receive(RegisterResult("unresolved")) == FIRST_RETRY_S
    assert timed.registration.status == TrunkStatus("failed", "the host name is unknown")


def test_a_failed_trunk_stays_failed_until_it_is_registered() -> None:
    timed = TimedRegistration()
    timed.send_and_receive(SILENCE)
    timed.send()
    assert timed.registration.status.state == "failed"
    timed.registration.on_result(timed.now_s, NOON, answer(200, "OK", 300))
    assert timed.registration.status.state == "registered"


@pytest.mark.parametrize("outcome", [SILENCE, RegisterResult("unreachable", source=SOURCE), answer(503), answer(504)])
def test_untried_target_is_tried_at_once(outcome: RegisterResult) -> None:
    timed = TimedRegistration()
    assert timed.send_and_receive(outcome, has_untried_target=True) == 0
    assert timed.registration.status.state == "registering"
    assert timed.send_and_receive(outcome) == FIRST_RETRY_S


def test_wrong_password_is_not_tried_at_another_target() -> None:
    assert TimedRegistration().send_and_receive(answer(401), has_untried_target=True) == MAX_RETRY_S


def test_lost_connection_is_registered_again_within_seconds() -> None:
    timed = TimedRegistration(chance=0.5)
    timed.send_and_receive(answer(200, "OK", 300))
    timed.registration.on_connection_lost(timed.now_s)
    assert timed.registration.due_s == timed.now_s + 0.5 * FIRST_RETRY_S
    timed.registration.on_connection_lost(timed.now_s + 1)
    assert timed.registration.due_s == timed.now_s + 0.5 * FIRST_RETRY_S


def test_lost_connection_does_not_hasten_a_failed_trunk() -> None:
    timed = TimedRegistration()
    timed.send_and_receive(answer(403))
    timed.registration.on_connection_lost(timed.now_s)
    assert timed.registration.due_s == timed.now_s + MAX_RETRY_S


def test_resolved_host_is_registered_with_at_once() -> None:
    timed = TimedRegistration()
    timed.send_and_receive(RegisterResult("unresolved"))
    timed.registration.on_host_resolved(timed.now_s)
    assert timed.registration.due_s == timed.now_s


def test_new_address_does_not_hasten_a_registered_trunk() -> None:
    timed = TimedRegistration()
    wait_s = timed.send_and_receive(answer(200, "OK", 300))
    timed.registration.on_host_resolved(timed.now_s)
    assert timed.registration.due_s == timed.now_s + (wait_s or 0)


@pytest.mark.parametrize("end", [answer(200, "OK"), answer(403), SILENCE])
def test_unregister_removes_the_contact_once_whatever_the_result(end: RegisterResult) -> None:
    timed = TimedRegistration()
    timed.send_and_receive(answer(200, "OK", 300))
    timed.registration.unregister(timed.now_s)
    assert (timed.registration.due_s, timed.registration.ended, timed.registration.status.state) == (
        timed.now_s,
        False,
        "unregistered",
    )
    assert timed.send() == 0
    timed.registration.on_result(timed.now_s, NOON, end, has_untried_target=True)
    assert (timed.registration.ended, timed.registration.due_s, timed.registration.status.state) == (
        True,
        None,
        "unregistered",
    )


def test_unregister_without_a_registration_sends_nothing() -> None:
    timed = TimedRegistration()
    timed.send_and_receive(answer(403))
    timed.registration.unregister(timed.now_s)
    assert (timed.registration.ended, timed.registration.due_s) == (True, None)


def test_unregister_before_the_first_register_sends_nothing() -> None:
    timed = TimedRegistration()
    timed.registration.unregister(timed.now_s)
    assert (timed.registration.ended, timed.registration.due_s) == (True, None)


def test_unregister_does_not_wait_for_an_earlier_response() -> None:
    timed = TimedRegistration()
    timed.send()
    timed.registration.unregister(timed.now_s)
    assert timed.send() == 0


def test_unregister_is_sent_after_a_register_without_a_response() -> None:
    timed = TimedRegistration()
    timed.send_and_receive(SILENCE)
    timed.registration.unregister(timed.now_s)
    assert timed.send() == 0


def test_expired_contact_is_not_removed() -> None:
    timed = TimedRegistration()
    timed.send_and_receive(answer(200, "OK", 100))
    timed.send_and_receive(answer(403))
    timed.registration.unregister(timed.now_s + 101)
    assert (timed.registration.ended, timed.registration.due_s) == (True, None)
