"""Echo cancellation of one call: its delay, the adaptive filter, and residual echo suppression.

The filter's output is attenuated as far as it is likely to be residual echo, but never below the noise of the line."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.audio_history import AudioHistory, Cursor
from media.audio_port import Samples
from media.echo.delay_estimator import CORRELATION_MS
from media.echo.speex import FRAME_MS, AdaptiveFilter
from media.vad.silero import WINDOW_MS

LEAD_MS: Final = 16
"""Time by which the filter begins before the estimated delay: the strongest path need not be the first."""
ADAPTATION_PASSES: Final = 3
"""Passes of a new filter over the history, so that it does not have to wait for new audio to adapt."""
MAX_ADAPTATION_FRAMES: Final = 40
"""Maximum number of frames of the history, the newest 0.8 s: other calls wait."""
MIN_GAIN: Final = 0.1
"""Residual echo suppression attenuates by 20 dB at most."""
NOTCH_SHARE: Final = 0.1
"""Share of the filter's output by which it differs from the input because of the notch filter alone, as energy."""
INITIAL_LEAK: Final = 0.5
MIN_LEAK: Final = 0.1
"""Lower bound of the leakage estimate when it decides whether the caller speaks."""
REVERB_FRAMES: Final = 12
"""Reverberation beyond the filter's length dies away within 240 ms."""
MAX_WINDOW_RESIDUAL: Final = 0.1
"""Maximum residual share of a window (32 ms) in which only the agent spoke,"""
MAX_RESIDUAL: Final = 0.25
"""and of 128 ms: a caller who speaks over the agent is at most 6 dB softer than the echo."""
SINGLE_TALK_RESIDUAL: Final = 0.5
"""Below this residual relative to the echo the caller is silent, and the leakage can be measured."""
_LEAK_SHARE: Final = 0.1
_LEAK_MARGIN: Final = 2.0
"""The residual counts as echo up to this multiple of the usual leakage."""
NOISE_MARGIN: Final = 2.0
"""Momentary noise can be 3 dB above its minimum."""
_NOISE_RISE: Final = 1.01
"""Factor per frame, 2 dB/s: the noise estimate is the minimum of the recent energy."""
INEFFECTIVE_FRAMES: Final = 150
"""Frames with sound (3 s) after which a filter that removed nothing is dropped: what it adapted to was no echo."""
INEFFECTIVE_RESIDUAL: Final = 0.7
"""Residual share up to which a filter has removed something."""
_MAX_ENERGY: Final = 4.0 * 32768**2
_MIN_SOUND_ENERGY: Final = 300.0
"""Minimum energy of a frame with sound in it, about -60 dBFS."""

Signal = NDArray[np.float32]


class EchoCanceller:
    """Cancels the echo in one row of a history. `lag_ms` is the estimated echo delay."""

    def __init__(self, history: AudioHistory, row: int, rate: int, lag_ms: float, canceller: AdaptiveFilter) -> None:
        """A new filter; it has to `adapt` to the history first."""
        self.lag_ms = lag_ms
        self._history = history
        self._row = row
        self._frame = FRAME_MS * rate // 1000
        self._delay = round(max(lag_ms - LEAD_MS, 0.0) * rate / 1000)
        self._filter = canceller
        self._leak = INITIAL_LEAK  # energy of the residual relative to the echo
        self._echo_energies: deque[float] = deque(maxlen=REVERB_FRAMES)  # energy of the echo in the last frames
        self._gain = 1.0
        self._ramp = np.linspace(0, 1, self._frame, dtype=np.float32)
        self._noise = _MAX_ENERGY
        self._frames = 0
        self._received_energy = self._residual_energy = 0.0  # of the frames with sound: received, and after the filter
        self._passes = 0  # completed
        history.keep_original(row)
        history.cursor[row, Cursor.ADAPTED] = first = self._pass_start()
        for start in range(self._oldest_frame(), first, self._frame):
            self._track_noise(energy(history.original(row, start, start + self._frame)))

    @property
    def adapted(self) -> bool:
        """True if the filter has adapted to all of the history: from now on it can `process`."""
        return self._passes == ADAPTATION_PASSES

    def adapt(self, frames: int) -> int:
        """Continue the adaptation for a number of frames; returns the number of frames left over once it is
        `adapted`. Raises the filter's errors."""
        cursor = self._history.cursor[self._row]
        while frames > 0 and not self.adapted:
            at = int(cursor[Cursor.ADAPTED])
            lost = max(self._delay - at, 0)
            at += -(-lost // self._frame) * self._frame
            if at + self._frame > cursor[Cursor.READY]:
                self._passes += 1
                cursor[Cursor.ADAPTED] = self._pass_start()
                continue
            rx_audio, _ = self._cancel(at)
            if self._passes == ADAPTATION_PASSES - 1:
                self._track_noise(energy(rx_audio))
            cursor[Cursor.ADAPTED] = at + self._frame
            frames -= 1
        return frames

    def is_pure_echo(self, end: int, per_ms: int) -> bool:
        """True if the filter has removed nearly all of the recent audio up to an index: only the agent speaks."""
        return all(self._low_residuals(end, per_ms))

    def may_be_pure_echo(self, end: int, per_ms: int) -> bool:
        """True if the recent audio up to an index can be the agent's alone: little of it is left, or no more than the
        usual leakage of an echo as loud as the last ones."""
        if any(self._low_residuals(end, per_ms)):
            return True
        now = energy(self._history.rx_audio[self._row, end - WINDOW_MS * per_ms : end]) - NOISE_MARGIN * self._noise
        return now < _LEAK_MARGIN * max(self._leak, MIN_LEAK) * max(self._echo_energies, default=0.0)

    @property
    def ineffective(self) -> bool:
        """True if the filter has removed next to nothing of several seconds of sound."""
        return (
            self._frames >= INEFFECTIVE_FRAMES and self._residual_energy > INEFFECTIVE_RESIDUAL * self._received_energy
        )

    def process(self) -> None:
        """Cancel the echo in all whole frames that have arrived."""
        cursor = self._history.cursor[self._row]
        ready, end = int(cursor[Cursor.READY]), int(cursor[Cursor.END])
        for start in range(ready, end - self._frame + 1, self._frame):
            rx_audio, residual = self._cancel(start)
            self._history.rx_audio[self._row, start : start + self._frame] = self._suppress_residual(rx_audio, residual)
            cursor[Cursor.READY] = start + self._frame

    def close(self) -> None:
        """Free the filter."""
        self._filter.close()

    def _residual_share(self, end: int, count: int) -> float:
        """The residual share of the energy of the last `count` samples, apart from the noise."""
        residual = energy(self._history.rx_audio[self._row, end - count : end]) - NOISE_MARGIN * self._noise
        return residual / (energy(self._history.original(self._row, end - count, end)) + 1.0)

    def _low_residuals(self, end: int, per_ms: int) -> Iterator[bool]:
        yield self._residual_share(end, WINDOW_MS * per_ms) < MAX_WINDOW_RESIDUAL
        yield self._residual_share(end, CORRELATION_MS * per_ms) < MAX_RESIDUAL

    def _pass_start(self) -> int:
        """The start of a pass over the history, which ends with the last sample that may be judged: audio from before
        the agent's first sound is left out."""
        begin, end = self._oldest_frame(), int(self._history.cursor[self._row, Cursor.READY])
        sounds = self._history.tx_audio[self._row, begin - self._delay : end - self._delay] != 0
        silent = int(sounds.argmax()) if sounds.any() else len(sounds)
        return begin + silent // self._frame * self._frame

    def _oldest_frame(self) -> int:
        ready = int(self._history.cursor[self._row, Cursor.READY])
        return ready - min((ready - self._delay) // self._frame, MAX_ADAPTATION_FRAMES) * self._frame

    def _cancel(self, start: int) -> tuple[Samples, Samples]:
        rx_audio = self._history.original(self._row, start, start + self._frame)
        before = start - self._delay
        return rx_audio, self._filter.cancel(rx_audio, self._history.tx_audio[self._row, before : before + self._frame])

    def _suppress_residual(self, rx_audio: Samples, residual: Samples) -> Samples:
        received, suppressed = rx_audio.astype(np.float32), residual.astype(np.float32)
        received_energy, residual_energy = energy(received), energy(suppressed)
        echo = max(energy(received - suppressed) - NOTCH_SHARE * residual_energy, 0.0)
        self._track_noise(received_energy)
        self._track_leak(received_energy, residual_energy, echo)
        self._echo_energies.append(echo)
        echo_share = _LEAK_MARGIN * self._leak * echo / (residual_energy + 1.0)
        min_gain = max(MIN_GAIN, min((self._noise / (residual_energy + 1.0)) ** 0.5, 1.0))
        gain = max(1.0 - echo_share, min_gain**2) ** 0.5
        suppressed *= self._gain + (gain - self._gain) * self._ramp
        self._gain = gain
        return np.rint(suppressed).astype(np.int16)

    def _track_leak(self, received: float, residual: float, echo: float) -> None:
        noise = NOISE_MARGIN * self._noise
        if received < _MIN_SOUND_ENERGY + noise:
            return
        received, residual = received - noise, max(residual - noise, 0.0)
        self._frames += 1
        self._received_energy += received
        self._residual_energy += residual
        if residual < SINGLE_TALK_RESIDUAL * echo:
            self._leak += _LEAK_SHARE * (residual / echo - self._leak)

    def _track_noise(self, energy: float) -> None:
        if energy > 0.0:  # lost packets are filled with zeros
            self._noise = min(energy, self._noise * _NOISE_RISE)


def energy(samples: Samples | Signal) -> float:
    """Mean square of the differences from sample to sample, which weights high frequencies more. The canceller's notch
    filter turns the phase of low ones (under 130 Hz at 8 kHz), which must not look like an echo."""
    whole = samples.astype(np.float32, copy=False)
    steps = whole[1:] - whole[:-1]
    return float(steps @ steps) / len(steps)
