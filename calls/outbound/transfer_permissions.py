"""Permissions of peer-initiated rerouting: 3xx redirects and REFER transfers of a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import sqlalchemy as sa

from calls.call_record.billing import has_no_funds
from calls.outbound.audit_log import log_attempt
from calls.outbound.permissions import MINUTE, allowed_destination, rate_limit_wait_s
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
"""How a peer asks for another destination: by a 3xx response, or by REFER in a call."""
ReserveLeg = Callable[[sa.Connection, Organization], None]
"""Reserves a place for the second leg, in the transaction that grants it. Raises `LimitExceeded` or `Unavailable` if
there is none."""
_GRANTED: Final[dict[RerouteMethod, Verdict]] = {"redirect": "redirected", "refer": "referred"}
_REFUSED: Final[dict[RerouteMethod, Verdict]] = {"redirect": "redirect_refused", "refer": "refer_refused"}
MAX_REFUSED_ENTRIES: Final = 100
"""Refused requests of a number's peers that are stored in a minute."""


@dataclass(frozen=True)
class PeerRerouteRequest:
    """The destination that the peer of a call, at the address `peer`, asks for. `refusal`: why it is refused whatever
    the permissions are; None if they decide. `from_number`: the call's number as it was when the call began."""

    by: RerouteMethod
    destination: str
    peer: str
    refusal: str | None = None
    from_number: str | None = None


def authorize_peer_reroute(
    conn: sa.Connection, call: Call, number: PhoneNumber | None, request: PeerRerouteRequest, reserve_leg: ReserveLeg
) -> bool:
    """Returns True if the call may go on to the destination; `number` is that of the call as it is stored now, None if
    it was deleted. The trunk, the prefixes and the calls per minute must allow it. A REFER needs funds and a place as
    well, because its second leg is one more call while the transferor is still there. Either way it is stored in the
    audit log, so the transaction writes; of refused requests `MAX_REFUSED_ENTRIES` for a number and minute, because a
    peer may send any number of them."""
    organization = organizations.get(conn, call.organization_id)
    if number is None or organization is None:
        reason: str | None = "the number was deleted"
    else:
        reason = request.refusal or _reason_against(conn, number, organization, request, reserve_leg)
    verdict: Verdict = _GRANTED[request.by] if reason is None else _REFUSED[request.by]
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


def recheck_transfer(conn: sa.Connection, call: Call, destination: str) -> PhoneNumber | None:
    """Returns the number of a call as it is stored now if a REFER to this destination, which has waited for its turn,
    is still allowed; else None."""
    number = phone_numbers.get(conn, call.organization_id, call.phone_number_id or "")
    organization = organizations.get(conn, call.organization_id)
    if number is None or organization is None or not number.sip_allow_refer:
        return None
    return None if allowed_destination(number, organization, destination) is None else number


def _is_flood(conn: sa.Connection, dial_request: DialRequest) -> bool:
    full_since = outbound_audit.nth_newest(
        conn,
        MAX_REFUSED_ENTRIES,
        utc_now() - MINUTE,
        organization_id=dial_request.organization_id,
        phone_number_id=dial_request.phone_number_id,
        verdicts=tuple(_REFUSED.values()),
    )
    return full_since is not None


def _reason_against(
    conn: sa.Connection,
    number: PhoneNumber,
    organization: Organization,
    request: PeerRerouteRequest,
    reserve_leg: ReserveLeg,
) -> str | None:
    """The place is reserved last: only if nothing else is against it."""
    if not (number.sip_allow_redirect if request.by == "redirect" else number.sip_allow_refer):
        return "the trunk does not allow it"
    if allowed_destination(number, organization, request.destination) is None:
        return "calls from this number may not go there"
    if request.by == "refer" and has_no_funds(organization):
        return "the organization has no funds"
    if rate_limit_wait_s(conn, number, organization, utc_now()) is not None:
        return "too many calls per minute"
    if request.by == "refer":
        try:
            reserve_leg(conn, organization)
        except TrunklineError as error:
            return f"no place for one more call: {error.message}"
    return None
