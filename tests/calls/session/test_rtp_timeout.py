"""Callers that vanish."""

from __future__ import annotations

from calls.session.rtp_timeout import MediaWatch


def test_a_caller_is_gone_after_the_limit_without_a_packet() -> None:
    assert MediaWatch(30).look(30.0, on_hold=False) is None


def test_the_next_look_is_when_the_limit_could_be_reached() -> None:
    watch = MediaWatch(30)
    assert watch.look(0.02, on_hold=False) == 29.98
    assert watch.look(12.0, on_hold=False) == 18.0


def test_no_silence_is_too_long_on_hold() -> None:
    watch = MediaWatch(30)
    assert [watch.look(silence, on_hold=True) for silence in (30.0, 60.0, 3600.0)] == [30, 30, 30]


def test_after_a_hold_the_time_starts_anew_once() -> None:
    watch = MediaWatch(30)
    watch.look(60.0, on_hold=True)
    assert watch.look(90.0, on_hold=False) == 30
    assert watch.look(120.0, on_hold=False) is None
