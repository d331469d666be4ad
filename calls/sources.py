"""Which addresses are trunks: what the stored phone numbers name, with host names resolved."""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Callable, Collection
from ipaddress import ip_address
from typing import Final

import structlog

from storage import phone_numbers
from storage.database import Database, StorageTrouble

RESOLVE_AGAIN_S: Final = 300.0
"""Host names are looked up anew this often."""

log = structlog.get_logger()


class TrunkSources:
    """Keeps the endpoint's list of known addresses as the database has it. `apply` hands the addresses over."""

    def __init__(self, database: Database, apply: Callable[[Collection[str]], None]) -> None:
        self._database = database
        self._apply = apply
        self._names: dict[str, set[str]] = {}
        self._changed = asyncio.Event()

    def names_of(self, address: str) -> Collection[str]:
        """The names that a source has in the database: its address and the host names that resolve to it."""
        return {address} | self._names.get(address, set())

    def changed(self) -> None:
        """A phone number was created, changed or deleted."""
        self._changed.set()

    async def refresh(self) -> None:
        """Read the sources now. Raises `StorageTrouble`."""
        async with self._database.read() as conn:
            stored = await phone_numbers.sources(conn)
        resolved = await asyncio.gather(*(_addresses_of(name) for name in stored))
        names: dict[str, set[str]] = defaultdict(set)
        for name, addresses in zip(stored, resolved, strict=True):
            for address in addresses:
                names[address].add(name)
        self._names = dict(names)
        self._apply(self._names.keys())

    async def run(self) -> None:
        """Follow changes until cancelled."""
        while True:
            try:
                async with asyncio.timeout(RESOLVE_AGAIN_S):
                    await self._changed.wait()
            except TimeoutError:
                log.debug("trunks.resolving_again")
            self._changed.clear()
            try:
                await self.refresh()
            except StorageTrouble as trouble:
                log.error("trunks.not_refreshed", why=str(trouble))


async def _addresses_of(name: str) -> Collection[str]:
    """An address is itself; a host name is asked for. One that does not resolve is logged and known by nobody."""
    try:
        return (str(ip_address(name)),)
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_DGRAM)
    except OSError as error:
        log.warning("trunks.host_unknown", host=name, error=error.strerror)
        return ()
    return {str(entry[4][0]) for entry in found}
