"""The callers of the pump benchmark (a worker process): each sends speech, active for 39 % of the time (ITU-T P.59)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.encryption import UNENCRYPTED, encryption_settings
from bench.worker_process import serve_commands
from config import logging as logs
from media.audio_port import Samples
from models.protocols import VoiceSettings
from models.tts.flite.text_to_speech import FliteTextToSpeech
from sipcore.dialogs.leg import Leg
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings

RATE = 8000
ACTIVITY = 0.39
TOP_UP_S = 5
SENTENCES = (
    "Hello, I would like to make an appointment for next week.",
    "Thursday would be fine, preferably in the morning.",
    "No, nine is too early, could we say half past ten?",
    "Yes, that is perfect, thank you very much.",
)


async def speech_pattern() -> Samples:
    """One side of a conversation: sentences with pauses, speech for `ACTIVITY` of the time. `int16[n]` at `RATE`."""
    flite = FliteTextToSpeech()
    settings = VoiceSettings(voice=flite.voices()[0], speed=1.0, stability=1.0, rate=RATE)
    parts = []
    for sentence in SENTENCES:
        samples = (await flite.synthesize(sentence, settings)).samples
        parts += [samples, np.zeros(int(len(samples) * (1 - ACTIVITY) / ACTIVITY), np.int16)]
    flite.close()
    return np.concatenate(parts)


class PumpLoad:
    """Places calls and keeps their audio queues filled with speech."""

    def __init__(self, calls: int, encryption: Mapping[str, Any]) -> None:
        self.endpoint = Endpoint(
            EndpointSettings(
                host="127.0.0.1",
                port=0,
                rtp_first_port=44000,
                rtp_last_port=46000,
                codecs=("PCMU",),
                max_calls=calls,
                **encryption_settings(encryption),
            ),
            lambda leg: None,
        )
        self._transport = encryption["transport"]
        self._legs: list[tuple[Leg, int]] = []

    async def start(self, calls: int, port: int, number: str) -> dict[str, Any]:
        """Places the calls one after the other and begins to send speech. Returns their number and the slowest setup,
        ms."""
        await self.endpoint.start()
        self.endpoint.set_sources(["127.0.0.1"])
        slowest_s = 0.0
        for _ in range(calls):
            began_s = time.perf_counter()
            leg = await self.endpoint.call(f"sip:{number}@127.0.0.1:{port};transport={self._transport}")
            media = await asyncio.wait_for(leg.wait_connected(), 10)
            self._legs.append((leg, media.slot))
            slowest_s = max(slowest_s, time.perf_counter() - began_s)
        self._feeding = asyncio.create_task(self._feed(await speech_pattern()))
        return {"calls": len(self._legs), "slowest_ms": slowest_s * 1000}

    async def _feed(self, speech: Samples) -> None:
        """Each call begins at another offset of the speech; a queue is filled up to twice the interval between two
        top-ups."""
        ahead = 2 * TOP_UP_S * RATE
        at = {slot: number * len(speech) // len(self._legs) for number, (_, slot) in enumerate(self._legs)}
        while True:
            for _, slot in self._legs:
                queued = self.endpoint.pump.written_position(slot) - self.endpoint.pump.sent_position(slot)
                samples = np.take(speech, np.arange(at[slot], at[slot] + max(0, ahead - queued)), mode="wrap")
                at[slot] = (at[slot] + self.endpoint.pump.write(slot, samples)) % len(speech)
            await asyncio.sleep(TOP_UP_S)

    async def hang_up(self) -> dict[str, Any]:
        """Hangs up every call."""
        self._feeding.cancel()
        await asyncio.gather(*(leg.hangup() for leg, _ in self._legs))
        return {}

    async def close(self) -> None:
        """Closes the endpoint, which ends the calls."""
        self._feeding.cancel()
        await self.endpoint.close()


async def main() -> None:
    """Serves commands from stdin."""
    logs.configure("error", "console")
    loads: list[PumpLoad] = []

    async def start(
        calls: int, port: int, number: str = "bench", encryption: Mapping[str, Any] = UNENCRYPTED
    ) -> dict[str, Any]:
        loads.append(PumpLoad(calls, encryption))
        return await loads[0].start(calls, port, number)

    async def hang_up() -> dict[str, Any]:
        return await loads[0].hang_up()

    await serve_commands({"start": start, "hang_up": hang_up})
    for load in loads:
        await load.close()


if __name__ == "__main__":
    asyncio.run(main())
