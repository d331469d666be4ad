"""The `endedReason` of final SIP statuses."""

from __future__ import annotations

import pytest

from sipcore.messages.status_reason import unanswered_reason


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (486, "busy"),
        (600, "busy"),
        (480, "no_answer"),
        (408, "no_answer"),
        (487, "no_answer"),
        (403, "rejected"),
        (603, "rejected"),
        (404, "invalid_number"),
        (484, "invalid_number"),
        (604, "invalid_number"),
        (500, "unreachable"),
        (302, "unreachable"),
        (0, "unreachable"),
    ],
)
def test_final_status_maps_to_an_ended_reason(code: int, reason: str) -> None:
    assert unanswered_reason(code) == reason


@pytest.mark.parametrize("code", [480, 486, 500, 503])
@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (1, "invalid_number"),
        (28, "invalid_number"),
        (17, "busy"),
        (18, "no_answer"),
        (19, "no_answer"),
        (21, "rejected"),
        (34, "unreachable"),
        (38, "unreachable"),
        (41, "unreachable"),
        (42, "unreachable"),
    ],
)
def test_q850_cause_is_preferred_to_an_ambiguous_status(code: int, cause: int, reason: str) -> None:
    assert unanswered_reason(code, cause) == reason


@pytest.mark.parametrize(
    ("code", "cause", "reason"),
    [(404, 17, "invalid_number"), (603, 17, "rejected"), (480, 16, "no_answer"), (0, 17, "unreachable")],
)
def test_clear_status_is_preferred_to_an_unknown_cause(code: int, cause: int, reason: str) -> None:
    assert unanswered_reason(code, cause) == reason
