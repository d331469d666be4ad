"""The `endedReason` of calls: maps the SIP status to the stored reason, and that to the Q.850 cause."""

from __future__ import annotations

from typing import Any, Final

from sipcore.dialogs.invite_error import InviteErrorKind
from sipcore.dialogs.leg import LegEnd
from sipcore.messages import reason_header
from sipcore.messages.status_reason import unanswered_reason
from storage.calls.calls import EndedReason, EndStatus

COMPLETED_ELSEWHERE: Final = "Call completed elsewhere"
_CAUSES: Final[dict[EndedReason, int]] = {
    "no_answer": reason_header.NO_ANSWER,
    "media_timeout": reason_header.TEMPORARY_FAILURE,
    "error": reason_header.TEMPORARY_FAILURE,
    "server_shutdown": reason_header.TEMPORARY_FAILURE,
}
_INVITE_ERRORS: Final[dict[InviteErrorKind, EndedReason]] = {
    "unresolved": "unreachable",
    "unreachable": "unreachable",
    "no_response": "unreachable",
    "no_local_port": "unreachable",
    "no_local_address": "unreachable",
    "trunk_changed": "unreachable",
    "trunk_unusable": "unreachable",
    "number_unavailable": "unreachable",
    "not_permitted": "unreachable",
    "call_ended": "unreachable",
    "rejected_locally": "unreachable",
}
"""The API has one reason for all of them; the log has the kind."""


def ended_reason_of_invite_error(kind: InviteErrorKind) -> EndedReason:
    """Returns the `endedReason` of an outbound call whose INVITE could not be sent."""
    return _INVITE_ERRORS[kind]


def ended_reason_of(end: LegEnd, *, inbound: bool, answered: bool) -> EndedReason:
    """Returns the `endedReason` of a call that the remote side ended. A BYE, or the caller's CANCEL (487), is
    `customer_ended`; a call that was answered elsewhere is `no_answer`; anything else is `unreachable`."""
    if not answered and not inbound:
        return unanswered_reason(end.code, end.cause.number if end.cause else None)
    if not answered and end.completed_elsewhere:
        return "no_answer"
    return "customer_ended" if end.code < 300 or (end.code == 487 and not answered) else "unreachable"


def end_status_of(reason: EndedReason, *, answered: bool) -> EndStatus:
    """Returns the final status of a call."""
    if answered:
        return "completed"
    return "no_answer" if reason in ("no_answer", "customer_ended", "agent_ended", "api_hangup") else "failed"


def q850_cause_of(reason: EndedReason | None) -> int:
    """Returns the Q.850 cause of the BYE or rejection that ends a call for this reason."""
    return reason_header.NORMAL_CLEARING if reason is None else _CAUSES.get(reason, reason_header.NORMAL_CLEARING)


def sip_end_of(end: LegEnd) -> dict[str, Any]:
    """Returns the SIP end of a leg as it is stored and shown. A timeout has no status and no originator. Only a
    rejection has a phrase."""
    return {
        "statusCode": end.code or None,
        "reasonPhrase": COMPLETED_ELSEWHERE if end.completed_elsewhere else end.reason if end.code >= 300 else None,
        "q850Cause": end.cause.number if end.cause else None,
        "q850Text": (end.cause.text or None) if end.cause else None,
        "byPeer": end.by_peer and end.code != 0,
    }
