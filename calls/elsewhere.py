"""Calls whose other side wants them to go on with somebody else: through the same trunk only, and only where calls may
go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from calls import dialling
from calls.admission import SourceNames
from calls.dialling import Elsewhere
from sipcore import cause
from sipcore.contacts import Contact
from sipcore.leg import HeaderLines, Leg
from sipcore.referral import Referral
from storage.calls import Call, EndedReason
from storage.database import Database, StorageTrouble
from storage.phone_numbers import PhoneNumber, sources_of

log = structlog.get_logger()


def trunk_of(number: PhoneNumber, names_of: SourceNames) -> Callable[[str], bool]:
    """Tells whether an address is the number's trunk."""
    sources = sources_of(number)
    return lambda address: not sources.isdisjoint(names_of(address))


Reach = Callable[[PhoneNumber, str, HeaderLines], Awaitable[Leg]]
"""Calls somebody through a number's trunk: `calls.outbound.WayOut.reach`. Raises `ConnectionError`."""


class Guide:
    """Says for one call whether it goes on to whom the peer names. Every wish of the peer is in the audit log."""

    def __init__(self, call: Call, number: PhoneNumber, database: Database) -> None:
        self._call = call
        self._hosts = frozenset(sources_of(number))
        self._database = database

    async def redirect(self, contact: Contact) -> str | None:
        """Whom to call after a 3xx; None when nobody is to be called."""
        return await self._ask("redirect", contact)

    async def refer(self, contact: Contact) -> str | None:
        """Whom to call for a REFER; None when nobody is to be called."""
        return await self._ask("refer", contact)

    async def _ask(self, by: Elsewhere, contact: Contact) -> str | None:
        """A target at a host that is not the trunk's is refused as it is written: it is no number."""
        ours = contact.host == contact.peer or contact.host in self._hosts
        destination = contact.user if ours else f"{contact.user}@{contact.host}"
        wish = partial(dialling.elsewhere, call=self._call, by=by, destination=destination, peer=contact.peer)
        try:
            return await self._database.write(wish)
        except StorageTrouble as trouble:
            log.error("call.not_followed", call_id=self._call.id, by=by, cause=trouble.cause)
            return None


class Referrals:
    """`Leg.on_refer` of one call: calls whom the peer names and waits until they answer, for `ring_timeout_s` at most,
    or until the call itself is to end."""

    def __init__(
        self,
        guide: Guide,
        number: PhoneNumber,
        reach: Reach,
        ring_timeout_s: float,
        ending: asyncio.Future[EndedReason],
    ) -> None:
        self._guide = guide
        self._number = number
        self._reach = reach
        self._ring_timeout_s = ring_timeout_s
        self._ending = ending

    async def __call__(self, referral: Referral) -> Leg | int:
        user = await self._guide.refer(referral.contact)
        if user is None or self._ending.done():
            return 603
        replaces = (("Replaces", referral.replaces),) if referral.replaces else ()
        try:
            leg = await self._reach(self._number, user, replaces)
        except ConnectionError as error:
            log.warning("call.not_referred", why=str(error))
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
        await leg.hangup(cause.NO_ANSWER)
        return 408
