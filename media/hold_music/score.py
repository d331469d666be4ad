"""Scores as text: melodies, chords, and the notes that they give.

A pitch is a letter, an optional # or b, and an octave: A4 has 440 Hz. Bars are separated by `|`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_PITCH: Final = re.compile(r"([A-G])(#|b?)(\d)")
_SEMITONES: Final = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
_ACCIDENTALS: Final = {"#": 1, "b": -1, "": 0}


@dataclass(frozen=True, slots=True)
class Note:
    """A note: its start in beats from the beginning of the piece, its pitch in Hz, its duration in beats, and its
    strength 0..1."""

    beat: float
    hertz: float
    beats: float
    strength: float = 1.0


def pitch_hz(name: str) -> float:
    """The frequency of a pitch in equal temperament, Hz. Raises `ValueError`."""
    match = _PITCH.fullmatch(name)
    if match is None:
        raise ValueError(f"{name!r} is no pitch")
    letter, accidental, octave = match.groups()
    semitones = _SEMITONES[letter] + _ACCIDENTALS[accidental] + 12 * int(octave)
    return float(440 * 2 ** ((semitones - 57) / 12))


def parse_melody(text: str, beats_per_bar: int = 4) -> list[Note]:
    """The notes of a melody. Each token is `PITCH*BEATS`; `-*BEATS` is a rest. Raises `ValueError` for a bar that its
    tokens do not fill."""
    notes: list[Note] = []
    for bar, tokens in enumerate(_bars(text)):
        beat = 0.0
        for token in tokens:
            name, _, length = token.partition("*")
            if name != "-":
                notes.append(Note(bar * beats_per_bar + beat, pitch_hz(name), float(length)))
            beat += float(length)
        if beat != beats_per_bar:
            raise ValueError(f"bar {bar + 1} has {beat:g} beats instead of {beats_per_bar}")
    return notes


def parse_chords(text: str) -> list[Sequence[float]]:
    """The pitches of one chord for each bar, Hz, in the order of the text: the bass is the first."""
    return [[pitch_hz(name) for name in bar] for bar in _bars(text)]


def _bars(text: str) -> Iterator[list[str]]:
    return (bar.split() for bar in text.split("|"))
