"""Host names of requests, looked up in threads of their own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

THREADS: Final = 32
"""The system's resolver blocks, for as long as it likes: in the threads that everybody shares, a few names whose
servers do not answer would hold up files and models too."""


class NamesInThreads(AbstractResolver):
    """Asks the system's resolver."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "egress-names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of `host`. Raises `OSError`."""
        ask = partial(
            socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
        )
        found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
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

    async def close(self) -> None:
        """Wait for no answer any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _scoped(address: Sequence[object]) -> str:
    """A link-local address of IPv6 with the interface that it is on."""
    scope = address[3] if len(address) == 4 else 0
    return f"{address[0]}%{scope}" if scope else str(address[0])
