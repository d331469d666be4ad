"""DNS lookups of outbound HTTP, in threads of their own."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from aiohttp.abc import AbstractResolver, ResolveResult

THREADS: Final = 64
"""The system's resolver blocks for as long as it likes: in the shared thread pool, a few names whose servers do not
answer would hold up files and models too."""
OWNER_LIMIT: Final = 8
"""Lookups of one owner at once, and at most as many as threads are left. Only the resolver ends a lookup, long after
the request has been given up."""

_owner: ContextVar[str | None] = ContextVar("asker", default=None)


@contextmanager
def lookups_of(owner: str | None) -> Iterator[None]:
    """Lookups in the block count for `owner`; None has no limit of its own."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


class ThreadedResolver(AbstractResolver):
    """Asks the system's resolver. An owner whose name servers do not answer leaves threads for the others: lookups
    beyond its share fail at once, because they would wait behind its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "egress-names")
        self._under_way: list[tuple[str | None, Future[Any]]] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Returns the addresses of `host`. Raises `OSError`, at once if the owner has its share of lookups under
        way."""
        ask = partial(
            socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        self._check_share()
        looked_up = self._threads.submit(ask)
        self._under_way.append((_owner.get(), looked_up))
        found = await asyncio.wrap_future(looked_up)
        return [
            ResolveResult(
                hostname=host,
                host=_scoped(address),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]

    def _check_share(self) -> None:
        asker = _owner.get()
        self._under_way = [each for each in self._under_way if not each[1].done()]
        share = min(OWNER_LIMIT, THREADS - len(self._under_way))
        if asker is not None and [each for each, _ in self._under_way].count(asker) >= share:
            raise OSError(errno.EAGAIN, "too many host names are being looked up")

    async def close(self) -> None:
        """Abandon all lookups."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _scoped(address: Sequence[object]) -> str:
    """The address, with its interface if it is IPv6 link-local."""
    scope = address[3] if len(address) == 4 else 0
    return f"{address[0]}%{scope}" if scope else str(address[0])
