"""Host name lookups by the system's resolver, which blocks without a time limit, in threads of their own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sipcore.resolver.dns_records import DnsAnswer, LookupFailed

TIMEOUT_S: Final = 5.0
"""A lookup that takes longer has failed; the next lookup of the name uses its late result."""
TTL_S: Final = 60.0
"""The TTL of an answer; the resolver states none."""
THREADS: Final = 32
"""Concurrent lookups: as long as fewer are slow, they delay no other."""

Lookup = Callable[[str], Collection[str]]


def resolve_blocking(name: str) -> Collection[str]:
    """The addresses of `name` by the system's resolver. Blocks. Raises `OSError`, or `UnicodeError` for a name that
    cannot be one (an empty label or one of over 63 characters)."""
    return {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)}


class SystemResolver:
    """Looks up many names at once."""

    def __init__(self, resolve: Lookup = resolve_blocking, timeout_s: float = TIMEOUT_S) -> None:
        self._resolve = resolve
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(THREADS, "host-names")
        self._lookups: dict[str, asyncio.Future[Collection[str]]] = {}

    async def addresses(self, name: str) -> DnsAnswer[str]:
        """The addresses of `name`, of both IP versions. Raises `LookupFailed`, after `timeout_s` at the latest."""
        lookup = self._start(name)
        await asyncio.wait((lookup,), timeout=self._timeout_s)
        if not lookup.done():
            raise LookupFailed(f"{name}: no answer within {self._timeout_s:g} s")
        self._lookups.pop(name, None)
        try:
            return DnsAnswer(tuple(sorted(lookup.result())), TTL_S)
        except (OSError, UnicodeError) as error:
            cause = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise LookupFailed(f"{name}: {cause}") from error

    def _start(self, name: str) -> asyncio.Future[Collection[str]]:
        """A lookup in progress is shared instead of started twice."""
        if name not in self._lookups:
            loop = asyncio.get_running_loop()
            self._lookups[name] = loop.run_in_executor(self._threads, self._resolve, name)
            self._lookups[name].add_done_callback(_retrieve_error)
        return self._lookups[name]

    def close(self) -> None:
        """Cancel all lookups."""
        for lookup in self._lookups.values():
            lookup.cancel()
        self._lookups.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _retrieve_error(lookup: asyncio.Future[Collection[str]]) -> None:
    """Retrieves the error of a lookup that is awaited no longer."""
    if not lookup.cancelled():
        lookup.exception()
