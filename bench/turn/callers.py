"""The callers of the turn's bench: each speaks 39 % of the time (ITU-T P.59), in lines, and leaves the agent room to
answer, or speaks over it."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bench.worker_process import obey
from config import logging as logs
from media.audio_port import INFO_COLUMNS, Samples, row_of
from models.tts.flite.text_to_speech import FliteTextToSpeech
from sipcore.dialogs.leg import Leg
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings
from trunkline.demo.scripted_caller import MAX_TICK_SAMPLES, MIN_AUDIBLE_PEAK, synthesize_line

RATE: Final = 8000
ACTIVITY: Final = 0.39
LINES: Final = (
    "please write down that I will come tomorrow",
    "what are your opening hours",
    "where is your office",
    "I would like to make an appointment",
    "my number is forty two",
    "can you call me back",
    "thank you very much that was all",
    "could you please repeat the last part",
    "I need two tickets for the concert tonight",
    "yes that is perfect",
    "no nine is too early could we say half past ten",
    "my address is number seven oak street",
    "stop it",
    "what about Thursday next week",
    "the black cat sat back",
    "I would like to talk to a technician about my bill",
)
PATIENCE_MS: Final = 400
"""The agent has been silent for this long before the next line."""
OVER_MS: Final = 1000
"""Of the agent's voice, before it is spoken over."""
GIVE_UP_MS: Final = 8000
"""A line that nobody answers is followed by the next one all the same."""


@dataclass(eq=False)
class TurnTakingCaller:
    """When one caller speaks. Times in ms."""

    number: int
    since: float
    """When it began to talk; before that, it is silent: the calls are spread over the length of a line."""
    line_end: float = 0.0
    spoken: float = 0.0
    lines: int = 0
    heard_from: float | None = None
    """The beginning of the agent's voice since our last line."""
    heard_to: float = 0.0

    def spoken_by(self, now: float) -> float:
        """How long it has spoken."""
        return self.spoken - max(0.0, self.line_end - now)

    def hears(self, now: float, audible: bool) -> None:
        """20 ms of the agent."""
        if audible:
            self.heard_to = now
            if self.heard_from is None and now > self.line_end:
                self.heard_from = now

    def due(self, now: float, over: bool) -> bool:
        """Whether to speak now; `over`: over the agent."""
        if now < self.line_end or now < self.since:
            return False
        if self.lines == 0:
            return True
        if self.heard_from is None:
            return now - self.line_end >= GIVE_UP_MS
        if self.spoken > ACTIVITY * (now - self.since):
            return False
        if over:
            return now - self.heard_from >= OVER_MS
        return now - self.heard_to >= PATIENCE_MS

    def says(self, now: float, ms: float) -> None:
        """A line that lasts `ms` begins."""
        self.spoken += ms
        self.lines += 1
        self.line_end = now + ms
        self.heard_from = None


@dataclass(frozen=True)
class MeasuredCall:
    """A call that is up."""

    leg: Leg
    slot: int
    talker: TurnTakingCaller


class TurnLoad:
    """Calls, and keeps them talking."""

    def __init__(self, calls: int) -> None:
        settings = EndpointSettings(
            host="127.0.0.1", port=0, rtp_first_port=44000, rtp_last_port=46000, codecs=("PCMU",), max_calls=calls
        )  # fmt: skip
        self.endpoint = Endpoint(settings, lambda leg: None)
        self._calls: list[MeasuredCall] = []
        self._stopping = threading.Event()

    async def start(self, calls: int, port: int, number: str, over: bool) -> dict[str, Any]:
        """Place the calls and begin to talk."""
        flite = FliteTextToSpeech()
        lines = [await synthesize_line(flite, line, "rms", RATE) for line in LINES]
        flite.close()
        await self.endpoint.start()
        self.endpoint.set_sources(["127.0.0.1"])
        spread = sum(map(len, lines)) / len(lines) * 1000 / RATE / ACTIVITY
        for count in range(calls):
            leg = await self.endpoint.call(f"sip:{number}@127.0.0.1:{port}")
            media = await asyncio.wait_for(leg.wait_connected(), 10)
            talker = TurnTakingCaller(count, time.monotonic() * 1000 + spread * count / calls)
            self._calls.append(MeasuredCall(leg, media.slot, talker))
        self._thread = threading.Thread(target=self._talk, args=(lines, over), daemon=True)
        self._thread.start()
        return {"calls": calls}

    async def stats(self) -> dict[str, Any]:
        """Calls that are up, and how long all of them have spoken by now, ms."""
        now = time.monotonic() * 1000
        return {
            "calls": sum(not each.leg.ended.done() for each in self._calls),
            "spoken_ms": sum(each.talker.spoken_by(now) for each in self._calls),
        }

    def _talk(self, lines: list[Samples], over: bool) -> None:
        """On a thread of its own, tick by tick."""
        pump = self.endpoint.pump
        heard, said = (np.zeros((pump.rows, MAX_TICK_SAMPLES), np.int16) for _ in range(2))
        counts, info = np.zeros(pump.rows, np.int32), np.zeros((pump.rows, INFO_COLUMNS), np.int64)
        while not self._stopping.is_set():
            if not pump.wait(200):
                continue
            upper = pump.read(heard, said, counts, info)
            now, most = time.monotonic() * 1000, int(counts[:upper].max(initial=0))
            came = np.arange(most) < counts[:upper, np.newaxis]
            audible = (np.abs(heard[:upper, :most].astype(np.int32)) * came).max(axis=1, initial=0) >= MIN_AUDIBLE_PEAK
            for call in self._calls:
                talker = call.talker
                talker.hears(now, bool(audible[row_of(call.slot)]))
                if talker.due(now, over) and not call.leg.ended.done():
                    line = lines[(talker.number + talker.lines) % len(lines)]
                    pump.write(call.slot, line)
                    talker.says(now, len(line) * 1000 / RATE)

    async def close(self) -> None:
        """Hang up."""
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)
        await self.endpoint.close()


async def main() -> None:
    """Take orders."""
    logs.configure("error", "console")
    loads: list[TurnLoad] = []

    async def start(calls: int, port: int, number: str, over: bool) -> dict[str, Any]:
        loads.append(TurnLoad(calls))
        return await loads[0].start(calls, port, number, over)

    async def stats() -> dict[str, Any]:
        return await loads[0].stats()

    await obey({"start": start, "stats": stats})
    for load in loads:
        await load.close()


if __name__ == "__main__":
    asyncio.run(main())
