"""Work that is of use only to a client that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aiohttp import web


async def while_connected(request: web.Request, work: Coroutine[Any, Any, web.StreamResponse]) -> web.StreamResponse:
    """Returns the result of `work`, which is cancelled when the client disconnects: then raises `ConnectionError`."""
    task, disconnected = asyncio.create_task(work), getattr(request.protocol, "ended", None)
    ended: list[asyncio.Future[Any]] = [] if disconnected is None else [disconnected]
    try:
        await asyncio.wait([task, *ended], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ConnectionResetError("the client has disconnected")
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
