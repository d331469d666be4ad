"""In-band DTMF detection in all calls at once (ITU-T Q.23 and Q.24).

A key is a low and a high tone at the same time. Every 20 ms one look at each call in which something sounds asks
whether two such tones are nearly all that is there; that is one matrix product. Only then the sound is looked at in
steps of 5 ms: the frequencies come from the advance of the phase between two steps, and all steps of a key must agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_history import AudioHistory, Rows
from media.dtmf.keys import KEYPAD

HZ: Final = (697.0, 770.0, 852.0, 941.0, 1209.0, 1336.0, 1477.0, 1633.0)
"""The low tones, then the high ones."""
FRAME_MS: Final = 20
"""`ToneDetector.detect` takes so much at a time."""
STEPS: Final = 4
"""Looks within a frame."""
STEP_MS: Final = FRAME_MS // STEPS
WINDOW_MS: Final = 25
"""Sound that a look sees, weighted by a Hann window: neighbouring tones are 27 dB apart in it."""
BACK_STEPS: Final = 8
"""When a frame looks like a key, so many steps before it are looked at too: its beginning."""

SHARE: Final = 0.75
"""The two tones are at least this part of the sound's power: noise 5 dB under them is allowed."""
GATE_SHARE: Final = 0.4
"""The same at the first look, which knows the frequencies less well."""
LEAST_DB: Final = -46.0
"""Power of each tone, dB of a full-scale square wave: about -40 dBm0, 15 dB under what must be heard."""
HIGH_OVER_LOW_DB: Final = 6.0
LOW_OVER_HIGH_DB: Final = 10.0
"""What lines do to the balance of the tones; 4 and 8 dB must be allowed (Q.24, table A-1), and a little is measured."""
APART_DB: Final = 8.0
"""Each tone stands out of the other three of its group by so much."""
OFF_KEY: Final = 0.025
"""Deviation from the nominal frequencies that is refused; 1.5 % must be allowed, 3.5 % refused."""
DETECT_STEPS: Final = 5
"""So many steps in a row make a key: 32 ms of tone. 40 ms must be heard, 20 ms must not."""
RELEASE_STEPS: Final = 6
"""So many steps without it end a key: 25 ms. A break of 10 ms must be bridged, one of 40 ms parts two presses."""
_NEVER: Final = 1e9

_Complex = NDArray[np.complex64]
_Real = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DetectedTone:
    """A key in a row. Its tone began `began_ms` before the end of the frame in which it was found."""

    row: int
    digit: str
    began_ms: float


@dataclass(slots=True)
class _KeyTracker:
    """What has been heard in a row lately."""

    active_key: int = -1
    """The key that is on: low * 4 + high; -1: none."""
    missed: int = 0
    """Steps since it was heard last."""
    key: int = -1
    """The same of the last steps, if they agree on another key,"""
    steps: int = 0
    """and how many they are."""
    idle: int = 0
    """Steps since one was any key at all."""

    def advance(self, key: int) -> bool:
        """Take a step; whether it completes a key."""
        self.idle = self.idle + 1 if key < 0 else 0
        if key >= 0 and key == self.active_key:
            self.missed = self.steps = 0
            return False
        self.missed += 1
        if self.missed >= RELEASE_STEPS:
            self.active_key = -1
        self.steps = self.steps + 1 if key == self.key else 1
        self.key = key
        if key < 0 or self.steps < DETECT_STEPS:
            return False
        self.active_key, self.missed, self.steps = key, 0, 0
        return True


class _FilterBank:
    """The eight filters at one rate."""

    def __init__(self, rate: int) -> None:
        self.length = WINDOW_MS * rate // 1000
        self.step = STEP_MS * rate // 1000
        weights = np.hanning(self.length + 2)[1:-1]
        time = (np.arange(self.length) - (self.length - 1) / 2) / rate
        filters = np.exp(-2j * np.pi * time[:, np.newaxis] * np.array(HZ)) * weights[:, np.newaxis]
        scaled = filters * (np.sqrt(2) / weights.sum() / 32768)  # |X|^2 is a tone's power
        self._filters = np.hstack([scaled.real, scaled.imag]).astype(np.float32)
        self._weights = (weights / weights.sum() / 32768**2).astype(np.float32)

    def spectrum(self, sound: NDArray[np.int16]) -> tuple[_Complex, _Real]:
        """`int16[n, length]` -> spectrum `complex64[n, 8]` and power `float32[n]`."""
        samples = sound.astype(np.float32)
        parts = samples @ self._filters
        spectrum: _Complex = parts[:, :8] + np.complex64(1j) * parts[:, 8:]
        power: _Real = (samples * samples) @ self._weights + np.float32(1e-12)
        return spectrum, power


class ToneDetector:
    """The keys in the sound of all rows. `on[row]`: a tone is being heard, or has just ended; `since_ms[row]`: how long
    ago that was."""

    def __init__(self, rows: int, rates: tuple[int, ...]) -> None:
        self.active = np.zeros(rows, np.bool_)
        self.since_ms = np.full(rows, _NEVER)
        self._watched = np.zeros(rows, np.bool_)
        self._lines = [_KeyTracker() for _ in range(rows)]
        self._before: _Complex = np.zeros((rows, 8), np.complex64)  # the spectrum of the last step
        self._banks = {rate: _FilterBank(rate) for rate in rates}

    def open(self, row: int) -> None:
        """A new call begins in a row."""
        self._lines[row] = _KeyTracker()
        self._watched[row] = self.active[row] = False
        self.since_ms[row] = _NEVER

    def detect(
        self, history: AudioHistory, rows: Rows, ends: NDArray[np.int64], sounding: NDArray[np.bool_], rate: int
    ) -> list[DetectedTone]:
        """Take the next frame of 20 ms of each of `rows`, which ends before index `ends` of the row's sound. Only those
        that are `sounding` can begin a key. Returns the keys that are heard now, each once."""
        bank, watched = self._banks[rate], self._watched[rows]
        new = sounding & ~watched
        if new.any():
            chosen = np.flatnonzero(new)
            new[chosen] = _may_be_key(
                *bank.spectrum(history.gather(rows[chosen], ends[chosen] - bank.length, bank.length))
            )
        heard: list[DetectedTone] = []
        for which, steps in ((watched, STEPS), (new, STEPS + BACK_STEPS)):
            if which.any():
                heard += self._follow(history, rows[which], ends[which], bank, steps)
        self.since_ms[rows] = np.where(self.active[rows], 0.0, self.since_ms[rows] + FRAME_MS)
        return heard

    def _follow(
        self, history: AudioHistory, rows: Rows, ends: NDArray[np.int64], bank: _FilterBank, steps: int
    ) -> list[DetectedTone]:
        """Look at the steps of a frame (and those before it, when `steps` are more)."""
        back = np.arange(steps - 1, -1, -1) * bank.step + bank.length
        starts = ends[:, np.newaxis] - back
        sound = history.gather(np.repeat(rows, steps), starts.reshape(-1), bank.length)
        spectrum, power = bank.spectrum(sound)
        spectrum, power = spectrum.reshape(-1, steps, 8), power.reshape(-1, steps)
        first = spectrum[:, 0] if steps > STEPS else self._before[rows]
        keys = _keys_of(spectrum, power, first)
        self._before[rows] = spectrum[:, -1]
        heard: list[DetectedTone] = []
        for row, of_row in zip(rows.tolist(), keys.tolist(), strict=True):
            line = self._lines[row]
            for left, key in zip(range(steps - 1, -1, -1), of_row, strict=True):
                if line.advance(key):
                    began = (left + DETECT_STEPS) * STEP_MS + (WINDOW_MS - STEP_MS) / 2
                    heard.append(DetectedTone(row, KEYPAD[key // 4][key % 4], began))
            self._close(row, line)
        return heard

    def _close(self, row: int, line: _KeyTracker) -> None:
        """A frame is over: is it worth looking on, and does a tone sound?"""
        self._watched[row] = line.idle < RELEASE_STEPS
        self.active[row] = line.active_key >= 0 or (line.key >= 0 and line.steps > 1)
        if line.idle >= RELEASE_STEPS:
            self._lines[row] = _KeyTracker()


def _may_be_key(spectrum: _Complex, power: _Real) -> NDArray[np.bool_]:
    """Whether a look may be one at a key."""
    strength = spectrum.real**2 + spectrum.imag**2
    tones = strength[:, :4].max(axis=1) + strength[:, 4:].max(axis=1)
    likely: NDArray[np.bool_] = (tones > GATE_SHARE * power) & (power > 10 ** (LEAST_DB / 10))
    return likely


def _keys_of(spectrum: _Complex, power: _Real, before: _Complex) -> NDArray[np.int64]:
    """The key of each step, -1 where there is none: `complex64[n, steps, 8]`, `float32[n, steps]` -> `int64[n, steps]`.
    `before` (`complex64[n, 8]`) is the step before the first one."""
    strength = spectrum.real**2 + spectrum.imag**2
    low, high = strength[..., :4].argmax(axis=-1), strength[..., 4:].argmax(axis=-1)
    pair = np.stack([low, high + 4], axis=-1)
    nominal = np.array(HZ)[pair]
    earlier = np.concatenate([before[:, np.newaxis], spectrum[:, :-1]], axis=1)
    advance = np.angle(np.take_along_axis(spectrum * earlier.conj(), pair, axis=-1))
    turns = advance / (2 * np.pi) - nominal * (STEP_MS / 1000)
    off = (turns - np.rint(turns)) * (1000 / STEP_MS)  # Hz
    tones = np.take_along_axis(strength, pair, axis=-1) / _response(off) ** 2
    level = 10 * np.log10(tones + 1e-12)
    balance = level[..., 1] - level[..., 0]
    good = (tones.sum(axis=-1) > SHARE * power) & (level.min(axis=-1) > LEAST_DB)
    good &= (balance < HIGH_OVER_LOW_DB) & (balance > -LOW_OVER_HIGH_DB)
    good &= (np.abs(off) < OFF_KEY * nominal).all(axis=-1)
    good &= _stands_out(strength[..., :4]) & _stands_out(strength[..., 4:])
    keys: NDArray[np.int64] = np.where(good, low * 4 + high, -1)
    return keys


def _response(off_hz: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a Hann window of WINDOW_MS leaves of a tone so far from the filter's middle; at most 40 Hz are made good."""
    bins = np.minimum(np.abs(off_hz), 40.0) * (WINDOW_MS / 1000)
    response: NDArray[np.float64] = np.sinc(bins) / (1 - np.minimum(bins, 0.999) ** 2)
    return response


def _stands_out(group: _Real) -> NDArray[np.bool_]:
    """Whether the strongest of four is far above the second: `float32[..., 4]` -> `bool[...]`."""
    ordered = np.sort(group, axis=-1)
    apart: NDArray[np.bool_] = ordered[..., 3] > 10 ** (APART_DB / 10) * ordered[..., 2]
    return apart
