"""A caller that follows a script: it phones a server over real SIP and RTP, talks when the agent is silent, and tells
what it heard. The demo, the tests and the benches run it as a process of its own (`python -m
trunkline.demo.scripted_caller`): a process holds one SIP endpoint.

It reads a JSON script on stdin and writes one JSON object a line on stdout; `Script` and `_say` give their fields.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from media.audio_port import INFO_COLUMNS, Samples
from models.protocols import VoiceSettings
from models.tts.flite.text_to_speech import FliteTextToSpeech
from sipcore.dialogs.leg import Leg, Media
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings

AUDIBLE = 200
"""Peak of a 20 ms frame from which on it counts as sound (int16)."""
CAPACITY = 19200
"""Samples a slot can bring at once: 400 ms at 48 kHz."""
RATES = (8000, 16000)
"""What our codecs run at, Hz."""
KEYS = re.compile(r"[0-9*#A-D]+")
"""A line of these alone is dialled on the keypad instead of being spoken."""


@dataclass(frozen=True)
class Script:
    """What to do. `lines` are spoken one after the other, each when the agent has spoken and then been silent for
    `patience_ms`; with `first` the caller speaks before the agent has said anything. A line of keypad keys alone is
    dialled. After the last line it waits for the agent to hang up, at most `last_wait_s`, and then hangs up itself;
    with `hang_up` it does so at once. With `barge_after_ms` each line but the first is spoken over the agent, that long
    after it began; `barge_lines` (counted from 0) says which are, if not all."""

    uri: str
    lines: list[str]
    host: str = "127.0.0.1"
    codecs: list[str] = field(default_factory=lambda: ["PCMU"])
    voice: str = "rms"
    first: bool = False
    patience_ms: int = 1200
    answer_wait_s: float = 15.0
    last_wait_s: float = 20.0
    hang_up: bool = False
    barge_after_ms: int | None = None
    barge_lines: list[int] | None = None

    def barge_ms(self, line: int) -> int | None:
        """After how much of the agent's voice this line is spoken over it; None when it waits for silence."""
        return self.barge_after_ms if self.barge_lines is None or line in self.barge_lines else None


def _say(event: str, **facts: Any) -> None:
    """One line for whoever started us: `event` is connected, spoke (text, at_ms), heard (from_ms, to_ms, gap_ms) or
    ended (code, reason, by_peer). Times are ms since the call was connected; `gap_ms` counts from the last audible
    sample of the caller's line to the first of the agent's answer, both on this side of the wire."""
    sys.stdout.write(json.dumps({"event": event, **facts}) + "\n")
    sys.stdout.flush()


async def spoken(flite: FliteTextToSpeech, line: str, voice: str, rate: int) -> Samples:
    """A line, `int16[samples]`; nothing for keys. It always sounds the same: flite shapes its excitation with the C
    library's random numbers."""
    if KEYS.fullmatch(line):
        return np.zeros(0, np.int16)
    ctypes.CDLL(None).srand(1)
    settings = VoiceSettings(voice=f"flite/{voice}", speed=1.0, stability=0.5, rate=rate)
    return (await flite.synthesize(line, settings)).samples


class AgentAudio:
    """Follows the agent's voice through the pump: which frames are audible, and since when it is silent."""

    def __init__(self, endpoint: Endpoint, media: Media) -> None:
        rows = endpoint.pump.rows
        self._endpoint, self._row = endpoint, media.slot & 0xFFFF
        self._heard = np.zeros((rows, CAPACITY), np.int16)
        self._said = np.zeros((rows, CAPACITY), np.int16)
        self._counts = np.zeros(rows, np.int32)
        self._info = np.zeros((rows, INFO_COLUMNS), np.int64)
        self._rate = media.rate
        self.clock_ms = 0.0

    def listen(self) -> Iterator[tuple[float, bool, bool]]:
        """Wait for the next tick; yield (ms since connected, agent audible, we audible) for each 20 ms in it."""
        if not self._endpoint.pump.wait(200):
            return
        self._endpoint.pump.read(self._heard, self._said, self._counts, self._info)
        count = int(self._counts[self._row])
        frame = self._rate // 50
        for start in range(0, count - frame + 1, frame):
            self.clock_ms += 20.0
            heard = _audible(self._heard[self._row, start : start + frame])
            yield self.clock_ms, heard, _audible(self._said[self._row, start : start + frame])


def _audible(frame: Samples) -> bool:
    return bool(np.abs(frame.astype(np.int32)).max(initial=0) >= AUDIBLE)


class Caller:
    """One scripted call from ring to end."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._voice = FliteTextToSpeech()

    async def run(self) -> None:
        """Phone, talk, hang up; the events go to stdout."""
        speech = {
            rate: [await spoken(self._voice, line, self._script.voice, rate) for line in self._script.lines]
            for rate in RATES
        }
        settings = EndpointSettings(
            host=self._script.host, port=0, codecs=tuple(self._script.codecs), max_calls=4,
            rtp_first_port=30000, rtp_last_port=34999,
        )  # fmt: skip
        endpoint = Endpoint(settings, lambda leg: None)
        await endpoint.start()
        try:
            endpoint.set_sources([self._script.host])
            await self._call(endpoint, speech)
        finally:
            await endpoint.close()

    async def _call(self, endpoint: Endpoint, speech: dict[int, list[Samples]]) -> None:
        leg = await endpoint.call(self._script.uri)
        media = await asyncio.wait_for(leg.connected(), 30)
        _say("connected", codec=media.codec, rate=media.rate)
        audio = AgentAudio(endpoint, media)
        await asyncio.to_thread(self._converse, endpoint, leg, media, audio, speech[media.rate])
        if self._script.hang_up or not leg.ended.done():
            await leg.hangup()
        end = await asyncio.wait_for(leg.ended, 10)
        _say("ended", code=end.code, reason=end.reason, by_peer=end.by_peer)

    def _converse(self, endpoint: Endpoint, leg: Leg, media: Media, audio: AgentAudio, speech: list[Samples]) -> None:
        """The talk, on a thread of its own: it blocks on the pump's ticks."""
        said_at: float | None = None
        if not self._script.first and not self._hear_agent(leg, audio, None, 0):
            return
        for number, (line, samples) in enumerate(zip(self._script.lines, speech, strict=True), 1):
            said_at = self._utter(endpoint, leg, media, audio, samples, line)
            if said_at is None or not self._hear_agent(leg, audio, said_at, number):
                break
        if not self._script.hang_up:
            self._wait(leg, audio, self._script.last_wait_s)

    def _utter(
        self, endpoint: Endpoint, leg: Leg, media: Media, audio: AgentAudio, samples: Samples, line: str
    ) -> float | None:
        """Speak or dial; returns the time of our last audible frame or key, None when the call ended meanwhile."""
        pump, slot, dials = endpoint.pump, media.slot, KEYS.fullmatch(line) is not None
        if dials:
            pump.send_dtmf(slot, line)
        else:
            pump.write(slot, samples)
        end = pump.written(slot)
        last = audio.clock_ms
        while not leg.ended.done():
            for at, _, we in audio.listen():
                last = at if we or dials else last
            if pump.taken(slot) >= end and not pump.dtmf_samples_left(slot):
                _say("spoke", text=line, at_ms=last)
                return last
        return None

    def _hear_agent(self, leg: Leg, audio: AgentAudio, said_at: float | None, upcoming: int) -> bool:
        """Wait for the agent's voice and until the `upcoming` line may be spoken; False when the agent stays silent or
        the call ends."""
        began: float | None = None
        last = 0.0
        deadline = time.monotonic() + self._script.answer_wait_s
        while not leg.ended.done() and (began is not None or time.monotonic() < deadline):
            for at, agent, _ in audio.listen():
                if agent:
                    began, last = (at if began is None else began), at
            if began is not None and self._our_turn(upcoming, audio.clock_ms, began, last):
                break
        if began is not None:
            gap = None if said_at is None else began - said_at
            _say("heard", from_ms=began, to_ms=last, gap_ms=gap)
        return began is not None and not leg.ended.done()

    def _our_turn(self, line: int, now: float, began: float, last: float) -> bool:
        barge = self._script.barge_ms(line)
        return now - last >= self._script.patience_ms if barge is None else now - began >= barge

    def _wait(self, leg: Leg, audio: AgentAudio, wait_s: float) -> None:
        deadline = time.monotonic() + wait_s
        while not leg.ended.done() and time.monotonic() < deadline:
            for _ in audio.listen():
                pass


def main() -> None:
    """Read a script from stdin and follow it."""
    asyncio.run(Caller(Script(**json.load(sys.stdin))).run())


if __name__ == "__main__":
    main()
