"""The addresses of host names, looked up in threads of their own: the system's resolver blocks, for as long as it
likes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

LOOK_UP_S: Final = 5.0
"""A name that takes longer counts as failed; what the resolver says later is used when the name is asked for again."""
THREADS: Final = 32
"""So many slow names delay nobody."""

log = structlog.get_logger()
LookUp = Callable[[str], Collection[str]]


def resolve(name: str) -> Collection[str]:
    """The addresses of `name` by the system's resolver. Blocks. Raises `OSError`, or `UnicodeError` for a name that
    cannot be one (an empty label or one of over 63 characters)."""
    return {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)}


class HostNames:
    """Remembers what each name was last: a look-up that fails takes nothing away."""

    def __init__(self, look_up: LookUp = resolve, timeout_s: float = LOOK_UP_S) -> None:
        self._look_up = look_up
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(THREADS, "host-names")
        self._asked: dict[str, asyncio.Future[Collection[str]]] = {}
        self._known: dict[str, Collection[str]] = {}
        self.failed: set[str] = set()
        """Names whose last look-up failed."""

    def known(self, name: str) -> Collection[str]:
        """What `name` resolved to last; nothing at first."""
        return self._known.get(name, ())

    async def look_up(self, name: str) -> None:
        """Ask for `name` now. When that fails, which is logged, what is known stays."""
        asked = self._ask(name)
        await asyncio.wait((asked,), timeout=self._timeout_s)
        try:
            if not asked.done():
                raise TimeoutError(None, f"no answer within {self._timeout_s:g} s")
            self._asked.pop(name, None)
            self._known[name] = asked.result()
            self.failed.discard(name)
        except (OSError, UnicodeError) as error:
            self.failed.add(name)
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            log.warning("trunks.host_unknown", host=name, error=why, kept=sorted(self.known(name)))

    def _ask(self, name: str) -> asyncio.Future[Collection[str]]:
        """A look-up that is still under way is waited for again instead of asking twice."""
        if name not in self._asked:
            loop = asyncio.get_running_loop()
            self._asked[name] = loop.run_in_executor(self._threads, self._look_up, name)
            self._asked[name].add_done_callback(_seen)
        return self._asked[name]

    def forget_all_but(self, names: Collection[str]) -> None:
        """Only these are still wanted."""
        self._known = {name: found for name, found in self._known.items() if name in names}
        self.failed.intersection_update(names)
        for name in self._asked.keys() - set(names):
            self._asked.pop(name).cancel()

    def close(self) -> None:
        """Wait for no answer any more."""
        self.forget_all_but(())
        self._threads.shutdown(wait=False, cancel_futures=True)


def _seen(asked: asyncio.Future[Collection[str]]) -> None:
    """An answer that nobody waits for any more may well be an error."""
    if not asked.cancelled():
        asked.exception()
