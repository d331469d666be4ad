"""Turn latency of Pipecat: the same conversations as in `bench.turn.turn_latency`, over Pipecat's WebSocket instead of
SIP and RTP. Needs `scripts/venv.sh peer`.

Times are taken where the callers send and receive packets: one process, one clock.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import aiohttp
import numpy as np

from bench.capture.rtp_capture import mulaw_peak
from bench.turn.turn_latency import SHORT_ANSWER, SpeechSegment, response_gaps, speech_segments, summary
from bench.turn.turn_load import ACTIVITY, RATE, SENTENCES, TurnTakingCaller
from bench.worker_process import Worker, thread_seconds
from media.audio_port import Samples
from models.tts.flite.text_to_speech import FliteTextToSpeech
from trunkline.demo.phone_audio import MIN_AUDIBLE_PEAK, synthesize_line

PIPECAT_PYTHON: Final = Path(__file__).parents[2] / "build/peer-turn/bin/python"
SESSIONS: Final = (1, 10, 15)
STOP_MS: Final = 200
"""Pipecat's default `stop_secs`."""
FRAME: Final = RATE // 50
SETTLE_S: Final = 8.0

Row = dict[str, Any]


def mulaw(samples: Samples) -> bytes:
    """ITU-T G.711 mu-law of int16 samples."""
    magnitude = np.minimum(np.abs(samples.astype(np.int32)), 32635) + 0x84
    exponent = np.floor(np.log2(magnitude)).astype(np.int32) - 7
    code = exponent << 4 | magnitude >> (exponent + 3) & 0x0F
    sign = np.where(samples < 0, 0x80, 0)
    return bytes((~(code | sign) & 0xFF).astype(np.uint8))


@dataclass
class PacketLog:
    """The packets of one direction: times (s) and peak levels."""

    times: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)

    def add(self, payload: bytes) -> int:
        """Records a packet that is sent or received now. Returns its peak level."""
        self.times.append(time.monotonic())
        self.peaks.append(mulaw_peak(payload))
        return self.peaks[-1]

    def speech_segments(self, since: float) -> list[SpeechSegment]:
        """The speech segments that begin at `since` (s) or later."""
        segments = speech_segments(np.array(self.times), np.array(self.peaks, np.int32))
        return [segment for segment in segments if segment.start_s >= since]


class Session:
    """One caller, which speaks like those of `bench.turn.turn_load`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, number: int, start_ms: float) -> None:
        self._socket = socket
        self.caller = TurnTakingCaller(number, start_ms)
        self.sent, self.received = PacketLog(), PacketLog()
        self._queue = b""

    async def speak(self, speeches: Sequence[bytes]) -> None:
        """Sends a packet every 20 ms until cancelled. `speeches` are mu-law."""
        await self._socket.send_json({"event": "connected"})
        await self._socket.send_json({"event": "start", "start": {"streamSid": "bench"}})
        silence, at = mulaw(np.zeros(FRAME, np.int16)), time.monotonic()
        while True:
            now = time.monotonic() * 1000
            if self.caller.should_speak(now, interrupt=False):
                speech = speeches[(self.caller.number + self.caller.sentences) % len(speeches)]
                self._queue += speech
                self.caller.start_sentence(now, len(speech) * 1000 / RATE)
            frame, self._queue = (self._queue[:FRAME] or silence).ljust(FRAME, b"\xff"), self._queue[FRAME:]
            self.sent.add(frame)
            media = {"payload": base64.b64encode(frame).decode()}
            await self._socket.send_json({"event": "media", "streamSid": "bench", "media": media})
            at += 0.02
            await asyncio.sleep(at - time.monotonic())

    async def listen(self) -> None:
        """Records received packets until cancelled."""
        async for message in self._socket:
            content = json.loads(message.data)
            if content["event"] == "media":
                peak = self.received.add(base64.b64decode(content["media"]["payload"]))
                self.caller.on_agent_audio(time.monotonic() * 1000, peak >= MIN_AUDIBLE_PEAK)


async def measure(sessions: int, seconds: float, settle_s: float = SETTLE_S, python: str = str(PIPECAT_PYTHON)) -> Row:
    """Measures `sessions` concurrent sessions for `seconds`. Returns a row."""
    flite = FliteTextToSpeech()
    speeches = [mulaw(await synthesize_line(flite, sentence, "rms", RATE)) for sentence in SENTENCES]
    answer = await synthesize_line(flite, SHORT_ANSWER, "slt", RATE)
    flite.close()
    turn_ms = sum(map(len, speeches)) / len(speeches) * 1000 / RATE / ACTIVITY
    with TemporaryDirectory() as folder:
        sound = Path(folder, "answer.raw")
        await asyncio.to_thread(sound.write_bytes, answer.tobytes())
        async with (
            Worker("bench.turn.pipecat_server", python) as server,
            aiohttp.ClientSession() as client,
            asyncio.TaskGroup() as group,
        ):
            port = (await server.request("start", answer=SHORT_ANSWER, sound=str(sound), stop_ms=STOP_MS))["port"]
            began = time.monotonic() * 1000
            callers = [
                Session(
                    await client.ws_connect(f"ws://127.0.0.1:{port}/"), count, began + 1000 + turn_ms * count / sessions
                )
                for count in range(sessions)
            ]
            tasks = [group.create_task(work) for each in callers for work in (each.speak(speeches), each.listen())]
            await asyncio.sleep(settle_s)
            before, since = thread_seconds(server.pid), time.monotonic()
            await asyncio.sleep(seconds)
            cpu_s = sum(thread_seconds(server.pid).values()) - sum(before.values())
            elapsed_s = time.monotonic() - since
            for task in tasks:
                task.cancel()
    gaps = [
        gap
        for each in callers
        for gap in response_gaps(each.sent.speech_segments(since), each.received.speech_segments(since), STOP_MS)
    ]
    return {
        "what": f"Pipecat: gap beyond stop_secs {STOP_MS / 1000}, instant models",
        "calls": sessions,
        **summary(gaps),
        "cpu_percent_per_call": round(100 * cpu_s / elapsed_s / sessions, 2),
    }


def require_environment() -> None:
    """Ends the program with a message if Pipecat's Python environment is not installed."""
    if not PIPECAT_PYTHON.exists():
        raise SystemExit("python -m bench: build/peer-turn is missing; `scripts/venv.sh peer` creates it")


async def run(sessions: Sequence[int] = SESSIONS, seconds: float = 60.0, settle_s: float = SETTLE_S) -> list[Row]:
    """The rows of the table."""
    require_environment()
    return [await measure(number, seconds, settle_s) for number in sessions]


def main() -> None:
    """Prints the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sessions", nargs="*", type=int, default=SESSIONS)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    for row in asyncio.run(run(options.sessions, options.seconds)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
