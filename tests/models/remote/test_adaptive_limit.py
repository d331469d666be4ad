"""The limit of requests at a server that refuses some."""

from __future__ import annotations

import pytest

from models.remote.adaptive_limit import AdaptiveLimit


def test_a_refusal_halves_what_is_under_way_and_the_limit_grows_by_one_a_second() -> None:
    limit = AdaptiveLimit(32)
    assert limit.at(0) == 32
    assert limit.on_refused(0, 20, None)
    assert [limit.at(second) for second in (0, 0.9, 1, 2, 12, 22, 60)] == [10, 10, 11, 12, 22, 32, 32]


def test_requests_that_were_sent_before_a_lowering_do_not_lower_it_again() -> None:
    limit = AdaptiveLimit(32)
    assert [limit.on_refused(at, 32, None) for at in (0, 0.5, 0.9)] == [True, False, False]
    assert limit.at(0.9) == 16
    assert limit.on_refused(1, 16, None)
    assert limit.at(1) == 8


@pytest.mark.parametrize(("retry_after_s", "pause_s"), [(None, 1), (0.2, 1), (5, 5), (3600, 30)])
def test_it_does_not_grow_before_retry_after(retry_after_s: float | None, pause_s: float) -> None:
    limit = AdaptiveLimit(8)
    limit.on_refused(100, 8, retry_after_s)
    assert limit.pause_s(100) == pause_s
    assert limit.at(100 + pause_s - 0.01) == 4
    assert limit.at(100 + pause_s) == 5


def test_a_server_that_refuses_the_only_request_is_not_asked_for_a_while() -> None:
    limit = AdaptiveLimit(8)
    limit.on_refused(0, 1, 10)
    assert [limit.at(second) for second in (0, 9.9, 10, 11)] == [0, 0, 1, 2]
