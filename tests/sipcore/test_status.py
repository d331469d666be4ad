"""SIP's final statuses in the words of the API."""

from __future__ import annotations

import pytest

from sipcore.status import reason_for


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
def test_a_final_status_says_why_nobody_answered(code: int, reason: str) -> None:
    assert reason_for(code) == reason
