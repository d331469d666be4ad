"""The audio of the demo's scripted phones: lines of speech, and what both sides of a call hear."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator

import numpy as np

from media.audio_port import INFO_COLUMNS, Samples
from models.protocols import VoiceSettings
from models.tts.flite.text_to_speech import FliteTextToSpeech
from sipcore.dialogs.leg import Media
from sipcore.endpoint import Endpoint

MIN_AUDIBLE_PEAK = 200
"""Smallest peak of a 20 ms frame that counts as audible (int16)."""
MAX_TICK_SAMPLES = 19200
"""Samples of a slot at one tick: 400 ms at 48 kHz."""
DTMF_LINE = re.compile(r"[0-9*#A-D]+")
"""A line of these characters is dialled instead of spoken."""
HOST = "127.0.0.1"
VOICE = "rms"
AGENT_SILENCE_MS = 1200
"""A phone speaks when the agent has been silent for this time."""


async def synthesize_line(flite: FliteTextToSpeech, line: str, voice: str, rate: int) -> Samples:
    """The audio of a line, `int16[samples]`; empty if it is dialled. The random numbers of the C library, which flite's
    excitation depends on, are seeded, so that a line always sounds the same."""
    if DTMF_LINE.fullmatch(line):
        return np.zeros(0, np.int16)
    ctypes.CDLL(None).srand(1)
    settings = VoiceSettings(voice=f"flite/{voice}", speed=1.0, stability=0.5, rate=rate)
    return (await flite.synthesize(line, settings)).samples


class PhoneAudio:
    """Reads a call's audio of both sides from the pump. `received`: the peer's so far, int16 at the call's rate."""

    def __init__(self, endpoint: Endpoint, media: Media) -> None:
        rows = endpoint.pump.rows
        self._endpoint, self._row = endpoint, media.slot & 0xFFFF
        self._rx_audio = np.zeros((rows, MAX_TICK_SAMPLES), np.int16)
        self._tx_audio = np.zeros((rows, MAX_TICK_SAMPLES), np.int16)
        self._counts = np.zeros(rows, np.int32)
        self._info = np.zeros((rows, INFO_COLUMNS), np.int64)
        self._rate = media.rate
        self.clock_ms = 0.0
        self.received = bytearray()

    def read_tick(self) -> Iterator[tuple[float, bool, bool]]:
        """Wait for the next tick; yields (ms since connected, agent is audible, caller is audible) for each 20 ms."""
        if not self._endpoint.pump.wait(200):
            return
        self._endpoint.pump.read(self._rx_audio, self._tx_audio, self._counts, self._info)
        count = int(self._counts[self._row])
        frame = self._rate // 50
        for start in range(0, count - frame + 1, frame):
            self.clock_ms += 20.0
            self.received += self._rx_audio[self._row, start : start + frame].tobytes()
            agent = _is_audible(self._rx_audio[self._row, start : start + frame])
            yield self.clock_ms, agent, _is_audible(self._tx_audio[self._row, start : start + frame])


def _is_audible(frame: Samples) -> bool:
    return bool(np.abs(frame.astype(np.int32)).max(initial=0) >= MIN_AUDIBLE_PEAK)
