"""The addresses of host names by the system's resolver, in threads of their own: it blocks, for as long as it likes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sipcore.resolver.dns_records import DnsAnswer, LookupFailed

TIMEOUT_S: Final = 5.0
"""A name that takes longer counts as failed; what the resolver says later is used when the name is asked for again."""
TTL_S: Final = 60.0
"""How long an answer holds: the resolver does not say."""
THREADS: Final = 32
"""So many slow names delay nobody."""

LookUp = Callable[[str], Collection[str]]


def resolve(name: str) -> Collection[str]:
    """The addresses of `name` by the system's resolver. Blocks. Raises `OSError`, or `UnicodeError` for a name that
    cannot be one (an empty label or one of over 63 characters)."""
    return {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)}


class SystemResolver:
    """Asks the resolver for many names at once."""

    def __init__(self, look_up: LookUp = resolve, timeout_s: float = TIMEOUT_S) -> None:
        self._look_up = look_up
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(THREADS, "host-names")
        self._asked: dict[str, asyncio.Future[Collection[str]]] = {}

    async def addresses(self, name: str) -> DnsAnswer[str]:
        """The addresses of `name`, of both versions of IP. Raises `LookupFailed`, after `timeout_s` at the latest."""
        asked = self._ask(name)
        await asyncio.wait((asked,), timeout=self._timeout_s)
        if not asked.done():
            raise LookupFailed(f"{name}: no answer within {self._timeout_s:g} s")
        self._asked.pop(name, None)
        try:
            return DnsAnswer(tuple(sorted(asked.result())), TTL_S)
        except (OSError, UnicodeError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise LookupFailed(f"{name}: {why}") from error

    def _ask(self, name: str) -> asyncio.Future[Collection[str]]:
        """A look-up that is still under way is waited for again instead of asking twice."""
        if name not in self._asked:
            loop = asyncio.get_running_loop()
            self._asked[name] = loop.run_in_executor(self._threads, self._look_up, name)
            self._asked[name].add_done_callback(_seen)
        return self._asked[name]

    def close(self) -> None:
        """Wait for no answer any more."""
        for asked in self._asked.values():
            asked.cancel()
        self._asked.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _seen(asked: asyncio.Future[Collection[str]]) -> None:
    """An answer that nobody waits for any more may well be an error."""
    if not asked.cancelled():
        asked.exception()
