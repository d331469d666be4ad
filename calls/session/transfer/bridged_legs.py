"""Two connected legs: their audio is bridged in the audio pump, and DTMF passes from one to the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from media.dtmf.keys import DtmfMethod
from sipcore.audio.pump import Pump
from sipcore.dialogs.leg import Leg, Media

log = structlog.get_logger()


class DtmfRelay:
    """Sends the DTMF digits of one leg on the other one, in order, by the method that its peer has negotiated. Tones in
    the audio (in-band) pass with it."""

    def __init__(self, source: Leg, destination: Leg) -> None:
        self._source = source
        self._destination = destination
        self._digits: asyncio.Queue[str] = asyncio.Queue()

    def on_digit(self, digit: str, method: DtmfMethod) -> None:
        """A digit of the source."""
        if method != "inband":
            self._digits.put_nowait(digit)

    async def run(self) -> None:
        """Relay until cancelled or until the destination has no audio any more."""
        self._source.on_digit = self.on_digit
        try:
            with contextlib.suppress(ConnectionError):
                while True:
                    await self._destination.send_digits(await self._digits.get())
        finally:
            self._source.on_digit = None


@asynccontextmanager
async def bridged(pump: Pump, one: Leg, other: Leg) -> AsyncIterator[None]:
    """Bridge two legs with audio for the duration of the block. The agent's background sounds end before."""
    slot, other_slot = _media(one).slot, _media(other).slot
    for each in (slot, other_slot):
        pump.set_background(each, None, 0.0, 0.0)
    pump.bridge(slot, other_slot)
    relays = [asyncio.create_task(relay.run()) for relay in (DtmfRelay(one, other), DtmfRelay(other, one))]
    try:
        yield
    finally:
        for relay in relays:
            relay.cancel()
        await asyncio.wait(relays)
        for each in (slot, other_slot):
            with contextlib.suppress(KeyError):  # released already
                pump.unbridge(each)


def _media(leg: Leg) -> Media:
    if leg.media is None:
        raise ConnectionError("the leg has no audio")
    return leg.media
