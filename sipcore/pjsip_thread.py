"""The one thread that owns pjsua2's objects: it makes them, calls them and lets go of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class PjsipThread:
    """Runs functions one after the other on its thread. The event loop awaits them; PJSIP's threads just post."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sip-owner")

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run it on the owner's thread and wait for its result."""
        return await asyncio.wrap_future(self.post(function, *args, **kwargs))

    def post(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Queue it and go on. Any thread."""
        return self._executor.submit(function, *args, **kwargs)

    async def close(self) -> None:
        """Finish what is queued and end the thread."""
        await asyncio.to_thread(self._executor.shutdown, wait=True)
