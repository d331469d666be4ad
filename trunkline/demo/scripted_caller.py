"""A scripted caller: calls a server over SIP and RTP, speaks its lines when the agent is silent or over the agent, and
reports what it hears.

The demo runs it as a process (`python -m trunkline.demo.scripted_caller`), because a process has one SIP endpoint. It
reads a `CallerScript` as JSON from stdin, and writes a JSON object per event to stdout (`_emit`).
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from media.audio_port import Samples
from models.tts.flite.text_to_speech import FliteTextToSpeech
from sipcore.dialogs.leg import Leg, Media
from sipcore.endpoint import Endpoint
from sipcore.settings import EndpointSettings
from trunkline.demo.phone_audio import AGENT_SILENCE_MS, DTMF_LINE, HOST, VOICE, PhoneAudio, synthesize_line

RATES = (8000, 16000)
"""Sample rates of the codecs, Hz."""
HANGUP_TIMEOUT_S = 20.0
"""How long the caller waits for the agent to hang up after the last line, before it hangs up itself."""


@dataclass(frozen=True)
class CallerScript:
    """A call to `uri`: the agent speaks first, then the caller says a line after each answer. A line of DTMF characters
    is dialled. The lines in `barge_in_lines` (counted from 0) are spoken over the agent, `barge_in_after_ms` after it
    began; the others wait until it is silent. The caller hangs up if there is no answer within `answer_timeout_s`."""

    uri: str
    lines: list[str]
    answer_timeout_s: float = 15.0
    barge_in_after_ms: int = 0
    barge_in_lines: list[int] = field(default_factory=list)


def _emit(event: str, **fields: Any) -> None:
    """Write an event: connected, spoke (text, at_ms), heard (from_ms, to_ms, gap_ms) or ended (code, reason, by_peer).
    Times are ms since the call was connected; `gap_ms` is the time between the last audible frame of the caller's line
    and the first one of the agent's answer, both at the caller."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class ScriptedCaller:
    """One scripted call."""

    def __init__(self, script: CallerScript) -> None:
        self._script = script
        self._flite = FliteTextToSpeech()

    async def run(self) -> None:
        """Call, follow the script, and hang up; writes the events to stdout."""
        speech = {
            rate: [await synthesize_line(self._flite, line, VOICE, rate) for line in self._script.lines]
            for rate in RATES
        }
        settings = EndpointSettings(
            host=HOST, port=0, codecs=("PCMU",), max_calls=4, rtp_first_port=30000, rtp_last_port=34999
        )
        endpoint = Endpoint(settings, lambda leg: None)
        await endpoint.start()
        try:
            endpoint.set_sources([HOST])
            await self._call(endpoint, speech)
        finally:
            await endpoint.close()

    async def _call(self, endpoint: Endpoint, speech: dict[int, list[Samples]]) -> None:
        leg = await endpoint.call(self._script.uri)
        media = await asyncio.wait_for(leg.wait_connected(), 30)
        _emit("connected", codec=media.codec, rate=media.rate)
        audio = PhoneAudio(endpoint, media)
        await asyncio.to_thread(self._converse, endpoint, leg, media, audio, speech[media.rate])
        if not leg.ended.done():
            await leg.hangup()
        end = await asyncio.wait_for(leg.ended, 10)
        _emit("ended", code=end.code, reason=end.reason, by_peer=end.by_peer)

    def _converse(self, endpoint: Endpoint, leg: Leg, media: Media, audio: PhoneAudio, speech: list[Samples]) -> None:
        """The conversation. Blocks on the pump's ticks, so it has a thread of its own."""
        if not self._wait_for_agent(leg, audio, None, 0):
            return
        for number, (line, samples) in enumerate(zip(self._script.lines, speech, strict=True), 1):
            spoken_at = self._speak(endpoint, leg, media, audio, samples, line)
            if spoken_at is None or not self._wait_for_agent(leg, audio, spoken_at, number):
                break
        self._wait_for_hangup(leg, audio)

    def _speak(
        self, endpoint: Endpoint, leg: Leg, media: Media, audio: PhoneAudio, samples: Samples, line: str
    ) -> float | None:
        """Speak or dial a line; returns the time of the last audible frame or digit, None if the call ended."""
        pump, slot, is_dialled = endpoint.pump, media.slot, DTMF_LINE.fullmatch(line) is not None
        if is_dialled:
            pump.send_dtmf(slot, line)
        else:
            pump.write(slot, samples)
        end = pump.written_position(slot)
        last = audio.clock_ms
        while not leg.ended.done():
            for at, _, caller in audio.read_tick():
                last = at if caller or is_dialled else last
            if pump.sent_position(slot) >= end and not pump.dtmf_samples_left(slot):
                _emit("spoke", text=line, at_ms=last)
                return last
        return None

    def _wait_for_agent(self, leg: Leg, audio: PhoneAudio, spoken_at: float | None, next_line: int) -> bool:
        """Wait until the agent has spoken, and the caller's next line is due; returns False if the agent stays silent
        or the call ends."""
        began: float | None = None
        last = 0.0
        deadline = time.monotonic() + self._script.answer_timeout_s
        while not leg.ended.done() and (began is not None or time.monotonic() < deadline):
            for at, agent, _ in audio.read_tick():
                if agent:
                    began, last = (at if began is None else began), at
            if began is not None and self._is_due(next_line, audio.clock_ms, began, last):
                break
        if began is not None:
            _emit("heard", from_ms=began, to_ms=last, gap_ms=None if spoken_at is None else began - spoken_at)
        return began is not None and not leg.ended.done()

    def _is_due(self, line: int, now: float, agent_began: float, agent_last: float) -> bool:
        if line in self._script.barge_in_lines:
            return now - agent_began >= self._script.barge_in_after_ms
        return now - agent_last >= AGENT_SILENCE_MS

    def _wait_for_hangup(self, leg: Leg, audio: PhoneAudio) -> None:
        deadline = time.monotonic() + HANGUP_TIMEOUT_S
        while not leg.ended.done() and time.monotonic() < deadline:
            for _ in audio.read_tick():
                pass


def main() -> None:
    """Read a script from stdin, and follow it."""
    asyncio.run(ScriptedCaller(CallerScript(**json.load(sys.stdin))).run())


if __name__ == "__main__":
    main()
