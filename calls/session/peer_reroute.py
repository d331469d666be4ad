"""Peer-initiated rerouting of a call: 3xx redirects and REFER transfers, within the trunk of the call's number and its
dial permissions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

import sqlalchemy as sa
import structlog

from calls.admission.concurrency_limits import ReferredLegs
from calls.admission.number_routing import SourceAliases
from calls.outbound import peer_reroute_permissions
from calls.outbound.dialer import CurrentNumber
from calls.outbound.peer_reroute_permissions import PeerRerouteRequest, RerouteMethod
from calls.trunks.provisioning import trunk_destinations
from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import Leg
from sipcore.messages import reason_header
from sipcore.messages.contact import Contact
from sipcore.messages.headers import HeaderLines
from sipcore.messages.refer import ReferRequest
from storage.accounts.organizations import Organization
from storage.calls.calls import Call, EndedReason
from storage.database.database import Database
from storage.database.errors import StorageUnavailable
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber, sources_of

log = structlog.get_logger()


def trunk_address_check(number: PhoneNumber, aliases_of: SourceAliases) -> Callable[[str], bool]:
    """Returns a function that returns True if an IP address belongs to the number's trunk."""
    sources = sources_of(number)
    return lambda address: not sources.isdisjoint(aliases_of(address))


class TransferDialer(Protocol):
    """Places the second leg of a transfer: `calls.outbound.dialer.OutboundDialer.dial_transfer`."""

    def __call__(
        self, number: CurrentNumber, to: str, headers: HeaderLines, ending: asyncio.Future[EndedReason]
    ) -> Awaitable[Leg]:
        """Returns the leg. `number` is called after the pacer's wait; no INVITE is sent once the call is `ending`.
        Raises `InviteError`."""


@dataclass(frozen=True)
class ReferSupport:
    """The dialer of second legs, and the legs of this process, which count against its limits."""

    dial: TransferDialer
    legs: ReferredLegs


class ReroutePolicy:
    """Authorizes the reroute targets that the peer of one call names. Every request of the peer comes into the audit
    log. `number` is the call's own; its permissions are read at each request."""

    def __init__(self, call: Call, number: PhoneNumber, database: Database, aliases_of: SourceAliases) -> None:
        self._call = call
        self._number = number
        self._database = database
        self._aliases_of = aliases_of

    async def authorize_redirect(self, contact: Contact) -> str | None:
        """Returns the user to call after a 3xx; None if the redirect is not followed."""
        granted = await self._authorize("redirect", contact, "", _reserve_nothing)
        return contact.user if granted else None

    async def authorize_refer(self, referral: ReferRequest, legs: ReferredLegs) -> bool:
        """Returns True if the target of a REFER may be called; then one of `legs` is reserved."""
        reserved = False

        def reserve(conn: sa.Connection, organization: Organization) -> None:
            nonlocal reserved
            if reserved:  # the transaction runs again, after a rollback
                legs.release(organization.id)
                reserved = False
            legs.reserve(conn, organization)
            reserved = True

        granted = False
        try:
            granted = await self._authorize("refer", referral.contact, referral.refusal, reserve)
        finally:
            if reserved and not granted:  # the transaction failed
                legs.release(self._call.organization_id)
        return granted

    async def current_number(self, destination: str) -> PhoneNumber:
        """Returns the number that a granted REFER is placed from, as it is stored now. Raises `InviteError` if it may
        not be placed any more."""
        try:
            number = await self._database.read(
                lambda conn: peer_reroute_permissions.recheck_refer(conn, self._call, destination), priority="calls"
            )
        except StorageUnavailable as error:
            raise InviteError("number_unavailable", f"the number cannot be read: {error.cause}") from error
        if number is None:
            raise InviteError("not_permitted", "calls from this number may not go there any more")
        return number

    async def _authorize(
        self, method: RerouteMethod, contact: Contact, refusal: str, reserve: peer_reroute_permissions.ReserveLeg
    ) -> bool:
        def decide(conn: sa.Connection) -> bool:
            number = phone_numbers.get(conn, self._call.organization_id, self._call.phone_number_id or "")
            request = PeerRerouteRequest(
                method, contact.user or contact.raw, contact.peer, refusal or None, self._number.number
            )
            if number is not None:
                request = self._limited_to_trunk(number, request, contact)
            return peer_reroute_permissions.authorize_peer_reroute(conn, self._call, number, request, reserve)

        try:
            return await self._database.write(decide)
        except StorageUnavailable as error:
            log.error("call.not_followed", call_id=self._call.id, by=method, cause=error.cause)
            return False

    def _limited_to_trunk(
        self, number: PhoneNumber, request: PeerRerouteRequest, contact: Contact
    ) -> PeerRerouteRequest:
        """Returns the request, refused if its target is not at the trunk: a target at another host is checked with its
        host, which is no number. A redirect must come from the trunk that was called."""
        if request.refusal is None and not contact.user:
            return replace(request, refusal="it is no sip: or sips: URI with a user")
        if request.refusal is None and contact.secure and not _uses_tls(number):
            uri = f"sips:{contact.user}@{contact.host}"
            return replace(request, destination=uri, refusal="the trunk is not encrypted, as sips: requires")
        at_trunk = contact.host in sources_of(number) or (
            contact.host == contact.peer and trunk_address_check(number, self._aliases_of)(contact.peer)
        )
        if contact.user and not at_trunk:
            return replace(request, destination=f"{contact.user}@{contact.host}")
        if request.method == "redirect" and _destinations(number) != _destinations(self._number):
            return replace(request, refusal="the trunk was changed")
        return request


def _destinations(number: PhoneNumber) -> object:
    """Returns the SIP destinations of calls from a number; None without a trunk."""
    return None if number.source is None else trunk_destinations(number)


def _uses_tls(number: PhoneNumber) -> bool:
    """Returns True if calls from a number are sent over TLS: to its outbound proxy, or else to its trunk."""
    if number.source is None:
        return False
    destination, proxy = trunk_destinations(number)
    return (proxy or destination).transport == "tls"


def _reserve_nothing(_conn: sa.Connection, _organization: Organization) -> None:
    """Reserves no leg, because a redirected call counts against the limits already."""


class ReferHandler:
    """`Leg.on_refer` of one call: calls the target of a REFER and waits for its answer, for `ring_timeout_s` at most,
    or until the call is `ending`."""

    def __init__(
        self,
        *,
        call: Call,
        policy: ReroutePolicy,
        transfers: ReferSupport,
        ring_timeout_s: float,
        ending: asyncio.Future[EndedReason],
    ) -> None:
        self._call = call
        self._policy = policy
        self._transfers = transfers
        self._ring_timeout_s = ring_timeout_s
        self._ending = ending

    async def __call__(self, referral: ReferRequest, accept: Callable[[], Awaitable[None]]) -> Leg | int:
        legs = self._transfers.legs
        if not await self._policy.authorize_refer(referral, legs):
            return 603
        try:
            legs.on_change()
            await accept()
            return await self._dial(referral)
        finally:
            legs.release(self._call.organization_id)

    async def _dial(self, referral: ReferRequest) -> Leg | int:
        to = referral.contact.user
        replaces = (("Replaces", referral.replaces),) if referral.replaces else ()
        try:
            leg = await self._transfers.dial(lambda: self._policy.current_number(to), to, replaces, self._ending)
        except InviteError as error:
            log.warning("call.not_referred", call_id=self._call.id, why=error.detail, kind=error.kind)
            return 503
        return await self._wait_answered(leg)

    async def _wait_answered(self, leg: Leg) -> Leg | int:
        """Returns the answered leg, or the final status of the target."""
        connecting = asyncio.ensure_future(leg.wait_connected())
        await asyncio.wait(
            (connecting, self._ending), timeout=self._ring_timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        if connecting.done() and connecting.exception() is None:
            return leg
        leg.ended.add_done_callback(lambda _: leg.release())
        if connecting.done():
            code = leg.ended.result().code
            return code if code >= 300 else 503
        connecting.cancel()
        await leg.hangup(reason_header.NO_ANSWER)
        return 408
