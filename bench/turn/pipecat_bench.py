"""The turn's bench for the peer: the same talk, over the peer's WebSocket instead of SIP and RTP. Needs
`scripts/venv.sh peer`.

Times are taken where the callers hand their packets over and get the agent's: one process, one clock.
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
from bench.turn.callers import ACTIVITY, LINES, RATE, TurnTakingCaller
from bench.turn.turn_latency import SHORT_ANSWER, SpeechSegment, response_gaps, speech_segments, summary
from bench.worker_process import Worker, thread_seconds
from media.audio_port import Samples
from models.tts.flite.text_to_speech import FliteTextToSpeech
from trunkline.demo.scripted_caller import MIN_AUDIBLE_PEAK, synthesize_line

PEER_PYTHON: Final = Path(__file__).parents[2] / "build/peer-turn/bin/python"
SESSIONS: Final = (1, 10, 15)
STOP_MS: Final = 200
"""The peer's own default silence."""
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
class Packets:
    """Of one direction: when (s), and their peaks."""

    times: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)

    def add(self, payload: bytes) -> int:
        """It passes now; its peak."""
        self.times.append(time.monotonic())
        self.peaks.append(mulaw_peak(payload))
        return self.peaks[-1]

    def speech_segments(self, since: float) -> list[SpeechSegment]:
        """Speech."""
        found = speech_segments(np.array(self.times), np.array(self.peaks, np.int32))
        return [spell for spell in found if spell.start_s >= since]


class Session:
    """One caller; speaks as those of `bench.turn.callers` do."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, number: int, since_ms: float) -> None:
        self._socket = socket
        self.talker = TurnTakingCaller(number, since_ms)
        self.said, self.heard = Packets(), Packets()
        self._queue = b""

    async def talk(self, lines: Sequence[bytes]) -> None:
        """Send a packet every 20 ms, until cancelled."""
        await self._socket.send_json({"event": "connected"})
        await self._socket.send_json({"event": "start", "start": {"streamSid": "bench"}})
        silence, at = mulaw(np.zeros(FRAME, np.int16)), time.monotonic()
        while True:
            now = time.monotonic() * 1000
            if self.talker.due(now, over=False):
                line = lines[(self.talker.number + self.talker.lines) % len(lines)]
                self._queue += line
                self.talker.says(now, len(line) * 1000 / RATE)
            frame, self._queue = (self._queue[:FRAME] or silence).ljust(FRAME, b"\xff"), self._queue[FRAME:]
            self.said.add(frame)
            media = {"payload": base64.b64encode(frame).decode()}
            await self._socket.send_json({"event": "media", "streamSid": "bench", "media": media})
            at += 0.02
            await asyncio.sleep(at - time.monotonic())

    async def listen(self) -> None:
        """Note what comes, until cancelled."""
        async for message in self._socket:
            content = json.loads(message.data)
            if content["event"] == "media":
                peak = self.heard.add(base64.b64decode(content["media"]["payload"]))
                self.talker.hears(time.monotonic() * 1000, peak >= MIN_AUDIBLE_PEAK)


async def measure(sessions: int, seconds: float, python: str = str(PEER_PYTHON)) -> Row:
    """The peer with so many sessions at once, watched for so long."""
    flite = FliteTextToSpeech()
    lines = [mulaw(await synthesize_line(flite, line, "rms", RATE)) for line in LINES]
    answer = await synthesize_line(flite, SHORT_ANSWER, "slt", RATE)
    flite.close()
    spread = sum(map(len, lines)) / len(lines) * 1000 / RATE / ACTIVITY
    with TemporaryDirectory() as folder:
        sound = Path(folder, "answer.raw")
        await asyncio.to_thread(sound.write_bytes, answer.tobytes())
        async with (
            Worker("bench.turn.pipecat_peer", python) as server,
            aiohttp.ClientSession() as client,
            asyncio.TaskGroup() as group,
        ):
            port = (await server.do("start", answer=SHORT_ANSWER, sound=str(sound), stop_ms=STOP_MS))["port"]
            began = time.monotonic() * 1000
            callers = [
                Session(
                    await client.ws_connect(f"ws://127.0.0.1:{port}/"), count, began + 1000 + spread * count / sessions
                )
                for count in range(sessions)
            ]
            tasks = [group.create_task(work) for each in callers for work in (each.talk(lines), each.listen())]
            await asyncio.sleep(SETTLE_S)
            before, since = thread_seconds(server.pid), time.monotonic()
            await asyncio.sleep(seconds)
            used = sum(thread_seconds(server.pid).values()) - sum(before.values())
            took = time.monotonic() - since
            for task in tasks:
                task.cancel()
    gaps = [
        gap
        for each in callers
        for gap in response_gaps(each.said.speech_segments(since), each.heard.speech_segments(since), STOP_MS)
    ]
    return {
        "what": f"Pipecat: gap beyond stop_secs {STOP_MS / 1000}, instant models",
        "calls": sessions,
        **summary(gaps),
        "cpu_percent_per_call": round(100 * used / took / sessions, 2),
    }


def must_be_there() -> None:
    """Ends the program when the peer is not installed."""
    if not PEER_PYTHON.exists():
        raise SystemExit("python -m bench: build/peer-turn is missing; `scripts/venv.sh peer` makes it")


async def run(sessions: Sequence[int] = SESSIONS, seconds: float = 60.0) -> list[Row]:
    """The rows of the table."""
    must_be_there()
    return [await measure(number, seconds) for number in sessions]


def main() -> None:
    """Print the rows as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sessions", nargs="*", type=int, default=SESSIONS)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    for row in asyncio.run(run(options.sessions, options.seconds)):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
