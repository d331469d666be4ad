"""Calls whose other side wants them to go on with somebody else: through the same trunk only, and only where calls may
go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

import sqlalchemy as sa
import structlog

from calls.admission.capacity import TransferLegs
from calls.admission.number_routing import SourceAliases
from calls.outbound import transfer_permissions
from calls.outbound.dialer import CurrentNumber
from calls.outbound.transfer_permissions import PeerRerouteRequest, RerouteMethod
from calls.trunks.provisioning import trunk_destinations
from sipcore.dialogs.leg import Leg
from sipcore.messages import reason_header
from sipcore.messages.contact import Contact
from sipcore.messages.headers import HeaderLines
from sipcore.messages.refer import ReferRequest
from storage.accounts.organizations import Organization
from storage.calls.calls import Call, EndedReason
from storage.database.database import Database, StorageTrouble
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber, sources_of

log = structlog.get_logger()


def trunk_address_check(number: PhoneNumber, names_of: SourceAliases) -> Callable[[str], bool]:
    """Tells whether an address is the number's trunk."""
    sources = sources_of(number)
    return lambda address: not sources.isdisjoint(names_of(address))


class TransferDialer(Protocol):
    """Calls somebody through a number's trunk: `calls.outbound.dialer.OutboundDialer.dial_transfer`."""

    def __call__(
        self, number: CurrentNumber, to: str, headers: HeaderLines, ending: asyncio.Future[EndedReason]
    ) -> Awaitable[Leg]:
        """The leg. The number is asked for when it is the call's turn; nobody is called any more once the call is
        `ending`. Raises `ConnectionError`."""


@dataclass(frozen=True)
class TransferSupport:
    """How calls go on with others: who calls them, and what keeps places for them."""

    dial: TransferDialer
    leg_quota: TransferLegs


class ReroutePolicy:
    """Says for one call whether it goes on to whom the peer names. Every wish of the peer is in the audit log. `number`
    is what the call was made from or came to; what counts is how it is stored when the peer asks."""

    def __init__(self, call: Call, number: PhoneNumber, database: Database, names_of: SourceAliases) -> None:
        self._call = call
        self._number = number
        self._database = database
        self._names_of = names_of

    async def allow_redirect(self, contact: Contact) -> str | None:
        """Whom to call after a 3xx; None when nobody is to be called."""
        granted = await self._ask("redirect", contact, "", _no_place)
        return contact.user if granted else None

    async def allow_refer(self, referral: ReferRequest, second_legs: TransferLegs) -> bool:
        """Whether to call whom a REFER names; a place of `leg_quota` is taken then."""
        taken = False

        def take_place(conn: sa.Connection, organization: Organization) -> None:
            nonlocal taken
            second_legs.reserve(conn, organization)
            taken = True

        granted = False
        try:
            granted = await self._ask("refer", referral.contact, referral.refusal, take_place)
        finally:
            if taken and not granted:  # the transaction failed
                second_legs.release(self._call.organization_id)
        return granted

    async def current_number(self, destination: str) -> PhoneNumber:
        """What a REFER that was granted is made from, when its turn has come. Raises `ConnectionError`."""
        try:
            number = await self._database.read(
                lambda conn: transfer_permissions.recheck_transfer(conn, self._call, destination), lane="calls"
            )
        except StorageTrouble as trouble:
            raise ConnectionError(f"the number is not read: {trouble.cause}") from trouble
        if number is None:
            raise ConnectionError("calls from this number may not go there any more")
        return number

    async def _ask(
        self, by: RerouteMethod, contact: Contact, refusal: str, take_place: transfer_permissions.ReserveLeg
    ) -> bool:
        def decide(conn: sa.Connection) -> bool:
            number = phone_numbers.get(conn, self._call.organization_id, self._call.phone_number_id or "")
            wanted = PeerRerouteRequest(
                by, contact.user or contact.raw, contact.peer, refusal or None, self._number.number
            )
            if number is not None:
                wanted = self._within_the_trunk(number, wanted, contact)
            return transfer_permissions.authorize_peer_reroute(conn, self._call, number, wanted, take_place)

        try:
            return await self._database.write(decide)
        except StorageTrouble as trouble:
            log.error("call.not_followed", call_id=self._call.id, by=by, cause=trouble.cause)
            return False

    def _within_the_trunk(
        self, number: PhoneNumber, wanted: PeerRerouteRequest, contact: Contact
    ) -> PeerRerouteRequest:
        """A target at a host that is not the trunk's is refused as it is written: it is no number. A redirect is
        answered where the call has gone to, so the trunk must still be there."""
        if wanted.refusal is None and not contact.user:
            return replace(wanted, refusal="it is no sip: URI with a user")
        own = contact.host in sources_of(number) or (
            contact.host == contact.peer and trunk_address_check(number, self._names_of)(contact.peer)
        )
        if contact.user and not own:
            return replace(wanted, destination=f"{contact.user}@{contact.host}")
        if wanted.by == "redirect" and _way(number) != _way(self._number):
            return replace(wanted, refusal="the trunk is another one now")
        return wanted


def _way(number: PhoneNumber) -> object:
    """Where the calls of a number go."""
    return None if number.source is None else trunk_destinations(number)


def _no_place(_conn: sa.Connection, _organization: Organization) -> None:
    """A redirected call has its place."""


class ReferHandler:
    """`Leg.on_refer` of one call: calls whom the peer names and waits until they answer, for `ring_timeout_s` at most,
    or until the call itself is to end."""

    def __init__(
        self,
        call: Call,
        guide: ReroutePolicy,
        transfers: TransferSupport,
        ring_timeout_s: float,
        ending: asyncio.Future[EndedReason],
    ) -> None:
        self._call = call
        self._guide = guide
        self._transfers = transfers
        self._ring_timeout_s = ring_timeout_s
        self._ending = ending

    async def __call__(self, referral: ReferRequest, accept: Callable[[], Awaitable[None]]) -> Leg | int:
        if not await self._guide.allow_refer(referral, self._transfers.leg_quota):
            return 603
        try:
            self._transfers.leg_quota.on_change()
            await accept()
            return await self._reach(referral)
        finally:
            self._transfers.leg_quota.release(self._call.organization_id)

    async def _reach(self, referral: ReferRequest) -> Leg | int:
        to = referral.contact.user
        replaces = (("Replaces", referral.replaces),) if referral.replaces else ()
        try:
            leg = await self._transfers.dial(lambda: self._guide.current_number(to), to, replaces, self._ending)
        except ConnectionError as error:
            log.warning("call.not_referred", call_id=self._call.id, why=str(error))
            return 503
        return await self._answer_of(leg)

    async def _answer_of(self, leg: Leg) -> Leg | int:
        connecting = asyncio.ensure_future(leg.connected())
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
