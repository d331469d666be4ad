"""The callers of the soak: each calls, speaks 39 % of the time (ITU-T P.59), hangs up after a while and calls again."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

import numpy as np

from bench.audio.pump_load import RATE, speech_pattern
from bench.worker_process import obey
from config import logging as logs
from media.audio_port import Samples
from sipcore.dialogs.leg import Leg
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings

TOP_UP_S: Final = 2.0
LASTS_S: Final = (20.0, 100.0)
"""The shortest and the longest call."""


class SoakLoad:
    """So many callers."""

    def __init__(self, calls: int) -> None:
        settings = EndpointSettings(
            host="127.0.0.1", port=0, rtp_first_port=44000, rtp_last_port=46000, codecs=("PCMU",), max_calls=calls
        )
        self.endpoint = Endpoint(settings, lambda leg: None)
        self._callers: list[asyncio.Task[None]] = []
        self._talk = np.zeros(0, np.int16)
        self.made = self.failed = 0
        self._random = random.Random(calls)

    async def open(self) -> None:
        """Open the port."""
        self._talk = await speech_pattern()
        await self.endpoint.start()
        self.endpoint.set_sources(["127.0.0.1"])

    def start(self, calls: int, uri: str) -> None:
        """Let them call."""
        self._callers = [asyncio.create_task(self._caller(uri, number / calls)) for number in range(calls)]

    async def stop(self) -> None:
        """Hang up, and call no more."""
        for caller in self._callers:
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)

    async def _caller(self, uri: str, offset: float) -> None:
        await asyncio.sleep(10 * offset)
        while True:
            try:
                await self._call(uri, offset, self._random.uniform(*LASTS_S))
            except (ConnectionError, TimeoutError):
                self.failed += 1
                await asyncio.sleep(1)

    async def _call(self, uri: str, offset: float, lasts_s: float) -> None:
        leg = await self.endpoint.call(uri)
        self.made += 1
        try:
            media = await asyncio.wait_for(leg.wait_connected(), 10)
            await self._speak(leg, media.slot, int(offset * len(self._talk)), lasts_s)
        finally:
            await leg.hangup()
            await leg.ended
            leg.release()

    async def _speak(self, leg: Leg, slot: int, at: int, lasts_s: float) -> None:
        until = asyncio.get_running_loop().time() + lasts_s
        while asyncio.get_running_loop().time() < until:
            queued = self.endpoint.pump.written(slot) - self.endpoint.pump.taken(slot)
            wanted = max(0, int(2 * TOP_UP_S * RATE) - queued)
            piece: Samples = np.take(self._talk, np.arange(at, at + wanted), mode="wrap")
            at = (at + self.endpoint.pump.write(slot, piece)) % len(self._talk)
            await asyncio.wait((leg.ended,), timeout=TOP_UP_S)
            if leg.ended.done():
                raise ConnectionError(f"the server has hung up: {leg.ended.result()}")


async def main() -> None:
    """Take orders."""
    logs.configure("error", "console")
    loads: list[SoakLoad] = []

    async def start(calls: int, port: int, number: str) -> dict[str, Any]:
        if not loads:
            loads.append(SoakLoad(calls))
            await loads[0].open()
        loads[0].start(calls, f"sip:{number}@127.0.0.1:{port}")
        return {}

    async def stop() -> dict[str, Any]:
        await loads[0].stop()
        return {"made": loads[0].made, "failed": loads[0].failed}

    await obey({"start": start, "stop": stop})
    for load in loads:
        await load.stop()
        await load.endpoint.close()


if __name__ == "__main__":
    asyncio.run(main())
