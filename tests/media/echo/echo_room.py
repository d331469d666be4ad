"""A speakerphone in a small room: the sent audio returns late, softer, and through G.711 twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from media.audio_port import TICK_MS, Samples
from tests.fakes.fake_audio_port import ArrayPort

Signal = NDArray[np.float64]


def companded(samples: Signal | Samples) -> Samples:
    """Encoded and decoded with mu-law (ITU-T G.711), int16."""
    limited = np.clip(samples, -32124, 32124)
    size = np.abs(limited) + 132
    segment = np.clip(np.floor(np.log2(size)).astype(np.int64) - 7, 0, 7)
    step = np.clip(np.floor(size / 2.0 ** (segment + 3)) - 16, 0, 15)
    decoded: Samples = (np.sign(limited) * ((step * 2 + 33) * 2.0 ** (segment + 2) - 132)).astype(np.int16)
    return decoded


def room_response(rate: int, reverberation_s: float = 0.25, seed: int = 1) -> Signal:
    """The direct path, two early reflections and 100 ms of decaying noise, of energy 1."""
    t = np.arange(rate // 10) / rate
    late = np.random.default_rng(seed).normal(size=len(t)) * 10 ** (-3 * t / reverberation_s)
    response: Signal = late * (0.5 / np.sqrt((late**2).sum()))
    response[0] += 1.0
    response[3 * rate // 1000] += 0.4
    response[7 * rate // 1000] -= 0.3
    return response / np.sqrt((response**2).sum())


def band_response(rate: int) -> Signal:
    """A linear-phase filter of 8 ms that passes 200 Hz to 3.4 kHz (7 kHz at 16 kHz)."""
    count = rate // 125 + 1
    t = np.arange(count) - count // 2
    high = 3400 if rate == 8000 else 7000
    passed = [2 * edge / rate * np.sinc(2 * edge / rate * t) for edge in (200, high)]
    response: Signal = (passed[1] - passed[0]) * np.hamming(count)
    return response


@dataclass
class Room:
    """The echo path of a call at `rate` Hz: `level_db` (energy of the echo relative to the sent audio), `delay_ms` of
    the direct path, `noise` (standard deviation, samples), `distortion` of the loudspeaker (0 is none)."""

    rate: int
    level_db: float
    delay_ms: int
    noise: float = 6.0
    reverberation_s: float = 0.25
    distortion: float = 0.0

    def __post_init__(self) -> None:
        response = np.convolve(room_response(self.rate, self.reverberation_s), band_response(self.rate))
        self._response = response * 10 ** (self.level_db / 20)
        self._said: Signal = np.zeros(self.rate)
        self._random = np.random.default_rng(11)

    def receive(self, said: Samples, near: Samples) -> Samples:
        """The received audio of the tick in which `said` is sent and the caller says `near`."""
        if not len(said):
            return near
        played = self._coded(said) / 32768
        if self.distortion:
            played = np.tanh(played * self.distortion) / self.distortion
        self._said = np.concatenate([self._said[len(said) :], played * 32768])
        behind = self.rate - (self.delay_ms - 4) * self.rate // 1000  # the band filter itself takes 4 ms
        reach = len(self._response) - 1 + len(said)
        echo = np.convolve(self._said[behind - reach : behind], self._response, "valid")
        return self._coded(near + echo + self._random.normal(0, self.noise, len(near)))

    def _coded(self, samples: Signal | Samples) -> Samples:
        if self.rate == 8000:
            return companded(samples)
        return np.asarray(np.clip(np.rint(samples), -32768, 32767), np.int16)


class EchoPort(ArrayPort):
    """A port with an echo path for each call."""

    def __init__(self, rows: int = 4) -> None:
        super().__init__(rows)
        self.rooms: dict[int, Room] = {}

    def step(self, ms: int = TICK_MS) -> None:
        super().step(ms)
        for slot, room in self.rooms.items():
            line = self._slots[slot]
            line.heard[-1] = room.receive(line.said[-1], line.heard[-1])

    def newest(self, slot: int) -> Samples:
        """The received audio of the last step that has not been read."""
        return self._slots[slot].heard[-1].copy()
