"""What a final SIP status says about a call that was never answered."""

from __future__ import annotations

from typing import Final, Literal

UnansweredReason = Literal["no_answer", "busy", "rejected", "invalid_number", "unreachable"]

_REASONS: Final[dict[int, UnansweredReason]] = {
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


_CAUSES: Final[dict[int, UnansweredReason]] = {
    1: "invalid_number",
    3: "unreachable",
    17: "busy",
    18: "no_answer",
    19: "no_answer",
    21: "rejected",
    27: "unreachable",
    28: "invalid_number",
    34: "unreachable",
    38: "unreachable",
    41: "unreachable",
    42: "unreachable",
}
"""Causes of ITU-T Q.850."""
_VAGUE: Final = frozenset((480, 486, 500, 503))
"""Gateways say these for many things (RFC 3398, 7.2.4.1): a cause that comes with them says more."""


def unanswered_reason(code: int, cause: int | None = None) -> UnansweredReason:
    """The `endedReason` for a final status 300..699 and the Q.850 cause in it; no response at all is 0."""
    if cause in _CAUSES and code in _VAGUE:
        return _CAUSES[cause]
    return _REASONS.get(code, "unreachable")
