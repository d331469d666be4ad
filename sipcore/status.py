"""What a final SIP status says about a call that was never answered."""

from __future__ import annotations

from typing import Final

_REASONS: Final = {
    **dict.fromkeys((408, 480, 487), "no_answer"),
    **dict.fromkeys((486, 600), "busy"),
    **dict.fromkeys((403, 603), "rejected"),
    **dict.fromkeys((404, 484, 604), "invalid_number"),
}


def reason_for(code: int) -> str:
    """The `endedReason` for a final status 300..699; no response at all is 0."""
    return _REASONS.get(code, "unreachable")
