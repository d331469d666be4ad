"""What a final SIP status says about a call that was never answered."""

from __future__ import annotations

from typing import Final, Literal

Reason = Literal["no_answer", "busy", "rejected", "invalid_number", "unreachable"]

_REASONS: Final[dict[int, Reason]] = {
    408: "no_answer",
    480: "no_answer",
    487: "no_answer",
    486: "busy",
    600: "busy",
    403: "rejected",
    603: "rejected",
    404: "invalid_number",
    484: "invalid_number",
    604: "invalid_number",
}


def reason_for(code: int) -> Reason:
    """The `endedReason` for a final status 300..699; no response at all is 0."""
    return _REASONS.get(code, "unreachable")
