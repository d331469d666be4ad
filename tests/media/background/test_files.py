"""Background sounds on disk, and the seamless loop of a sound of any length."""

from __future__ import annotations

import os
import resource
import wave
from pathlib import Path

import numpy as np
import pytest

from media.background.files import InvalidSound, crossfade_loop, duration_seconds, read_wav, write_wav
from media.background.loop_synthesis import SAMPLE_RATE
from tests.media.speech import silence, tone


def stored(path: Path, channels: int, width: int, rate: int, data: bytes = bytes(400)) -> Path:
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(width)
        sound.setframerate(rate)
        sound.writeframes(data)
    return path


def test_a_written_file_reads_back_the_same(tmp_path: Path) -> None:
    samples = np.random.default_rng(0).integers(-32768, 32768, 3 * SAMPLE_RATE).astype(np.int16)
    write_wav(tmp_path / "a.wav", samples)
    again = read_wav(tmp_path / "a.wav")
    assert (again.dtype, again.flags.writeable) == (np.int16, True)
    assert np.array_equal(again, samples)
    assert duration_seconds(again) == 3.0
    write_wav(tmp_path / "a.wav", samples[:5])
    assert np.array_equal(read_wav(tmp_path / "a.wav"), samples[:5])
    assert os.listdir(tmp_path) == ["a.wav"]


def test_only_the_server_user_can_read_a_sound_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_wav(tmp_path / "a.wav", tone(100, SAMPLE_RATE))
    finally:
        os.umask(before)
    assert (tmp_path / "a.wav").stat().st_mode & 0o777 == 0o600


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", tone(100, SAMPLE_RATE))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_wav(tmp_path / "a.wav", silence(10_000, SAMPLE_RATE))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert np.array_equal(read_wav(tmp_path / "a.wav"), tone(100, SAMPLE_RATE))
    assert os.listdir(tmp_path) == ["a.wav"]


@pytest.mark.parametrize(("channels", "width", "rate"), [(2, 2, 16000), (1, 1, 16000), (1, 2, 8000)])
def test_only_the_stored_format_is_read(tmp_path: Path, channels: int, width: int, rate: int) -> None:
    with pytest.raises(InvalidSound, match=r"a\.wav is not a complete mono 16-bit WAV file of 16000 Hz"):
        read_wav(stored(tmp_path / "a.wav", channels, width, rate))


def test_a_truncated_sound_is_detected(tmp_path: Path) -> None:
    path = stored(tmp_path / "a.wav", 1, 2, SAMPLE_RATE)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(InvalidSound):
            read_wav(path)
    with pytest.raises(FileNotFoundError):
        read_wav(tmp_path / "missing.wav")


def test_a_loop_is_seamless() -> None:
    samples = tone(1013, SAMPLE_RATE, 1000) + np.linspace(-4000, 4000, 1013 * 16).astype(np.int16)
    looped = crossfade_loop(samples)
    assert len(looped) == len(samples) - SAMPLE_RATE // 4
    steps = np.abs(np.diff(np.concatenate([looped, looped]).astype(np.int32)))
    assert abs(int(samples[0]) - int(samples[-1])) > 6000
    assert steps.max() < 2 * np.abs(np.diff(samples.astype(np.int32))).max()
    assert np.array_equal(looped[SAMPLE_RATE // 4 :], samples[SAMPLE_RATE // 4 : -SAMPLE_RATE // 4])


def test_the_crossfade_of_noise_keeps_its_level() -> None:
    noise = (np.random.default_rng(0).standard_normal(4 * SAMPLE_RATE) * 2000).astype(np.int16)
    joined = crossfade_loop(noise)[: SAMPLE_RATE // 4].reshape(5, -1).astype(np.float64)
    assert np.allclose(np.sqrt((joined**2).mean(axis=1)), 2000, rtol=0.1)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 10, 4000, 7999, 8000, 8001])
def test_the_crossfade_of_a_short_sound_is_at_most_half_of_it(length: int) -> None:
    looped = crossfade_loop(np.full(length, 100, np.int16))
    assert len(looped) == length - min(SAMPLE_RATE // 4, length // 2)
    assert looped.dtype == np.int16


def test_the_crossfade_of_a_loud_sound_does_not_overflow() -> None:
    for extreme in (32767, -32768):
        looped = crossfade_loop(np.full(SAMPLE_RATE, extreme, np.int16))
        assert (looped == extreme).all()
