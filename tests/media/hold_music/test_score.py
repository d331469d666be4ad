"""Scores as text."""

from __future__ import annotations

import pytest

from media.hold_music.score import Note, parse_chords, parse_melody, pitch_hz


@pytest.mark.parametrize(
    ("name", "hertz"), [("A4", 440), ("A3", 220), ("C4", 261.63), ("F#5", 739.99), ("Bb2", 116.54), ("D6", 1174.66)]
)
def test_a_pitch_has_its_frequency(name: str, hertz: float) -> None:
    assert pitch_hz(name) == pytest.approx(hertz, abs=0.01)


@pytest.mark.parametrize("name", ["", "H4", "a4", "A", "A#", "A44", "A4*1"])
def test_another_name_is_no_pitch(name: str) -> None:
    with pytest.raises(ValueError, match="no pitch"):
        pitch_hz(name)


def test_notes_begin_where_the_notes_and_rests_before_them_end() -> None:
    assert parse_melody("A4*1.5 -*0.5 A3*2 | -*3 A4*1") == [Note(0, 440, 1.5), Note(2, 220, 2), Note(7, 440, 1)]


@pytest.mark.parametrize("text", ["A4*3.5", "A4*4 | A4*4 A4*0.5"])
def test_a_bar_with_missing_or_surplus_beats_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="beats instead of 4"):
        parse_melody(text)


def test_the_chords_have_the_pitches_of_their_bars() -> None:
    assert parse_chords("A2 A4 | A3") == [[110, 440], [220]]
