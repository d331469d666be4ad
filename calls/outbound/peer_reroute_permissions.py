"""Permissions of peer-initiated rerouting: 3xx redirects and REFER transfers of a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import sqlalchemy as sa

from calls.call_record.billing import is_balance_exhausted
from calls.outbound.dial_audit import log_attempt
from calls.outbound.permissions import RATE_WINDOW, allowed_destination, rate_limit_wait_s
from config.clock import utc_now
from config.errors import TrunklineError
from sipcore.messages.headers import printable
from storage.accounts import organizations
from storage.accounts.organizations import Organization
from storage.calls import outbound_audit
from storage.calls.calls import Call
from storage.calls.outbound_audit import DialRequest, Verdict
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber

RerouteMethod = Literal["redirect", "refer"]
"""The request of a peer for another destination: a 3xx response, or a REFER in a call."""
ReserveLeg = Callable[[sa.Connection, Organization], None]
"""Reserves a place for the second leg, in the transaction that grants it. Raises `LimitExceeded` or `Unavailable` if
there is none."""
_GRANTED: Final[dict[RerouteMethod, Verdict]] = {"redirect": "redirected", "refer": "referred"}
_REFUSED: Final[dict[RerouteMethod, Verdict]] = {"redirect": "redirect_refused", "refer": "refer_refused"}
MAX_REFUSED_ENTRIES: Final = 100
"""Refused requests of a number's peers that are stored in a minute."""


@dataclass(frozen=True)
class PeerRerouteRequest:
    """The destination that the peer of a call, at the address `peer`, asks for. `refusal`: why it is refused before the
    permissions are checked, else None. `from_number`: the call's number as it was when the call began."""

    method: RerouteMethod
    destination: str
    peer: str
    refusal: str | None = None
    from_number: str | None = None


def authorize_peer_reroute(
    conn: sa.Connection, call: Call, number: PhoneNumber | None, request: PeerRerouteRequest, reserve_leg: ReserveLeg
) -> bool:
    """Returns True if the call may be rerouted to the destination; `number` is that of the call as it is stored now,
    None if it was deleted. The trunk, the prefixes and the calls per minute must allow it. A REFER also needs funds and
    a free leg, because its second leg is one more call while the transferor is still there. Either way it is stored in
    the audit log, so the transaction writes; of refused requests `MAX_REFUSED_ENTRIES` for a number and minute, because
    a peer may send any number of them."""
    organization = organizations.get(conn, call.organization_id)
    if number is None or organization is None:
        reason: str | None = "the number was deleted"
    else:
        reason = request.refusal or _refusal_reason(conn, number, organization, request, reserve_leg)
    verdict: Verdict = _GRANTED[request.method] if reason is None else _REFUSED[request.method]
    dial_request = DialRequest(
        organization_id=call.organization_id,
        phone_number_id=call.phone_number_id,
        destination=printable(request.destination),
        client=request.peer,
        number=request.from_number if number is None else number.number,
    )
    if reason is None or not _is_flood(conn, dial_request):
        log_attempt(outbound_audit.record(conn, dial_request, verdict, call_id=call.id, detail=reason))
    return reason is None


def recheck_refer(conn: sa.Connection, call: Call, destination: str) -> PhoneNumber | None:
    """Returns the number of a call as it is stored now if a granted REFER to this destination is still allowed; else
    None."""
    number = phone_numbers.get(conn, call.organization_id, call.phone_number_id or "")
    organization = organizations.get(conn, call.organization_id)
    if number is None or organization is None or not number.sip_allow_refer:
        return None
    return None if allowed_destination(number, organization, destination) is None else number


def _is_flood(conn: sa.Connection, dial_request: DialRequest) -> bool:
    full_since = outbound_audit.nth_newest(
        conn,
        MAX_REFUSED_ENTRIES,
        utc_now() - RATE_WINDOW,
        organization_id=dial_request.organization_id,
        phone_number_id=dial_request.phone_number_id,
        verdicts=tuple(_REFUSED.values()),
    )
    return full_since is not None


def _refusal_reason(
    conn: sa.Connection,
    number: PhoneNumber,
    organization: Organization,
    request: PeerRerouteRequest,
    reserve_leg: ReserveLeg,
) -> str | None:
    """Returns why a request is refused; None after reserving the leg, which comes last."""
    if not (number.sip_allow_redirect if request.method == "redirect" else number.sip_allow_refer):
        return "the trunk does not allow it"
    if allowed_destination(number, organization, request.destination) is None:
        return "calls from this number may not go there"
    if request.method == "refer" and is_balance_exhausted(organization):
        return "the organization has no funds"
    if rate_limit_wait_s(conn, number, organization, utc_now()) is not None:
        return "too many calls per minute"
    if request.method == "refer":
        try:
            reserve_leg(conn, organization)
        except TrunklineError as error:
            return f"no capacity for one more call: {error.message}"
    return None
