"""Sending DTMF in the audio of a leg."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from media.audio_port import TICK_MS
from media.dtmf.keys import normalize_dtmf
from sipcore.audio.pump import Pump


class DtmfSender:
    """Sends the DTMF digits of one leg, those of one `send` after those of another."""

    def __init__(self, pump: Pump, ended: asyncio.Future[Any], on_sending: Callable[[bool], None]) -> None:
        """`ended`: of the leg. `on_sending` is called when `send` begins, and when it has ended."""
        self._pump: Final = pump
        self._ended: Final = ended
        self._on_sending = on_sending
        self._lock = asyncio.Lock()

    async def send(self, digits: str, slot: Callable[[], int]) -> None:
        """Send DTMF digits, 100 ms each and 100 ms apart, after all speech that is queued; returns when they have been
        sent. `w` and `,` are pauses of 0.5 s. Speech waits meanwhile; cancellation drops the remaining digits. `slot`
        returns that of the leg, and raises `KeyError` or `asyncio.InvalidStateError` without one. Raises `ValueError`
        for an invalid digit, and `ConnectionError` when the leg has no audio (any more)."""
        keys = normalize_dtmf(digits)
        async with self._lock:
            self._on_sending(True)
            try:
                await _send_dtmf(self._pump, slot(), keys, self._ended)
            except (asyncio.InvalidStateError, KeyError) as error:
                raise ConnectionError("the leg has no audio to send DTMF in") from error
            finally:
                self._on_sending(False)


async def _send_dtmf(pump: Pump, slot: int, keys: str, ended: asyncio.Future[Any]) -> None:
    """Send DTMF keys, and wait until they have been sent; cancellation drops the rest. `ended`: of the leg. Raises
    `ConnectionError` if that ends first, and `KeyError` without the slot."""
    rate = pump.rate(slot)
    pump.send_dtmf(slot, keys)
    try:
        while (left := pump.dtmf_samples_left(slot)) > 0:
            await asyncio.wait((ended,), timeout=left / rate + TICK_MS / 1000)
            if ended.done():
                raise ConnectionError("the leg ended before all digits were sent")
    except asyncio.CancelledError:
        with contextlib.suppress(KeyError):
            pump.send_dtmf(slot, "")
        raise
