"""How a transfer ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from sipcore.messages.status_reason import unanswered_reason
from storage.calls.calls import EndedReason
from storage.calls.transfers import TransferStatus

_DECLINED: Final = frozenset((403, 603))


@dataclass(frozen=True)
class TransferResult:
    """The end of a transfer. `sip_status`: the target's final status, None without one. `detail`: more about a failure,
    for the log."""

    status: TransferStatus
    sip_status: int | None = None
    detail: str = ""
    decline_reason: str | None = None
    """The words of the person who declined."""
    cause: Literal["no_audio", "fax", "unavailable"] | None = None
    """A cause of the attempt's end that is more precise than the status. `no_audio`: the target's 200 had no audio that
    both sides can use; `fax`: a fax answered; `unavailable`: an announcement or a tone, after which nobody comes."""

    @property
    def attempt_outcome(self) -> str:
        """The `outcome` of the attempt."""
        return self.cause or self.status


_CHILD_ENDS: Final[dict[EndedReason, TransferResult]] = {
    "customer_ended": TransferResult("declined", detail="the target hung up"),
    "customer_silent": TransferResult("no_answer", detail="no decision"),
    "agent_ended": TransferResult("no_answer", detail="no decision"),
    "max_duration": TransferResult("no_answer", detail="no decision"),
    "api_hangup": TransferResult("cancelled", detail="a client ended the target's call"),
}


def result_of_child_end(reason: EndedReason | None, what: str) -> TransferResult:
    """Returns the result of a child call that was answered and has ended for this reason before the connection.
    `what` begins the detail of a failure."""
    failed = TransferResult("failed", detail=f"{what}: {reason}")
    return failed if reason is None else _CHILD_ENDS.get(reason, failed)


def result_of_status(code: int, detail: str = "") -> TransferResult:
    """Returns the result of a target's final status 300..699 (RFC 3261, 21); 0: it sent none."""
    if code in _DECLINED:
        return TransferResult("declined", code, detail)
    match unanswered_reason(code):
        case "busy":
            return TransferResult("busy", code, detail)
        case "no_answer":
            return TransferResult("no_answer", code, detail)
        case _:
            return TransferResult("failed", code or None, detail)
