"""The RTP timeout."""

from __future__ import annotations

from calls.session.rtp_timeout import RtpTimeout


def test_the_timeout_expires_after_the_limit_without_a_packet() -> None:
    assert RtpTimeout(30).next_check_s(30.0, on_hold=False) is None


def test_the_next_check_is_when_the_limit_could_be_reached() -> None:
    watch = RtpTimeout(30)
    assert watch.next_check_s(0.02, on_hold=False) == 29.98
    assert watch.next_check_s(12.0, on_hold=False) == 18.0


def test_the_timeout_does_not_expire_on_hold() -> None:
    watch = RtpTimeout(30)
    assert [watch.next_check_s(silence, on_hold=True) for silence in (30.0, 60.0, 3600.0)] == [30, 30, 30]


def test_the_time_starts_anew_after_a_hold() -> None:
    watch = RtpTimeout(30)
    watch.next_check_s(60.0, on_hold=True)
    assert watch.next_check_s(90.0, on_hold=False) == 30
    assert watch.next_check_s(120.0, on_hold=False) is None
