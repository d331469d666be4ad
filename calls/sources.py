"""Which addresses are trunks: what the stored phone numbers name, with host names resolved."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection
from ipaddress import ip_address
from typing import Final

import structlog

from calls.host_names import HostNames
from storage import phone_numbers
from storage.database import Database, StorageTrouble

RESOLVE_AGAIN_S: Final = 300.0
"""Host names are looked up anew this often."""
FAILED_AGAIN_S: Final = 30.0
"""The same while the last look-up of one has failed."""

log = structlog.get_logger()


class TrunkSources:
    """Keeps the endpoint's list of known addresses as the database has it. `apply` hands the addresses over."""

    def __init__(
        self, database: Database, apply: Callable[[Collection[str]], None], hosts: HostNames | None = None
    ) -> None:
        self._database = database
        self._apply = apply
        self._hosts = hosts or HostNames()
        self._names: dict[str, set[str]] = {}
        self._changed = asyncio.Event()

    def names_of(self, address: str) -> Collection[str]:
        """The names that a source has in the database: its address and the host names that resolve to it."""
        return {address} | self._names.get(address, set())

    async def address_of(self, source: str) -> str | None:
        """An IPv4 address to reach a stored source at: its own, or one that its host name resolved to last. A name that
        is not known yet is looked up now; None when that fails."""
        if _is_address(source):
            return source
        if not self._hosts.known(source):
            await self._hosts.look_up(source)
        return min((each for each in self._hosts.known(source) if "." in each and ":" not in each), default=None)

    def changed(self) -> None:
        """A phone number was created, changed or deleted."""
        self._changed.set()

    async def refresh(self) -> None:
        """Read the sources now; a name that does not resolve keeps the addresses it had. Raises `StorageTrouble`."""
        stored = await self._database.read(phone_numbers.sources)
        hosts = {name for name in stored if not _is_address(name)}
        self._hosts.forget_all_but(hosts)
        self._publish(stored)  # nobody waits for another's slow name
        if hosts:
            await asyncio.gather(*(self._hosts.look_up(name) for name in hosts))
            self._publish(stored)

    def _publish(self, stored: Collection[str]) -> None:
        """Make known what is known now: an address is itself, a host name what it resolved to last."""
        names: dict[str, set[str]] = defaultdict(set)
        for name in stored:
            for address in (name,) if _is_address(name) else self._hosts.known(name):
                names[address].add(name)
        self._names = dict(names)
        self._apply(self._names.keys())

    async def run(self) -> None:
        """Follow changes until cancelled."""
        try:
            while True:
                await self._wait()
                try:
                    await self.refresh()
                except StorageTrouble as trouble:
                    log.error("trunks.not_refreshed", why=str(trouble))
        finally:
            self._hosts.close()

    async def _wait(self) -> None:
        """Until there is a change, or host names have to be looked up again."""
        try:
            async with asyncio.timeout(FAILED_AGAIN_S if self._hosts.failed else RESOLVE_AGAIN_S):
                await self._changed.wait()
        except TimeoutError:
            log.debug("trunks.resolving_again")
        self._changed.clear()


def _is_address(source: str) -> bool:
    """Whether a source, which is stored in normal form, is an IP address."""
    try:
        ip_address(source)
    except ValueError:
        return False
    return True
