"""Sending DTMF in the audio of a leg."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from media.audio_port import TICK_MS
from sipcore.audio.pump import Pump


async def send_dtmf(pump: Pump, slot: int, keys: str, ended: asyncio.Future[Any]) -> None:
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
