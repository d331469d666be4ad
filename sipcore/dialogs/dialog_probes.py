"""OPTIONS in dialogs: asks peers whether they still have a call. Event loop only, except for methods that name another
thread."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from sipcore import _native


class DialogProbes:
    """The OPTIONS requests whose responses are awaited, by token."""

    def __init__(self, post: Callable[..., None]) -> None:
        """`post` runs a function on the event loop, from any thread."""
        self._post = post
        self._tokens = itertools.count(1)
        self._awaited: dict[int, asyncio.Future[int]] = {}

    def install_on_pjsip_thread(self) -> None:
        """On the PJSIP thread, when PJSUA is initialized."""
        _native.dialog_probe_install(lambda token, status: self._post(self._on_response, token, status))

    def add(self) -> tuple[int, asyncio.Future[int]]:
        """The token of a request that is to be sent, and the future status of its response; cancel it to ignore it."""
        token = next(self._tokens)
        status = self._awaited[token] = asyncio.get_running_loop().create_future()
        status.add_done_callback(lambda _: self._awaited.pop(token))
        return token, status

    def _on_response(self, token: int, status: int) -> None:
        future = self._awaited.get(token)
        if future is not None and not future.done():
            future.set_result(status)
