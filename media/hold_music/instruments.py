"""Instruments: each gives the sound of one note as float64 samples at SAMPLE_RATE, which begins and ends at zero.

No partial lies above _HIGHEST_HZ, where a telephone ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from media.background.loop_synthesis import SAMPLE_RATE

Sound = NDArray[np.float64]
Instrument = Callable[[float, float], Sound]
"""The sound of a note of this pitch (Hz) that is held for this time (s); it rings on afterwards."""

_HIGHEST_HZ: Final = 3600.0
_DAMPING_S: Final = 0.25
"""Time constant of the decay after a key is released."""


def electric_piano(hertz: float, seconds: float) -> Sound:
    """A tine piano: a carrier modulated by its own frequency, brighter at the stroke (FM synthesis, Chowning 1973), and
    the short ringing of the tine two octaves above."""
    times = _times(seconds + 5 * _DAMPING_S)
    phase = 2 * np.pi * hertz * times
    index = 0.25 + 0.9 * np.exp(-times / 0.35)
    sound = np.sin(phase + index * np.sin(phase)) * np.exp(-times / (900 / (hertz + 300)))
    if 4 * hertz < _HIGHEST_HZ:
        sound += 0.1 * np.sin(4 * phase) * np.exp(-times / 0.12)
    return _shaped(sound, times, seconds, attack_s=0.004)


def plucked_string(hertz: float, seconds: float) -> Sound:
    """A plucked nylon string. Its partials have the strengths of a string plucked at a fifth of its length, and decay
    as in the algorithm of Karplus and Strong (1983): higher ones faster, and all faster on higher strings. A sum of
    partials is in tune at a low sample rate, where that algorithm's delay line of whole samples is not."""
    times = _times(seconds + 5 * _DAMPING_S)
    turn = np.exp(2j * np.pi * hertz * times)
    further_decay = np.exp(-0.08 * times / (500 / (hertz + 150)))
    decay = np.exp(-1.04 * times / (500 / (hertz + 150)))
    partial, ratio = turn * decay, turn * np.sqrt(further_decay) * further_decay
    sound = np.zeros(len(times))
    for number in range(1, int(_HIGHEST_HZ / hertz) + 1):
        sound += np.sin(np.pi * number / 5) / number**1.5 * partial.imag
        partial *= ratio
        ratio *= further_decay
    return _shaped(sound, times, seconds, attack_s=0.003)


def vibraphone(hertz: float, seconds: float) -> Sound:
    """A struck bar, whose second partial is tuned to two octaves above the first one."""
    times = _times(seconds + 5 * _DAMPING_S)
    sound = np.sin(2 * np.pi * hertz * times) * np.exp(-times / 1.6)
    if 4 * hertz < _HIGHEST_HZ:
        sound += 0.25 * np.sin(8 * np.pi * hertz * times) * np.exp(-times / 0.3)
    return _shaped(sound, times, seconds, attack_s=0.003)


def pad(hertz: float, seconds: float) -> Sound:
    """Soft strings: three slightly detuned voices that swell and fade slowly, so that chords melt into each other."""
    rise_s, fall_s = 0.9, 1.3
    times = _times(seconds + fall_s)
    sound = np.zeros(len(times))
    for number, (detuning, strength) in enumerate(((1.0, 1.0), (0.9985, 0.4), (1.0017, 0.4))):
        phase = 2 * np.pi * hertz * detuning * times + 2 * number
        for partial in range(1, min(7, int(_HIGHEST_HZ / hertz) + 1)):
            sound += strength * np.sin(partial * phase) / partial**1.6
    rise = np.clip(times / rise_s, 0, 1)
    fall = np.clip((times[-1] - times) / fall_s, 0, 1)
    return np.asarray(sound * np.sin(np.pi / 2 * rise) ** 2 * np.sin(np.pi / 2 * fall) ** 2)


def _times(seconds: float) -> Sound:
    return np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE


def _shaped(sound: Sound, times: Sound, seconds: float, attack_s: float) -> Sound:
    """The sound with a soft attack, damped after `seconds`, and faded out at its end."""
    attack = np.clip(times / attack_s, 0, 1)
    damping = np.exp(-np.maximum(times - seconds, 0) / _DAMPING_S)
    end = np.clip((times[-1] - times) / _DAMPING_S, 0, 1)
    return np.asarray(sound * np.sin(np.pi / 2 * attack) ** 2 * damping * end)
