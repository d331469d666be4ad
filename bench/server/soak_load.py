"""The callers of the soak test (a worker process): each calls, speaks 39 % of the time (ITU-T P.59), hangs up and calls
again."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

import numpy as np

from bench.audio.pump_load import RATE, speech_pattern
from bench.worker_process import serve_commands
from config import logging as logs
from media.audio_port import Samples
from sipcore.dialogs.leg import Leg
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings

TOP_UP_S: Final = 2.0
CALL_S: Final = (20.0, 100.0)
"""Shortest and longest duration of a call."""


class SoakLoad:
    """Callers that place one call after the other."""

    def __init__(self, calls: int) -> None:
        settings = EndpointSettings(
            host="127.0.0.1", port=0, rtp_first_port=44000, rtp_last_port=46000, codecs=("PCMU",), max_calls=calls
        )
        self.endpoint = Endpoint(settings, lambda leg: None)
        self._callers: list[asyncio.Task[None]] = []
        self._speech = np.zeros(0, np.int16)
        self.placed = self.failed = 0
        self._random = random.Random(calls)

    async def open(self) -> None:
        """Starts the endpoint."""
        self._speech = await speech_pattern()
        await self.endpoint.start()
        self.endpoint.set_sources(["127.0.0.1"])

    def start(self, calls: int, uri: str) -> None:
        """Starts `calls` callers."""
        self._callers = [asyncio.create_task(self._caller(uri, number / calls)) for number in range(calls)]

    async def stop(self) -> None:
        """Hangs up all calls and stops the callers."""
        for caller in self._callers:
            caller.cancel()
        await asyncio.gather(*self._callers, return_exceptions=True)

    async def _caller(self, uri: str, offset: float) -> None:
        await asyncio.sleep(10 * offset)
        while True:
            try:
                await self._call(uri, offset, self._random.uniform(*CALL_S))
            except (ConnectionError, TimeoutError):
                self.failed += 1
                await asyncio.sleep(1)

    async def _call(self, uri: str, offset: float, duration_s: float) -> None:
        leg = await self.endpoint.call(uri)
        self.placed += 1
        try:
            media = await asyncio.wait_for(leg.wait_connected(), 10)
            await self._speak(leg, media.slot, int(offset * len(self._speech)), duration_s)
        finally:
            await leg.hangup()
            await leg.ended
            leg.release()

    async def _speak(self, leg: Leg, slot: int, at: int, duration_s: float) -> None:
        until = asyncio.get_running_loop().time() + duration_s
        while asyncio.get_running_loop().time() < until:
            queued = self.endpoint.pump.written_position(slot) - self.endpoint.pump.sent_position(slot)
            missing = max(0, int(2 * TOP_UP_S * RATE) - queued)
            samples: Samples = np.take(self._speech, np.arange(at, at + missing), mode="wrap")
            at = (at + self.endpoint.pump.write(slot, samples)) % len(self._speech)
            await asyncio.wait((leg.ended,), timeout=TOP_UP_S)
            if leg.ended.done():
                raise ConnectionError(f"the server has hung up: {leg.ended.result()}")


async def main() -> None:
    """Serves commands from stdin."""
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
        return {"placed": loads[0].placed, "failed": loads[0].failed}

    await serve_commands({"start": start, "stop": stop})
    for load in loads:
        await load.stop()
        await load.endpoint.close()


if __name__ == "__main__":
    asyncio.run(main())
