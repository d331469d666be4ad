"""The PJSIP thread: the one Python thread that creates, calls and deletes pjsua2's objects. PJSIP's own threads only
run their callbacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class PjsipThread:
    """Runs functions one after the other. The event loop awaits them with `run`; any thread queues them with `post`."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pjsip")

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function on the PJSIP thread; returns its result."""
        return await asyncio.wrap_future(self.post(function, *args, **kwargs))

    def post(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Queue a function without waiting for it. Any thread."""
        return self._executor.submit(function, *args, **kwargs)

    async def close(self) -> None:
        """Finish what is queued and end the thread."""
        await asyncio.to_thread(self._executor.shutdown, wait=True)
