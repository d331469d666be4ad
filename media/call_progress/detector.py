"""Detection of call progress tones, and of uninterrupted sound such as hold music, in one call's audio.

Frames of 32 ms, 10 ms apart, at fixed positions in the stream: chunks of any size give the same tones. They are
analysed in blocks of 100 ms."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import numpy as np

from media.audio_port import Samples
from media.call_progress.bursts import BurstTracker
from media.call_progress.cadence import CED_MS, CallProgressCadence, Match, SingleToneCadence
from media.call_progress.spectrum import HOP_MS, Frames, SpectrumAnalyzer
from media.call_progress.tones import Tone

RATES: Final = (8000, 16000)
BLOCK_FRAMES: Final = 10
"""Frames that are analysed at once."""
TONE_TOLERANCE_HZ: Final = 15.0
BAND_TOLERANCE_HZ: Final = 60.0
"""The centre of two tones moves with their beat."""
SOUND_DB: Final = -36.0
"""Frames from this level on (dB of a full-scale square wave) are sound: above the usual noise of a line."""
SOUND_GAP_MS: Final = 300
"""A longer gap ends a sound; music has rests."""
MAX_TONE_SHARE: Final = 0.7
"""Sound of more tones than this is a tone, such as a dial tone, and no music;"""
MIN_NOTE_SHARE: Final = 0.35
"""and sound in which a smaller share of frames belongs to notes is noise, or the talk of many people."""
NOTE_FRAMES: Final = 12
"""A frequency that stands out belongs to a note if it already did so many frames before: the harmonics of voices move.
(2.5 s of music have a share of 0.4 at least, of babble 0.27 at most.)"""
NOTE_TOLERANCE_HZ: Final = 12.0


class UninterruptedSound:
    """The sound that goes on now, by frames."""

    def __init__(self) -> None:
        self._frames = self._tones = self._notes = self._gap = 0
        self._peaks_hz: deque[float | None] = deque(maxlen=NOTE_FRAMES)

    @property
    def duration_ms(self) -> float:
        """Its length in ms; 0 for tones and noise."""
        is_tone = self._tones > MAX_TONE_SHARE * self._frames
        is_noise = self._notes < MIN_NOTE_SHARE * self._frames
        return 0.0 if is_tone or is_noise else float(self._frames * HOP_MS)

    def push(self, level_db: float, *, is_tone: bool, peak_hz: float | None) -> None:
        """Take the next frame. `peak_hz`: the frequency that stands out, if one does."""
        before_hz = self._peaks_hz[0] if len(self._peaks_hz) == NOTE_FRAMES else None
        is_note = peak_hz is not None and before_hz is not None and abs(peak_hz - before_hz) <= NOTE_TOLERANCE_HZ
        self._peaks_hz.append(peak_hz)
        if level_db >= SOUND_DB:
            self._frames += self._gap + 1
            self._tones += is_tone
            self._notes += is_note
            self._gap = 0
        elif self._frames:
            self._gap += 1
            if self._gap * HOP_MS > SOUND_GAP_MS:
                self._frames = self._tones = self._notes = self._gap = 0


class CallProgressDetector:
    """The tones of one call, whose audio has the sample rate `rate` (of `RATES`; else `ValueError`)."""

    def __init__(self, rate: int) -> None:
        if rate not in RATES:
            raise ValueError(f"rate {rate} Hz: only 8000 and 16000 are supported")
        self._spectrum = SpectrumAnalyzer(rate)
        self._block = self._spectrum.hop * (BLOCK_FRAMES - 1) + self._spectrum.length
        self._audio: Samples = np.zeros(0, np.int16)
        self._frame = 0
        self._single, self._band = BurstTracker(TONE_TOLERANCE_HZ), BurstTracker(BAND_TOLERANCE_HZ)
        self._tones, self._progress = SingleToneCadence(), CallProgressCadence()
        self._ms_per_sample = 1000 / rate
        self._sound = UninterruptedSound()

    @property
    def sound_ms(self) -> float:
        """How long sound other than tones and noise has gone on without a gap, in ms; 0 if none goes on."""
        return self._sound.duration_ms

    def feed(self, samples: Samples) -> list[Tone]:
        """Take the next audio, `int16[n]` of any length; returns the tones detected in it, in order."""
        self._audio = np.concatenate([self._audio, samples]) if len(self._audio) else np.array(samples, np.int16)
        tones: list[Tone] = []
        step = BLOCK_FRAMES * self._spectrum.hop
        start = 0
        while len(self._audio) - start >= self._block:
            frames = self._spectrum.analyze(self._audio[start : start + self._block], BLOCK_FRAMES)
            end_ms = self._frame * HOP_MS + self._block * self._ms_per_sample
            tones += [Tone(kind, begin, last.end_ms, end_ms, last.hz) for kind, begin, last in self._advance(frames)]
            start += step
        self._audio = self._audio[start:]
        return tones

    def _advance(self, frames: Frames) -> Iterator[Match]:
        """Take the frames of one block."""
        for index, level_db in enumerate(frames.level_db):
            frame, tonal, in_band = self._frame + index, frames.tonal[index], frames.in_band[index]
            if ended := self._single.push(frame, tonal, frames.hz[index], level_db):
                yield from self._tones.on_burst(ended)
            if ended := self._band.push(frame, in_band, frames.band_hz[index], level_db):
                yield from self._progress.on_burst(ended)
            peak_hz = frames.hz[index] if frames.peaked[index] else None
            self._sound.push(level_db, is_tone=tonal or in_band, peak_hz=peak_hz)
            yield from self._tones.on_frame(frame, tonal, level_db)
            yield from self._progress.on_frame(frame, level_db)
        self._frame += len(frames.level_db)
        if self._single.open_ms >= CED_MS and (current := self._single.current()):
            yield from self._tones.on_open_burst(current)
