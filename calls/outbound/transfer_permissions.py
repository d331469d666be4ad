"""Permissions of peer-initiated rerouting: 3xx redirects and REFER transfers of a live call."""

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
"""How a peer asks for another destination: it answers with 3xx, or sends REFER in a call."""
ReserveLeg = Callable[[sa.Connection, Organization], None]
"""Takes a place for a leg that is no call of its own, in the transaction that grants it. Raises `TooMany` or
`Unavailable` when there is none."""
_GRANTED: Final[dict[RerouteMethod, Verdict]] = {"redirect": "redirected", "refer": "referred"}
_REFUSED: Final[dict[RerouteMethod, Verdict]] = {"redirect": "redirect_refused", "refer": "refer_refused"}
MAX_REFUSED_ENTRIES: Final = 100
"""Refused wishes of a number's peers in a minute that are worth a row each."""


@dataclass(frozen=True)
class PeerRerouteRequest:
    """Whom the peer of a live call, at the address `peer`, wants to have called. `refusal`: why that cannot be,
    whatever the rules are; None when they decide. `from_number`: the call's number as it was when the call began."""

    by: RerouteMethod
    destination: str
    peer: str
    refusal: str | None = None
    from_number: str | None = None


def authorize_peer_reroute(
    conn: sa.Connection, call: Call, number: PhoneNumber | None, request: PeerRerouteRequest, reserve_leg: ReserveLeg
) -> bool:
    """Whether to call whom the peer of a live call wants to have called; `number` is that of the call as it is stored
    now, None when it was deleted. The trunk must allow it, the prefixes and the caps too. A REFER needs money and a
    place as well, as a call of its own does: while the one who asks is there it is one more. Stored in the audit log
    either way, for a transaction that writes; of refused ones `MAX_REFUSED_ENTRIES` for a number and minute, as a peer
    may send as many as it likes."""
    organization = organizations.get(conn, call.organization_id)
    if number is None or organization is None:
        why: str | None = "the number was deleted"
    else:
        why = request.refusal or _reason_against(conn, number, organization, request, reserve_leg)
    verdict: Verdict = _GRANTED[request.by] if why is None else _REFUSED[request.by]
    wish = DialRequest(
        organization_id=call.organization_id,
        phone_number_id=call.phone_number_id,
        destination=printable(request.destination),
        client=request.peer,
        number=request.from_number if number is None else number.number,
    )
    if why is None or not _is_flood(conn, wish):
        log_attempt(outbound_audit.record(conn, wish, verdict, call_id=call.id, detail=why))
    return why is None


def recheck_transfer(conn: sa.Connection, call: Call, destination: str) -> PhoneNumber | None:
    """The number of a call as it is stored now, when a REFER to this destination may still be obeyed: it has waited for
    its turn. None when not."""
    number = phone_numbers.get(conn, call.organization_id, call.phone_number_id or "")
    organization = organizations.get(conn, call.organization_id)
    if number is None or organization is None or not number.sip_allow_refer:
        return None
    return None if allowed_destination(number, organization, destination) is None else number


def _is_flood(conn: sa.Connection, wish: DialRequest) -> bool:
    full_since = outbound_audit.nth_newest(
        conn,
        MAX_REFUSED_ENTRIES,
        utc_now() - MINUTE,
        organization_id=wish.organization_id,
        phone_number_id=wish.phone_number_id,
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
    """The place is taken last: only where nothing is against it."""
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
        except TrunklineError as full:
            return f"no place for one more call: {full.message}"
    return None
