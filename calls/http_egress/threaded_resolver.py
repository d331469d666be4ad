"""DNS lookups of outbound HTTP, in a thread pool of their own."""

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
"""A pool of its own, because the system's resolver may block for long: in the shared pool, a few names whose servers do
not respond would delay files and models, too."""
OWNER_LIMIT: Final = 8
"""Concurrent lookups of one owner, and at most as many as there are free threads. Only the resolver ends a lookup, long
after the request was abandoned."""

_owner: ContextVar[str | None] = ContextVar("owner", default=None)


@contextmanager
def lookups_for(owner: str | None) -> Iterator[None]:
    """Counts the lookups in the block for `owner`; None has no limit of its own."""
    token = _owner.set(owner)
    try:
        yield
    finally:
        _owner.reset(token)


class ThreadedResolver(AbstractResolver):
    """Looks names up by the system's resolver. An owner whose name servers do not respond leaves threads for the
    others: lookups beyond its share fail at once, because they would wait behind its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "http-egress-dns")
        self._under_way: list[tuple[str | None, Future[Any]]] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Returns the addresses of `host`. Raises `OSError`, at once if the owner has used up its share."""
        look_up = partial(
            socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        self._check_share()
        lookup = self._threads.submit(look_up)
        self._under_way.append((_owner.get(), lookup))
        addresses = await asyncio.wrap_future(lookup)
        return [
            ResolveResult(
                hostname=host,
                host=_scoped(address),
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in addresses
        ]

    def _check_share(self) -> None:
        owner = _owner.get()
        self._under_way = [each for each in self._under_way if not each[1].done()]
        share = min(OWNER_LIMIT, THREADS - len(self._under_way))
        if owner is not None and [each for each, _ in self._under_way].count(owner) >= share:
            raise OSError(errno.EAGAIN, "too many host names are being looked up")

    async def close(self) -> None:
        """Abandon all lookups."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _scoped(address: Sequence[object]) -> str:
    """Returns the address, with its zone if it is IPv6 link-local."""
    scope = address[3] if len(address) == 4 else 0
    return f"{address[0]}%{scope}" if scope else str(address[0])
