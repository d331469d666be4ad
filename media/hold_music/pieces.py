"""The built-in hold music: three calm pieces, composed for this server and synthesized, so that no recording has to be
shipped or licensed.

Each is a seamless loop of steady loudness, made for a telephone: its notes have their energy between 150 and 3,400 Hz,
and nothing in it is so short or so high that a codec or a noise suppressor would tear it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from media.audio_port import Samples
from media.background.loop_synthesis import SAMPLE_RATE, Loop, add_reverb, apply_filter, band_pass, normalize_level
from media.hold_music.instruments import Instrument, electric_piano, pad, plucked_string, vibraphone
from media.hold_music.loudness import even_out, limit_peaks
from media.hold_music.score import Note, parse_chords, parse_melody

_BEATS_PER_BAR: Final = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of hold music. `render` returns mono int16 at SAMPLE_RATE, the same each time, and takes some tenths of a
    second of CPU time."""

    key: str
    render: Callable[[], Samples]


def _evening() -> Samples:
    """Electric piano in G major at 71 beats a minute: chords, and a slow melody above them."""
    bars = parse_chords("""
        G2 B3 D4 F#4 A4 | E2 B3 D4 F#4 G4 | A2 C4 E4 G4 B4 | D3 C4 E4 G4 A4 |
        G2 B3 D4 F#4 A4 | E2 B3 D4 F#4 G4 | C3 B3 D4 E4 G4 | D3 C4 E4 F#4 B4 |
        E2 B3 D4 F#4 G4 | B2 A3 D4 F#4 A4 | C3 B3 D4 E4 G4 | B2 B3 D4 G4 A4 |
        A2 C4 E4 G4 B4 | B2 D4 F#4 A4 D5 | C3 E4 G4 B4 D5 | D3 C4 E4 G4 A4
    """)
    melody = parse_melody("""
        -*1 D5*1.5 E5*0.5 F#5*1 | G5*3 F#5*0.5 E5*0.5 | E5*1.5 D5*0.5 C5*2 | D5*3 A4*1 |
        -*1 B4*1 D5*1 F#5*1 | B5*2 A5*1 G5*1 | G5*1.5 E5*0.5 D5*2 | E5*2 F#5*1 A5*1 |
        B5*3 A5*0.5 G5*0.5 | F#5*2.5 D5*0.5 E5*1 | G5*2 E5*2 | D5*4 |
        C5*1 E5*1 G5*1 B5*1 | A5*2 F#5*2 | G5*1 B5*1 D6*2 | C6*1.5 A5*1 G5*0.5 E5*1
    """)
    band = _Band(bars=len(bars), beat_ms=840, seed=11)
    for bar, (bass, *chord) in enumerate(bars):
        first = bar * _BEATS_PER_BAR
        band.play(electric_piano, [Note(first, bass, 2.3, 0.5), Note(first + 2.5, bass, 1.3, 0.35)])
        for beat, beats, strength in ((0, 1.4, 0.3), (1.5, 1.4, 0.24), (3, 0.9, 0.2)):
            band.play(electric_piano, [Note(first + beat, pitch, beats, strength) for pitch in chord])
    band.play(electric_piano, melody)
    return band.record(reverberation_s=1.2, direct=0.75)


def _harbour() -> Samples:
    """Guitar in D major at 83 beats a minute: broken chords, with a melody on the upper strings."""
    bars = parse_chords("""
        D3 A2 A3 D4 F#4 | C#3 E3 A3 C#4 E4 | B2 F#3 A3 D4 F#4 | G2 D3 B3 D4 G4 |
        F#2 D3 A3 D4 A4 | E2 B2 B3 D4 G4 | A2 E3 A3 D4 E4 | A2 E3 A3 C#4 E4 |
        B2 F#3 B3 D4 F#4 | F#2 C#3 A3 C#4 E4 | G2 D3 B3 D4 G4 | F#2 D3 A3 D4 F#4 |
        E2 B2 B3 D4 G4 | G2 D3 B3 D4 G4 | A2 E3 A3 D4 E4 | A2 E3 A3 C#4 E4
    """)
    melody = parse_melody("""
        F#5*2 E5*1 D5*1 | E5*2 C#5*2 | D5*1.5 E5*0.5 F#5*1 A5*1 | B5*2 A5*1 G5*1 |
        A5*2 F#5*2 | G5*1 F#5*1 E5*2 | D5*2 E5*2 | C#5*4 |
        D5*1 F#5*1 B5*2 | A5*2 E5*2 | G5*1 A5*1 B5*1 D6*1 | A5*3 F#5*1 |
        G5*1.5 F#5*0.5 E5*1 B4*1 | D5*2 G5*1 F#5*1 | E5*2 D5*2 | C#5*1 E5*1 A5*1 G5*1
    """)
    band = _Band(bars=len(bars), beat_ms=720, seed=12)
    for bar, chord in enumerate(bars):
        for eighth, string in enumerate((0, 2, 3, 4, 1, 3, 4, 2)):
            strength = 0.6 if string < 2 else 0.42
            band.play(plucked_string, [Note(bar * _BEATS_PER_BAR + eighth / 2, chord[string], 1.5, strength)])
    band.play(plucked_string, melody)
    return band.record(reverberation_s=0.9, direct=0.8)


def _clearing() -> Samples:
    """Strings in F major at 63 beats a minute, and a vibraphone that plays the tones of their chords."""
    bars = parse_chords("""
        F2 A3 C4 E4 G4 | D3 A3 C4 E4 F4 | Bb2 A3 C4 D4 F4 | C3 G3 C4 D4 E4 |
        A2 G3 C4 E4 A4 | D3 F3 C4 E4 A4 | G2 F3 Bb3 D4 A4 | C3 G3 Bb3 D4 F4 |
        Bb2 F3 A3 D4 F4 | C3 E3 Bb3 D4 G4 | F2 A3 C4 E4 G4 | C3 G3 Bb3 D4 F4
    """)
    melody = parse_melody("""
        C5*1 E5*0.5 G5*1.5 A5*1 | -*0.5 F5*1 E5*1 C5*1.5 | D5*1 F5*0.5 A5*2.5 | -*0.5 G5*1 E5*1 D5*1.5 |
        E5*1 G5*0.5 C6*1.5 A5*1 | -*0.5 A5*1 F5*1 E5*1.5 | D5*1 F5*0.5 Bb5*2.5 | -*0.5 A5*1 G5*1 F5*1.5 |
        D5*1 F5*0.5 A5*1.5 F5*1 | -*0.5 E5*1 G5*1 Bb5*1.5 | A5*1 G5*0.5 E5*2.5 | -*0.5 D5*1 F5*1 G5*1.5
    """)
    band = _Band(bars=len(bars), beat_ms=960, seed=13)
    for bar, (bass, *chord) in enumerate(bars):
        first = bar * _BEATS_PER_BAR
        band.play(pad, [Note(first, pitch, _BEATS_PER_BAR, 0.22) for pitch in chord])
        band.play(pad, [Note(first, 2 * bass, _BEATS_PER_BAR, 0.26)])
    band.play(vibraphone, melody)
    return band.record(reverberation_s=1.6, direct=0.7)


PIECES: Final = (Piece("evening", _evening), Piece("harbour", _harbour), Piece("clearing", _clearing))


class _Band:
    """Plays notes into a loop of whole bars. Each note is up to 8 ms late and up to 12 % softer than written, as people
    play, the same each time."""

    def __init__(self, bars: int, beat_ms: int, seed: int) -> None:
        self._beat_samples = beat_ms * SAMPLE_RATE // 1000
        self._loop: Loop = np.zeros(bars * _BEATS_PER_BAR * self._beat_samples)
        self._rng = np.random.default_rng(seed)
        self._sound = cache(lambda instrument, hertz, seconds: instrument(hertz, seconds))

    def play(self, instrument: Instrument, notes: Iterable[Note]) -> None:
        """Add notes; what rings past the end continues at the beginning."""
        for note in notes:
            start = round(note.beat * self._beat_samples + 0.008 * SAMPLE_RATE * self._rng.random())
            strength = note.strength * (1 - 0.12 * self._rng.random())
            sound = self._sound(instrument, note.hertz, note.beats * self._beat_samples / SAMPLE_RATE)
            places = (start + np.arange(len(sound))) % len(self._loop)
            self._loop[places] += strength * sound  # a note is shorter than the loop

    def record(self, reverberation_s: float, direct: float) -> Samples:
        """The loop in a room, within the band of a telephone, at the loudness of speech."""
        wet = add_reverb(self._rng, self._loop, reverberation_s, direct)
        return limit_peaks(even_out(normalize_level(apply_filter(wet, band_pass(140, 3300, order=3)))))
