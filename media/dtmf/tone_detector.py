"""In-band DTMF detection in all calls at once (ITU-T Q.23 and Q.24).

A key is a low-group and a high-group tone at the same time. A gate looks every 20 ms at each call that is not silent,
with one matrix product: are two such tones nearly all of the power? Only then the audio is analysed in steps of 5 ms:
the frequencies follow from the phase advance between two steps, and all steps of a key must agree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_history import AudioHistory, Rows
from media.dtmf.keys import KEYPAD

FREQUENCIES_HZ: Final = (697.0, 770.0, 852.0, 941.0, 1209.0, 1336.0, 1477.0, 1633.0)
"""The low-group tones, then the high-group ones."""
FRAME_MS: Final = 20
"""Audio that one call of `ToneDetector.detect` analyses."""
STEPS_PER_FRAME: Final = 4
"""Analysis steps in a frame."""
STEP_MS: Final = FRAME_MS // STEPS_PER_FRAME
WINDOW_MS: Final = 25
"""Length of an analysis window, weighted by a Hann window: neighbouring tones are 27 dB apart in it."""
LOOKBACK_STEPS: Final = 8
"""Steps before the frame that are analysed too when the gate opens: the beginning of the key."""

MIN_TONE_SHARE: Final = 0.75
"""Minimum share of the two tones in the total power: noise 5 dB below them is allowed."""
GATE_MIN_TONE_SHARE: Final = 0.4
"""The same for the gate, which knows the frequencies less precisely."""
MIN_LEVEL_DB: Final = -46.0
"""Minimum power of each tone, dB of a full-scale square wave: about -40 dBm0, 15 dB below the level that must be
detected."""
MAX_REVERSE_TWIST_DB: Final = 6.0
MAX_NORMAL_TWIST_DB: Final = 10.0
"""Maximum twist, the level difference of the two tones: reverse twist (high over low) and normal twist (low over high).
Q.24, table A-1, requires 4 and 8 dB; the margin is for measurement errors."""
MIN_SEPARATION_DB: Final = 8.0
"""Minimum level of each tone over the other three of its group."""
MAX_FREQUENCY_DEVIATION: Final = 0.025
"""Relative deviation from the nominal frequency that is rejected; 1.5 % must be accepted, 3.5 % rejected."""
DETECT_STEPS: Final = 5
"""Consecutive steps that make a key: 32 ms of tone. 40 ms must be detected, 20 ms must not."""
RELEASE_STEPS: Final = 6
"""Consecutive steps without the tone that end a key: 25 ms. A break of 10 ms must be bridged, one of 40 ms separates
two presses."""
_NEVER: Final = 1e9

_Complex = NDArray[np.complex64]
_Real = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class DetectedTone:
    """A key in a row. Its tone began `age_ms` before the end of the frame in which it was detected."""

    row: int
    digit: str
    age_ms: float


@dataclass(slots=True)
class _KeyTracker:
    """The recent steps of a row."""

    active_key: int = -1
    """The key whose tone is on: low * 4 + high; -1: none."""
    missed: int = 0
    """Steps since its tone was last present."""
    key: int = -1
    """The candidate: the key on which the last steps agree; -1: none."""
    steps: int = 0
    """Number of those steps."""
    idle: int = 0
    """Steps since any key's tone was present."""

    def advance(self, key: int) -> bool:
        """Take a step; returns True if it completes a key."""
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
    """The eight filters at one sample rate."""

    def __init__(self, rate: int) -> None:
        self.length = WINDOW_MS * rate // 1000
        self.step = STEP_MS * rate // 1000
        weights = np.hanning(self.length + 2)[1:-1]
        time = (np.arange(self.length) - (self.length - 1) / 2) / rate
        filters = np.exp(-2j * np.pi * time[:, np.newaxis] * np.array(FREQUENCIES_HZ)) * weights[:, np.newaxis]
        scaled = filters * (np.sqrt(2) / weights.sum() / 32768)  # |X|^2 is the tone's power
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
    """DTMF detection for all rows. `active[row]`: a tone is present or has just ended; `since_ms[row]`: ms since
    then."""

    def __init__(self, rows: int, rates: tuple[int, ...]) -> None:
        self.active = np.zeros(rows, np.bool_)
        self.since_ms = np.full(rows, _NEVER)
        self._tracked = np.zeros(rows, np.bool_)
        self._trackers = [_KeyTracker() for _ in range(rows)]
        self._last_spectrum: _Complex = np.zeros((rows, 8), np.complex64)  # the spectrum of the last step
        self._banks = {rate: _FilterBank(rate) for rate in rates}

    def open(self, row: int) -> None:
        """Begin a call in a row."""
        self._trackers[row] = _KeyTracker()
        self._tracked[row] = self.active[row] = False
        self.since_ms[row] = _NEVER

    def detect(
        self, history: AudioHistory, rows: Rows, ends: NDArray[np.int64], sounding: NDArray[np.bool_], rate: int
    ) -> list[DetectedTone]:
        """Analyse the next frame of 20 ms of each of `rows`, which ends before index `ends` of the row's audio. Only a
        row that is `sounding` can begin a key. Returns the keys detected now, each once."""
        bank, tracked = self._banks[rate], self._tracked[rows]
        new = sounding & ~tracked
        if new.any():
            chosen = np.flatnonzero(new)
            new[chosen] = _may_be_key(
                *bank.spectrum(history.gather(rows[chosen], ends[chosen] - bank.length, bank.length))
            )
        detected: list[DetectedTone] = []
        for which, steps in ((tracked, STEPS_PER_FRAME), (new, STEPS_PER_FRAME + LOOKBACK_STEPS)):
            if which.any():
                detected += self._track(history, rows[which], ends[which], bank, steps)
        self.since_ms[rows] = np.where(self.active[rows], 0.0, self.since_ms[rows] + FRAME_MS)
        return detected

    def _track(
        self, history: AudioHistory, rows: Rows, ends: NDArray[np.int64], bank: _FilterBank, steps: int
    ) -> list[DetectedTone]:
        """Analyse the steps of a frame (and those before it, for a larger `steps`)."""
        back = np.arange(steps - 1, -1, -1) * bank.step + bank.length
        starts = ends[:, np.newaxis] - back
        sound = history.gather(np.repeat(rows, steps), starts.reshape(-1), bank.length)
        spectrum, power = bank.spectrum(sound)
        spectrum, power = spectrum.reshape(-1, steps, 8), power.reshape(-1, steps)
        first = spectrum[:, 0] if steps > STEPS_PER_FRAME else self._last_spectrum[rows]
        keys = _classify_steps(spectrum, power, first)
        self._last_spectrum[rows] = spectrum[:, -1]
        detected: list[DetectedTone] = []
        for row, row_keys in zip(rows.tolist(), keys.tolist(), strict=True):
            tracker = self._trackers[row]
            for later_steps, key in zip(range(steps - 1, -1, -1), row_keys, strict=True):
                if tracker.advance(key):
                    age_ms = (later_steps + DETECT_STEPS) * STEP_MS + (WINDOW_MS - STEP_MS) / 2
                    detected.append(DetectedTone(row, KEYPAD[key // 4][key % 4], age_ms))
            self._end_frame(row, tracker)
        return detected

    def _end_frame(self, row: int, tracker: _KeyTracker) -> None:
        """At the end of a frame: update whether the row is analysed further and whether a tone is present."""
        self._tracked[row] = tracker.idle < RELEASE_STEPS
        self.active[row] = tracker.active_key >= 0 or (tracker.key >= 0 and tracker.steps > 1)
        if tracker.idle >= RELEASE_STEPS:
            self._trackers[row] = _KeyTracker()


def _may_be_key(spectrum: _Complex, power: _Real) -> NDArray[np.bool_]:
    """The gate: a mask of the windows that may contain a key."""
    strength = spectrum.real**2 + spectrum.imag**2
    tones = strength[:, :4].max(axis=1) + strength[:, 4:].max(axis=1)
    likely: NDArray[np.bool_] = (tones > GATE_MIN_TONE_SHARE * power) & (power > 10 ** (MIN_LEVEL_DB / 10))
    return likely


def _classify_steps(spectrum: _Complex, power: _Real, before: _Complex) -> NDArray[np.int64]:
    """The key of each step, -1 where there is none: `complex64[n, steps, 8]`, `float32[n, steps]` -> `int64[n, steps]`.
    `before` (`complex64[n, 8]`) is the step before the first one."""
    strength = spectrum.real**2 + spectrum.imag**2
    low, high = strength[..., :4].argmax(axis=-1), strength[..., 4:].argmax(axis=-1)
    pair = np.stack([low, high + 4], axis=-1)
    nominal = np.array(FREQUENCIES_HZ)[pair]
    earlier = np.concatenate([before[:, np.newaxis], spectrum[:, :-1]], axis=1)
    advance = np.angle(np.take_along_axis(spectrum * earlier.conj(), pair, axis=-1))
    turns = advance / (2 * np.pi) - nominal * (STEP_MS / 1000)
    off = (turns - np.rint(turns)) * (1000 / STEP_MS)  # Hz
    tones = np.take_along_axis(strength, pair, axis=-1) / _window_response(off) ** 2
    level = 10 * np.log10(tones + 1e-12)
    balance = level[..., 1] - level[..., 0]
    good = (tones.sum(axis=-1) > MIN_TONE_SHARE * power) & (level.min(axis=-1) > MIN_LEVEL_DB)
    good &= (balance < MAX_REVERSE_TWIST_DB) & (balance > -MAX_NORMAL_TWIST_DB)
    good &= (np.abs(off) < MAX_FREQUENCY_DEVIATION * nominal).all(axis=-1)
    good &= _stands_out(strength[..., :4]) & _stands_out(strength[..., 4:])
    keys: NDArray[np.int64] = np.where(good, low * 4 + high, -1)
    return keys


def _window_response(offset_hz: NDArray[np.float64]) -> NDArray[np.float64]:
    """The response of a Hann window of WINDOW_MS to a tone at this offset from the filter's centre; offsets over 40 Hz
    are not compensated."""
    bins = np.minimum(np.abs(offset_hz), 40.0) * (WINDOW_MS / 1000)
    response: NDArray[np.float64] = np.sinc(bins) / (1 - np.minimum(bins, 0.999) ** 2)
    return response


def _stands_out(group: _Real) -> NDArray[np.bool_]:
    """True where the strongest of four tones is far above the second: `float32[..., 4]` -> `bool[...]`."""
    ordered = np.sort(group, axis=-1)
    apart: NDArray[np.bool_] = ordered[..., 3] > 10 ** (MIN_SEPARATION_DB / 10) * ordered[..., 2]
    return apart
