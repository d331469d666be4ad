"""The callers of the turn benchmarks (a worker process): each speaks 39 % of the time (ITU-T P.59), one sentence per
turn, and lets the agent answer or interrupts it."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bench.worker_process import serve_commands
from config import logging as logs
from media.audio_port import INFO_COLUMNS, Samples, row_of
from models.tts.flite.text_to_speech import FliteTextToSpeech
from sipcore.dialogs.leg import Leg
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings
from trunkline.demo.phone_audio import MAX_TICK_SAMPLES, MIN_AUDIBLE_PEAK, synthesize_line

RATE: Final = 8000
ACTIVITY: Final = 0.39
SENTENCES: Final = (
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
AGENT_SILENCE_MS: Final = 400
"""Silence of the agent before the caller's next sentence."""
INTERRUPT_AFTER_MS: Final = 1000
"""Speech of the agent before the caller interrupts it."""
ANSWER_TIMEOUT_MS: Final = 8000
"""Wait for an answer, after which the caller says its next sentence all the same."""


@dataclass(eq=False)
class TurnTakingCaller:
    """Decides when one caller speaks. All times are in ms, on the caller's clock."""

    number: int
    start: float
    """Time from which the caller speaks; the calls are spread over the length of a turn."""
    sentence_end: float = 0.0
    spoken: float = 0.0
    sentences: int = 0
    agent_start: float | None = None
    """Beginning of the agent's speech since the caller's last sentence."""
    agent_end: float = 0.0

    def spoken_by(self, now: float) -> float:
        """Duration for which the caller has spoken."""
        return self.spoken - max(0.0, self.sentence_end - now)

    def on_agent_audio(self, now: float, audible: bool) -> None:
        """Takes note of 20 ms of the agent's audio."""
        if audible:
            self.agent_end = now
            if self.agent_start is None and now > self.sentence_end:
                self.agent_start = now

    def should_speak(self, now: float, interrupt: bool) -> bool:
        """True if the caller's next sentence is due. With `interrupt` it begins while the agent speaks."""
        if now < self.sentence_end or now < self.start:
            return False
        if self.sentences == 0:
            return True
        if self.agent_start is None:
            return now - self.sentence_end >= ANSWER_TIMEOUT_MS
        if self.spoken > ACTIVITY * (now - self.start):
            return False
        if interrupt:
            return now - self.agent_start >= INTERRUPT_AFTER_MS
        return now - self.agent_end >= AGENT_SILENCE_MS

    def start_sentence(self, now: float, duration: float) -> None:
        """Begins a sentence of `duration`."""
        self.spoken += duration
        self.sentences += 1
        self.sentence_end = now + duration
        self.agent_start = None


@dataclass(frozen=True)
class MeasuredCall:
    """A call and the caller that speaks in it."""

    leg: Leg
    slot: int
    caller: TurnTakingCaller


class TurnLoad:
    """Places calls and lets their callers speak."""

    def __init__(self, calls: int) -> None:
        settings = EndpointSettings(
            host="127.0.0.1", port=0, rtp_first_port=44000, rtp_last_port=46000, codecs=("PCMU",), max_calls=calls
        )  # fmt: skip
        self.endpoint = Endpoint(settings, lambda leg: None)
        self._calls: list[MeasuredCall] = []
        self._stopping = threading.Event()

    async def start(self, calls: int, port: int, number: str, interrupt: bool) -> dict[str, Any]:
        """Places the calls and begins to speak."""
        flite = FliteTextToSpeech()
        speeches = [await synthesize_line(flite, sentence, "rms", RATE) for sentence in SENTENCES]
        flite.close()
        await self.endpoint.start()
        self.endpoint.set_sources(["127.0.0.1"])
        turn_ms = sum(map(len, speeches)) / len(speeches) * 1000 / RATE / ACTIVITY
        for count in range(calls):
            leg = await self.endpoint.call(f"sip:{number}@127.0.0.1:{port}")
            media = await asyncio.wait_for(leg.wait_connected(), 10)
            caller = TurnTakingCaller(count, time.monotonic() * 1000 + turn_ms * count / calls)
            self._calls.append(MeasuredCall(leg, media.slot, caller))
        self._thread = threading.Thread(target=self._speak, args=(speeches, interrupt), daemon=True)
        self._thread.start()
        return {"calls": calls}

    async def stats(self) -> dict[str, Any]:
        """The number of active calls, and the total duration of their callers' speech so far, ms."""
        now = time.monotonic() * 1000
        return {
            "calls": sum(not call.leg.ended.done() for call in self._calls),
            "spoken_ms": sum(call.caller.spoken_by(now) for call in self._calls),
        }

    def _speak(self, speeches: list[Samples], interrupt: bool) -> None:
        """Runs on a thread of its own, once per tick of the pump."""
        pump = self.endpoint.pump
        received, sent = (np.zeros((pump.rows, MAX_TICK_SAMPLES), np.int16) for _ in range(2))
        counts, info = np.zeros(pump.rows, np.int32), np.zeros((pump.rows, INFO_COLUMNS), np.int64)
        while not self._stopping.is_set():
            if not pump.wait(200):
                continue
            upper = pump.read(received, sent, counts, info)
            now, longest = time.monotonic() * 1000, int(counts[:upper].max(initial=0))
            is_valid = np.arange(longest) < counts[:upper, np.newaxis]
            audible = (np.abs(received[:upper, :longest].astype(np.int32)) * is_valid).max(
                axis=1, initial=0
            ) >= MIN_AUDIBLE_PEAK
            for call in self._calls:
                caller = call.caller
                caller.on_agent_audio(now, bool(audible[row_of(call.slot)]))
                if caller.should_speak(now, interrupt) and not call.leg.ended.done():
                    speech = speeches[(caller.number + caller.sentences) % len(speeches)]
                    pump.write(call.slot, speech)
                    caller.start_sentence(now, len(speech) * 1000 / RATE)

    async def close(self) -> None:
        """Stops the callers and closes the endpoint, which ends the calls."""
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)
        await self.endpoint.close()


async def main() -> None:
    """Serves commands from stdin."""
    logs.configure("error", "console")
    loads: list[TurnLoad] = []

    async def start(calls: int, port: int, number: str, interrupt: bool) -> dict[str, Any]:
        loads.append(TurnLoad(calls))
        return await loads[0].start(calls, port, number, interrupt)

    async def stats() -> dict[str, Any]:
        return await loads[0].stats()

    await serve_commands({"start": start, "stats": stats})
    for load in loads:
        await load.close()


if __name__ == "__main__":
    asyncio.run(main())
