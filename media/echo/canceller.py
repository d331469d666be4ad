"""Echo cancellation of one call: its delay, the adaptive filter, and the suppression of the residual echo.

What the filter leaves is turned down as far as it is likely to be echo still, but never under the noise of the line.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_history import AudioHistory, Cursor
from media.audio_port import Samples
from media.echo.delay_estimator import LOOK_MS
from media.echo.speex import FRAME_MS, AdaptiveFilter
from media.vad.silero import WINDOW_MS

LEAD_MS: Final = 16
"""The filter begins so long before the delay that was found: the strongest path need not be the first."""
PASSES: Final = 3
"""A new filter goes so many times over what has been heard so far, instead of learning only from what comes."""
MOST_FRAMES: Final = 40
"""Of no more than the newest so many frames, 0.8 s: other lines wait."""
LEAST_GAIN: Final = 0.1
"""What the filter leaves is turned down by no more than 20 dB."""
NOTCH_SHARE: Final = 0.1
"""So much of what the filter leaves differs from what came in by the notch filter alone, as energy."""
LEAK_AT_FIRST: Final = 0.5
LEAST_LEAK: Final = 0.1
"""The filter is never trusted further than this when it is asked whether somebody else speaks."""
LAST_FRAMES: Final = 12
"""Reverberation that the filter does not reach dies away within 240 ms."""
LEFT_NOW: Final = 0.1
"""No more than this is left of a window (32 ms) in which nobody spoke but the agent,"""
LEFT: Final = 0.25
"""and no more than this of 128 ms: a caller who speaks over the agent is at most 6 dB softer than the echo."""
ALONE: Final = 0.5
"""While no more than this is left of the echo, nobody else speaks, and what is left can be measured."""
_LEAK_SHARE: Final = 0.1
_LEAK_MARGIN: Final = 2.0
"""The residual is taken for echo up to this many times its usual share of the echo."""
NOISE_MARGIN: Final = 2.0
"""Noise is at times 3 dB above its least."""
_NOISE_RISE: Final = 1.01
"""Per frame, 2 dB/s: the line's noise is the least energy of late."""
USELESS_FRAMES: Final = 150
"""After so much sound of which nothing was explained, 3 s, it is no echo that was learned."""
USELESS: Final = 0.7
"""Of what no more than this is left, something was explained."""
_LOUDEST: Final = 4.0 * 32768**2
_SOUND: Final = 300.0
"""Energy of a frame with sound in it, some -60 dBFS."""

Signal = NDArray[np.float32]


class EchoCanceller:
    """Takes the echo out of one row of a history. `lag_ms` is the delay that was found."""

    def __init__(self, history: AudioHistory, row: int, rate: int, lag_ms: float, canceller: AdaptiveFilter) -> None:
        """It knows nothing yet: it is to `learn` from what the history holds."""
        self.lag_ms = lag_ms
        self._history = history
        self._row = row
        self._frame = FRAME_MS * rate // 1000
        self._behind = round(max(lag_ms - LEAD_MS, 0.0) * rate / 1000)
        self._filter = canceller
        self._leak = LEAK_AT_FIRST  # energy of what is left of the echo, against the echo's
        self._echoes: deque[float] = deque(maxlen=LAST_FRAMES)  # their energy
        self._gain = 1.0
        self._ramp = np.linspace(0, 1, self._frame, dtype=np.float32)
        self._noise = _LOUDEST
        self._frames = 0
        self._energy = self._left = 0.0  # of the frames that sound, what came in and what the filter left
        self._passes = 0  # that are done
        history.keep_original(row)
        history.cursor[row, Cursor.ADAPTED] = first = self._first()
        for start in range(self._begin(), first, self._frame):
            self._follow_noise(energy(history.original(row, start, start + self._frame)))

    @property
    def adapted(self) -> bool:
        """It has learned all that the history holds: from now on it can `process`."""
        return self._passes == PASSES

    def adapt(self, frames: int) -> int:
        """Go on learning from so many frames; returns how many of them were too many, because it has `learned`. Raises
        what the canceller raises."""
        cursor = self._history.cursor[self._row]
        while frames > 0 and not self.adapted:
            at = int(cursor[Cursor.ADAPTED])
            lost = max(self._behind - at, 0)
            at += -(-lost // self._frame) * self._frame
            if at + self._frame > cursor[Cursor.READY]:
                self._passes += 1
                cursor[Cursor.ADAPTED] = self._first()
                continue
            rx_audio, _left = self._cancel(at)
            if self._passes == PASSES - 1:
                self._follow_noise(energy(rx_audio))
            cursor[Cursor.ADAPTED] = at + self._frame
            frames -= 1
        return frames

    def removed_all(self, end: int, per_ms: int) -> bool:
        """True if next to nothing is left of what came in of late, up to an index: nobody speaks but the agent."""
        return self._left_of(end, WINDOW_MS * per_ms) < LEFT_NOW and self._left_of(end, LOOK_MS * per_ms) < LEFT

    def explains(self, end: int, per_ms: int) -> bool:
        """True if what came in of late, up to an index, can be the agent's alone: little is left of it, or no more than
        the filter usually leaves of an echo as loud as the last ones."""
        if self._left_of(end, WINDOW_MS * per_ms) < LEFT_NOW or self._left_of(end, LOOK_MS * per_ms) < LEFT:
            return True
        now = energy(self._history.rx_audio[self._row, end - WINDOW_MS * per_ms : end]) - NOISE_MARGIN * self._noise
        return now < _LEAK_MARGIN * max(self._leak, LEAST_LEAK) * max(self._echoes, default=0.0)

    @property
    def ineffective(self) -> bool:
        """It has explained next to nothing of a lot of sound."""
        return self._frames >= USELESS_FRAMES and self._left > USELESS * self._energy

    def process(self) -> None:
        """Take the echo out of all whole frames that have come."""
        cursor = self._history.cursor[self._row]
        ready, end = int(cursor[Cursor.READY]), int(cursor[Cursor.END])
        for start in range(ready, end - self._frame + 1, self._frame):
            rx_audio, left = self._cancel(start)
            self._history.rx_audio[self._row, start : start + self._frame] = self._suppress_residual(rx_audio, left)
            cursor[Cursor.READY] = start + self._frame

    def close(self) -> None:
        """No more."""
        self._filter.close()

    def _left_of(self, end: int, count: int) -> float:
        """The share of the energy of so many samples that is left, apart from the noise."""
        left = energy(self._history.rx_audio[self._row, end - count : end]) - NOISE_MARGIN * self._noise
        return left / (energy(self._history.original(self._row, end - count, end)) + 1.0)

    def _first(self) -> int:
        """Where a pass over the history begins, so that it ends with the last sample that may be judged: nothing is
        learned from what came before the agent's first sound."""
        begin, end = self._begin(), int(self._history.cursor[self._row, Cursor.READY])
        sounds = self._history.tx_audio[self._row, begin - self._behind : end - self._behind] != 0
        silent = int(sounds.argmax()) if sounds.any() else len(sounds)
        return begin + silent // self._frame * self._frame

    def _begin(self) -> int:
        ready = int(self._history.cursor[self._row, Cursor.READY])
        return ready - min((ready - self._behind) // self._frame, MOST_FRAMES) * self._frame

    def _cancel(self, start: int) -> tuple[Samples, Samples]:
        rx_audio = self._history.original(self._row, start, start + self._frame)
        before = start - self._behind
        return rx_audio, self._filter.cancel(rx_audio, self._history.tx_audio[self._row, before : before + self._frame])

    def _suppress_residual(self, rx_audio: Samples, left: Samples) -> Samples:
        before, whole = rx_audio.astype(np.float32), left.astype(np.float32)
        came, remains = energy(before), energy(whole)
        echo = max(energy(before - whole) - NOTCH_SHARE * remains, 0.0)
        self._follow_noise(came)
        self._follow_leak(came, remains, echo)
        self._echoes.append(echo)
        likely = _LEAK_MARGIN * self._leak * echo / (remains + 1.0)
        least = max(LEAST_GAIN, min((self._noise / (remains + 1.0)) ** 0.5, 1.0))
        gain = max(1.0 - likely, least**2) ** 0.5
        whole *= self._gain + (gain - self._gain) * self._ramp
        self._gain = gain
        return np.rint(whole).astype(np.int16)

    def _follow_leak(self, came: float, remains: float, echo: float) -> None:
        noise = NOISE_MARGIN * self._noise
        if came < _SOUND + noise:
            return
        came, remains = came - noise, max(remains - noise, 0.0)
        self._frames += 1
        self._energy += came
        self._left += remains
        if remains < ALONE * echo:
            self._leak += _LEAK_SHARE * (remains / echo - self._leak)

    def _follow_noise(self, energy: float) -> None:
        if energy > 0.0:  # what was lost on the way is filled with zeros
            self._noise = min(energy, self._noise * _NOISE_RISE)


def energy(samples: Samples | Signal) -> float:
    """Mean square of the differences from sample to sample: what lies high counts more. The canceller turns the phase
    of what lies low (under 130 Hz at 8 kHz) with a notch filter, which must not look like an echo."""
    whole = samples.astype(np.float32, copy=False)
    steps = whole[1:] - whole[:-1]
    return float(steps @ steps) / len(steps)
