"""The `endedReason` of an unanswered outbound call, by its final SIP status and Q.850 cause."""

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
"""By cause of ITU-T Q.850."""
_AMBIGUOUS: Final = frozenset((480, 486, 500, 503))
"""Gateways send these for many causes (RFC 3398, 7.2.4.1): a Q.850 cause beside them is more precise."""


def unanswered_reason(code: int, cause: int | None = None) -> UnansweredReason:
    """The `endedReason` for a final status 300..699, or 0 for no response, and its Q.850 cause."""
    if cause in _CAUSES and code in _AMBIGUOUS:
        return _CAUSES[cause]
    return _REASONS.get(code, "unreachable")
