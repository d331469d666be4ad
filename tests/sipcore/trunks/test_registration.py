"""When a trunk registers, refreshes and tries again: on a clock that a test moves."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sipcore.trunks.registration import (
    EXPIRES_S,
    FIRST_RETRY_S,
    GIVE_UP_S,
    JITTER,
    LAST_RETRY_S,
    LONGEST_RETRY_AFTER_S,
    LOOKUP_S,
    RegisterResult,
    Registration,
)
from sipcore.trunks.trunk import TrunkStatus

NOON = datetime(2026, 3, 1, 12, 0, 5, tzinfo=UTC)
SOURCE = "192.0.2.1"
SILENCE = RegisterResult("silence", source=SOURCE)


def answer(code: int, reason: str = "", expires_s: int = 0, **more: int) -> RegisterResult:
    return RegisterResult("answered", code, reason, SOURCE, expires_s, **more)


class Play:
    """A registration, and the clock that it goes by; `chance` is what its jitter draws."""

    def __init__(self, chance: float = 0.0) -> None:
        self.now_s = 1000.0
        self.it = Registration(self.now_s, lambda: chance)

    def sends(self) -> int:
        """Go to the time when it sends; the expiry that it asks for."""
        assert self.it.due_s is not None
        self.now_s = max(self.now_s, self.it.due_s)
        return self.it.send(self.now_s)

    def gets(self, result: RegisterResult, *, has_untried_target: bool = False) -> float | None:
        """Send and get this; how long until the next one is due."""
        self.sends()
        self.it.on_result(self.now_s, NOON, result, has_untried_target=has_untried_target)
        return None if self.it.due_s is None else self.it.due_s - self.now_s


def test_it_begins_at_once_and_awaits_an_answer_for_a_bounded_time() -> None:
    play = Play()
    assert (play.it.status, play.it.due_s) == (TrunkStatus("registering"), play.now_s)
    assert play.sends() == EXPIRES_S
    assert (play.it.due_s, play.it.give_up_s) == (None, play.now_s + GIVE_UP_S)


def test_a_registration_says_until_when_it_holds_and_where() -> None:
    play = Play()
    play.gets(answer(200, "OK", 300))
    assert play.it.status == TrunkStatus("registered", "registered until 12:05:05Z at 192.0.2.1")


@pytest.mark.parametrize(
    ("granted_s", "refresh_s"), [(300, 240), (120, 60), (100, 50), (30, 15), (3, 1.5), (1, 1), (7200, 240)]
)
def test_it_refreshes_a_minute_before_the_end_or_at_half_of_a_short_one(granted_s: int, refresh_s: float) -> None:
    """What is granted beyond what was asked for is not relied upon."""
    play = Play(chance=1.0)
    assert play.gets(answer(200, "OK", granted_s)) == refresh_s


def test_retries_come_after_5_s_doubling_to_300_s() -> None:
    play = Play()
    assert [play.gets(answer(500, "Server Error")) for _ in range(9)] == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_after_a_success_retries_begin_anew() -> None:
    play = Play()
    play.gets(SILENCE)
    play.gets(SILENCE)
    play.gets(answer(200, "OK", 300))
    assert play.gets(SILENCE) == FIRST_RETRY_S


def test_jitter_makes_retries_later_by_a_tenth_at_most() -> None:
    assert Play(chance=1.0).gets(SILENCE) == pytest.approx(FIRST_RETRY_S * (1 + JITTER))
    assert Play(chance=0.5).gets(answer(503, retry_after_s=100)) == pytest.approx(105)


@pytest.mark.parametrize(
    ("said_s", "waits_s"), [(77, 77), (0, FIRST_RETRY_S), (3, FIRST_RETRY_S), (999_999, LONGEST_RETRY_AFTER_S)]
)
def test_retry_after_is_honoured_within_bounds(said_s: int, waits_s: float) -> None:
    assert Play().gets(answer(503, "Busy", retry_after_s=said_s)) == waits_s


@pytest.mark.parametrize("code", [401, 403, 404, 407])
def test_who_is_refused_comes_back_on_the_slow_schedule(code: int) -> None:
    play = Play()
    assert [play.gets(answer(code)) for _ in range(3)] == [LAST_RETRY_S] * 3


def test_too_brief_an_interval_is_made_longer_at_once_and_for_good() -> None:
    play = Play()
    assert play.gets(answer(423, "Interval Too Brief", min_expires_s=1800)) == 0
    assert play.it.status.state == "registering"
    assert play.sends() == 1800
    play.it.on_result(play.now_s, NOON, answer(200, "OK", 1800))
    assert play.it.due_s == play.now_s + 1740
    assert play.sends() == 1800


@pytest.mark.parametrize("least_s", [None, 0, EXPIRES_S, 100_000])
def test_an_interval_that_cannot_be_made_longer_is_a_failure(least_s: int | None) -> None:
    play = Play()
    assert (
        play.gets(RegisterResult("answered", 423, "Interval Too Brief", SOURCE, min_expires_s=least_s)) == FIRST_RETRY_S
    )
    assert play.it.status.state == "failed"


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
            RegisterResult("unanswerable", 401, "Unauthorized", SOURCE),
            "401 Unauthorized from 192.0.2.1: it asks for a kind of authentication that is not supported",
        ),
    ],
)
def test_a_failure_is_told_in_words_that_an_operator_understands(outcome: RegisterResult, detail: str) -> None:
    play = Play()
    play.now_s += LOOKUP_S
    play.gets(outcome)
    assert play.it.status == TrunkStatus("failed", detail)


def test_a_host_that_is_still_being_looked_for_is_not_unknown_yet() -> None:
    play = Play()
    assert play.gets(RegisterResult("unresolved")) == LOOKUP_S
    assert play.it.status == TrunkStatus("registering")
    assert play.gets(RegisterResult("unresolved")) == FIRST_RETRY_S
    assert play.it.status == TrunkStatus("failed", "the host name is unknown")


def test_a_failed_trunk_stays_failed_until_it_is_registered() -> None:
    play = Play()
    play.gets(SILENCE)
    play.sends()
    assert play.it.status.state == "failed"
    play.it.on_result(play.now_s, NOON, answer(200, "OK", 300))
    assert play.it.status.state == "registered"


@pytest.mark.parametrize("outcome", [SILENCE, RegisterResult("unreachable", source=SOURCE), answer(503), answer(504)])
def test_another_address_is_tried_at_once(outcome: RegisterResult) -> None:
    play = Play()
    assert play.gets(outcome, has_untried_target=True) == 0
    assert play.it.status.state == "registering"
    assert play.gets(outcome) == FIRST_RETRY_S


def test_another_address_does_not_know_a_wrong_password_either() -> None:
    assert Play().gets(answer(401), has_untried_target=True) == LAST_RETRY_S


def test_a_lost_connection_is_made_again_within_seconds() -> None:
    play = Play(chance=0.5)
    play.gets(answer(200, "OK", 300))
    play.it.on_connection_lost(play.now_s)
    assert play.it.due_s == play.now_s + 0.5 * FIRST_RETRY_S
    play.it.on_connection_lost(play.now_s + 1)
    assert play.it.due_s == play.now_s + 0.5 * FIRST_RETRY_S


def test_a_lost_connection_does_not_hurry_a_failed_trunk() -> None:
    play = Play()
    play.gets(answer(403))
    play.it.on_connection_lost(play.now_s)
    assert play.it.due_s == play.now_s + LAST_RETRY_S


def test_a_host_that_becomes_known_is_registered_with_at_once() -> None:
    play = Play()
    play.gets(RegisterResult("unresolved"))
    play.it.on_host_resolved(play.now_s)
    assert play.it.due_s == play.now_s


def test_a_registered_trunk_does_not_hurry_when_its_host_has_another_address() -> None:
    play = Play()
    wait_s = play.gets(answer(200, "OK", 300))
    play.it.on_host_resolved(play.now_s)
    assert play.it.due_s == play.now_s + (wait_s or 0)


@pytest.mark.parametrize("end", [answer(200, "OK"), answer(403), SILENCE])
def test_leaving_takes_the_contact_away_once_whatever_comes_of_it(end: RegisterResult) -> None:
    play = Play()
    play.gets(answer(200, "OK", 300))
    play.it.unregister(play.now_s)
    assert (play.it.due_s, play.it.ended, play.it.status.state) == (play.now_s, False, "unregistered")
    assert play.sends() == 0
    play.it.on_result(play.now_s, NOON, end, has_untried_target=True)
    assert (play.it.ended, play.it.due_s, play.it.status.state) == (True, None, "unregistered")


def test_who_was_never_registered_has_nothing_to_take_away() -> None:
    play = Play()
    play.gets(answer(403))
    play.it.unregister(play.now_s)
    assert (play.it.ended, play.it.due_s) == (True, None)


def test_who_has_not_even_asked_has_nothing_to_take_away() -> None:
    play = Play()
    play.it.unregister(play.now_s)
    assert (play.it.ended, play.it.due_s) == (True, None)


def test_leaving_does_not_wait_for_an_answer_that_is_under_way() -> None:
    play = Play()
    play.sends()
    play.it.unregister(play.now_s)
    assert play.sends() == 0


def test_a_silent_registrar_may_have_registered_us_all_the_same() -> None:
    play = Play()
    play.gets(SILENCE)
    play.it.unregister(play.now_s)
    assert play.sends() == 0


def test_a_contact_that_has_run_out_is_not_taken_away() -> None:
    play = Play()
    play.gets(answer(200, "OK", 100))
    play.gets(answer(403))
    play.it.unregister(play.now_s + 101)
    assert (play.it.ended, play.it.due_s) == (True, None)
