"""Calls whose other side wants them to go on with somebody else: through the same trunk only, and only where calls may
go."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from calls import dialling
from calls.admission import SourceNames
from calls.dialling import Elsewhere
from sipcore.contacts import Contact
from storage.calls import Call
from storage.database import Database, StorageTrouble
from storage.phone_numbers import PhoneNumber, sources_of

log = structlog.get_logger()


def trunk_of(number: PhoneNumber, names_of: SourceNames) -> Callable[[str], bool]:
    """Tells whether an address is the number's trunk."""
    sources = sources_of(number)
    return lambda address: not sources.isdisjoint(names_of(address))


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
