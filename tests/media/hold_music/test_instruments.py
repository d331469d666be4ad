"""Instruments: in tune, silent at both ends of a note, and without anything that a telephone would cut."""

from __future__ import annotations

import numpy as np
import pytest

from media.background.loop_synthesis import SAMPLE_RATE
from media.hold_music.instruments import Instrument, electric_piano, pad, plucked_string, vibraphone
from tests.sipcore.tones import loudest_hz

INSTRUMENTS = [electric_piano, plucked_string, vibraphone, pad]


@pytest.mark.parametrize("hertz", [220.0, 587.33])
@pytest.mark.parametrize("instrument", INSTRUMENTS)
def test_a_note_is_in_tune(instrument: Instrument, hertz: float) -> None:
    sound = instrument(hertz, 2.0)
    assert loudest_hz((sound / np.abs(sound).max() * 10000).astype(np.int16), SAMPLE_RATE) == pytest.approx(
        hertz, abs=1
    )


@pytest.mark.parametrize("hertz", [82.41, 440.0, 1174.66])
@pytest.mark.parametrize("instrument", INSTRUMENTS)
def test_a_note_begins_and_ends_in_silence(instrument: Instrument, hertz: float) -> None:
    sound = instrument(hertz, 0.7)
    assert len(sound) > 0.7 * SAMPLE_RATE, "it rings on"
    loudest = np.abs(sound).max()
    assert np.abs(sound[:3]).max() < 0.02 * loudest
    assert np.abs(sound[-3:]).max() < 0.002 * loudest


@pytest.mark.parametrize("hertz", [82.41, 440.0, 1174.66])
@pytest.mark.parametrize("instrument", INSTRUMENTS)
def test_a_note_has_no_energy_above_the_band_of_a_telephone(instrument: Instrument, hertz: float) -> None:
    power = np.abs(np.fft.rfft(instrument(hertz, 1.0))) ** 2
    frequencies = np.fft.rfftfreq(2 * len(power) - 2, 1 / SAMPLE_RATE)
    assert power[frequencies > 3800].sum() < 1e-3 * power.sum()
