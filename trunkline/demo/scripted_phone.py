"""A phone that does as it is told: it calls or answers, says lines, hangs up, and reports and records what it hears.

The demo runs each phone as a process (`python -m trunkline.demo.scripted_phone FOLDER`), because a process has one SIP
endpoint. It reads commands from stdin, a JSON object a line (`ScriptedPhone._obey`), and writes an event a line to
stdout (`_emit`). The audio of each call that it receives becomes a WAV file in FOLDER.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import wave
from pathlib import Path
from typing import Any, Final

from models.tts.flite.text_to_speech import FliteTextToSpeech
from sipcore.dialogs.leg import Leg, Media
from sipcore.endpoint import Endpoint
from sipcore.messages.headers import NameAddr
from sipcore.settings import EndpointSettings
from trunkline.demo.phone_audio import AGENT_SILENCE_MS, HOST, VOICE, PhoneAudio, synthesize_line

NUMBER: Final = "100"
"""The phone's own number, as callees see it."""


def _emit(event: str, **fields: Any) -> None:
    """Write an event: listening (port), ringing, connected (at_s: UNIX time), spoke, hears (a sound begins), heard
    (silence since `AGENT_SILENCE_MS`) or ended (recording: path of the WAV file, "" if the call had no audio)."""
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


class ScriptedPhone:
    """A phone with one call at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        self._flite: Final = FliteTextToSpeech()
        self._leg: Leg | None = None
        self._media: Media | None = None
        self._calls = 0
        self._speech_end: int | None = None  # the pump's position after the line that is being said
        self._listening: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Obey the commands until stdin ends."""
        settings = EndpointSettings(
            host=HOST, port=0, codecs=("PCMU",), max_calls=4, rtp_first_port=30000, rtp_last_port=34999
        )
        self._endpoint = Endpoint(settings, self._on_incoming)
        await self._endpoint.start()
        try:
            self._endpoint.set_sources([HOST])
            _emit("listening", port=self._endpoint.sip_port)
            while line := await asyncio.to_thread(sys.stdin.readline):
                await self._obey(**json.loads(line))
        finally:
            await self._endpoint.close()

    async def _obey(self, do: str, what: str = "") -> None:
        """`call` a URI, `answer`, `say` a line, `hang_up`."""
        match do:
            case "call":
                self._leg = await self._endpoint.call(what, caller=NameAddr(NUMBER, ""))
                self._connect(await asyncio.wait_for(self._leg.wait_connected(), 30))
            case "answer" if self._leg is not None:
                self._connect(await self._leg.answer())
            case "say" if self._media is not None:
                speech = await synthesize_line(self._flite, what, VOICE, self._media.rate)
                self._endpoint.pump.write(self._media.slot, speech)
                self._speech_end = self._endpoint.pump.written_position(self._media.slot)
            case "hang_up" if self._leg is not None:
                await self._leg.hangup()

    def _on_incoming(self, leg: Leg) -> None:
        self._leg = leg
        asyncio.get_running_loop().create_task(leg.send_ringing()).add_done_callback(lambda _: _emit("ringing"))

    def _connect(self, media: Media) -> None:
        assert self._leg is not None
        self._media, self._speech_end = media, None
        self._calls += 1
        _emit("connected", at_s=time.time())
        self._listening = asyncio.create_task(self._listen(self._leg, media))

    async def _listen(self, leg: Leg, media: Media) -> None:
        audio = PhoneAudio(self._endpoint, media)
        await asyncio.to_thread(self._report_sounds, leg, media, audio)
        path = self._folder / f"call-{self._calls}.wav"
        await asyncio.to_thread(_write_wav, path, media.rate, bytes(audio.received))
        leg.release()
        _emit("ended", recording=str(path))

    def _report_sounds(self, leg: Leg, media: Media, audio: PhoneAudio) -> None:
        """Blocks on the pump's ticks until the call ends."""
        last: float | None = None
        while not leg.ended.done():
            for at, audible, _ in audio.read_tick():
                if audible and last is None:
                    _emit("hears")
                last = at if audible else last
            if last is not None and audio.clock_ms - last >= AGENT_SILENCE_MS:
                _emit("heard")
                last = None
            end = self._speech_end
            if end is not None and not leg.ended.done() and self._endpoint.pump.sent_position(media.slot) >= end:
                self._speech_end = None
                _emit("spoke", at_s=time.time())


def _write_wav(path: Path, rate: int, samples: bytes) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples)


def main() -> None:
    """Run a phone whose recordings go to the folder that the first argument names."""
    asyncio.run(ScriptedPhone(Path(sys.argv[1])).run())


if __name__ == "__main__":
    main()
