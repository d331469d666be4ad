"""The conversion between 8 and 16 kHz of bridged calls: pitch, level, images, blocks, limits."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest

from media.audio_port import Samples
from tests.sipcore.native_harness import compile_native
from tests.sipcore.tones import delay_of, tone

MAX_BLOCK = 2880
"""RATE_CONVERSION_MAX_BLOCK."""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = compile_native(tmp_path_factory.mktemp("rates"), "sipcore/native/pump/rate_conversion.c")
    library.rate_conversion_init.restype = ctypes.c_bool
    library.rate_conversion_apply.restype = ctypes.c_uint32
    return library


class Conversion:
    """One stream from one rate to another, Hz."""

    def __init__(self, native: ctypes.CDLL, from_hz: int, to_hz: int) -> None:
        self._native = native
        self._state = ctypes.create_string_buffer(256)
        self.possible = native.rate_conversion_init(self._state, ctypes.c_uint32(from_hz), ctypes.c_uint32(to_hz))

    def apply(self, samples: Samples) -> Samples:
        """The converted block."""
        out = np.zeros(2 * len(samples), np.int16)
        pointer = ctypes.POINTER(ctypes.c_int16)
        source = np.ascontiguousarray(samples)
        count = self._native.rate_conversion_apply(
            self._state, source.ctypes.data_as(pointer), ctypes.c_uint32(len(source)), out.ctypes.data_as(pointer)
        )
        return out[:count]

    def apply_blocks(self, samples: Samples, edges: Iterable[int]) -> Samples:
        """All blocks between these positions, one after another."""
        return np.concatenate([self.apply(samples[begin:end]) for begin, end in pairwise(edges)])


def level_db(samples: Samples, rate: int, hz: float) -> float:
    """The amplitude of a frequency against one of 8000, dB, in whole seconds of a signal."""
    phase = np.exp(-2j * np.pi * hz * np.arange(len(samples)) / rate)
    return 20 * float(np.log10(2 * abs(np.mean(samples * phase)) / 8000 + 1e-9))


@pytest.mark.parametrize(("from_hz", "to_hz"), [(8000, 16000), (16000, 8000)])
@pytest.mark.parametrize("hz", [300, 1000, 3000, 3400])
def test_speech_band_keeps_its_level(native: ctypes.CDLL, from_hz: int, to_hz: int, hz: int) -> None:
    got = Conversion(native, from_hz, to_hz).apply_blocks(tone(from_hz, hz, 2.0), range(0, 2 * from_hz + 1, 160))
    assert len(got) == 2 * to_hz
    assert level_db(got[to_hz:], to_hz, hz) == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize(("hz", "image_hz"), [(1000, 7000), (3400, 4600)])
def test_images_of_upsampled_audio_are_inaudible(native: ctypes.CDLL, hz: int, image_hz: int) -> None:
    got = Conversion(native, 8000, 16000).apply_blocks(tone(8000, hz, 2.0), range(0, 16001, 160))
    assert level_db(got[16000:], 16000, image_hz) < -45


@pytest.mark.parametrize(("hz", "alias_hz"), [(5000, 3000), (6000, 2000), (7800, 200)])
def test_treble_does_not_alias_into_narrow_band(native: ctypes.CDLL, hz: int, alias_hz: int) -> None:
    got = Conversion(native, 16000, 8000).apply_blocks(tone(16000, hz, 2.0), range(0, 32001, 320))
    assert level_db(got[8000:], 8000, alias_hz) < -60


@pytest.mark.parametrize(("from_hz", "to_hz"), [(8000, 16000), (16000, 8000)])
def test_result_does_not_depend_on_the_blocks(native: ctypes.CDLL, from_hz: int, to_hz: int) -> None:
    samples = np.random.default_rng(1).integers(-20000, 20000, MAX_BLOCK * 2, np.int16)
    whole = Conversion(native, from_hz, to_hz).apply_blocks(samples, (0, MAX_BLOCK, 2 * MAX_BLOCK))
    edges = [0, 2, 4, 50, 52, 54, 320, 1000, 3000, 5000, len(samples)]
    assert np.array_equal(Conversion(native, from_hz, to_hz).apply_blocks(samples, edges), whole)


@pytest.mark.parametrize(("from_hz", "to_hz"), [(8000, 16000), (16000, 8000)])
def test_delay_is_below_two_ms(native: ctypes.CDLL, from_hz: int, to_hz: int) -> None:
    noise = np.convolve(np.random.default_rng(2).normal(0, 3000, 32000), np.ones(8) / 8, "same").astype(np.int16)
    there = Conversion(native, from_hz, to_hz).apply_blocks(noise[:24000], range(0, 24001, 160))
    back = Conversion(native, to_hz, from_hz).apply_blocks(there, range(0, len(there) + 1, 160))
    assert 0 < delay_of(back, noise[:24000]) / from_hz < 2 * 0.002


def test_full_scale_is_limited_and_not_wrapped(native: ctypes.CDLL) -> None:
    square = np.where(np.arange(1600) // 8 % 2, 32767, -32768).astype(np.int16)
    got = Conversion(native, 8000, 16000).apply(square).astype(np.int32)
    assert np.abs(np.diff(got)).max() < 60000
    assert got.max() == 32767
    assert got.min() == -32768


@pytest.mark.parametrize(("from_hz", "to_hz", "possible"), [(8000, 8000, True), (48000, 8000, False), (0, 8000, False)])
def test_other_rates_are_refused(native: ctypes.CDLL, from_hz: int, to_hz: int, possible: bool) -> None:
    assert Conversion(native, from_hz, to_hz).possible is possible
