"""The peaks of a recording."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from media.recording import wav_header
from media.waveform_peaks import MAX_PEAKS, waveform_peaks


def recorded(path: Path, rate: int, left: list[int], right: list[int]) -> Path:
    """A recording with these samples."""
    frames = np.array([left, right], "<i2").T.tobytes()
    path.write_bytes(wav_header(rate, len(left)) + frames)
    return path


def test_each_peak_is_the_loudest_sample_of_20_ms(tmp_path: Path) -> None:
    left = [0] * 159 + [16384] + [0] * 100 + [-32768] + [100] * 59 + [8192]
    found = waveform_peaks(recorded(tmp_path / "a.wav", 8000, left, [327] * len(left)))
    assert found.seconds_per_peak == 0.02
    assert found.caller.tolist() == [0.5, 1.0, 0.25]
    assert found.agent == pytest.approx([327 / 32768] * 3)


def test_a_long_recording_has_no_more_peaks_than_a_screen_has_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    seconds, rate = 600, 16000
    beat = np.zeros((rate, 2), "<i2")
    beat[0] = (32767, -16384)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(beat.tobytes() * seconds)
    found = waveform_peaks(path)
    assert len(found.caller) == len(found.agent) == MAX_PEAKS
    assert found.seconds_per_peak == pytest.approx(seconds / MAX_PEAKS)
    loud = np.flatnonzero(found.agent == 0.5) * found.seconds_per_peak
    assert loud == pytest.approx(np.arange(seconds))


def test_a_recording_without_audio_has_no_peaks(tmp_path: Path) -> None:
    found = waveform_peaks(recorded(tmp_path / "a.wav", 8000, [], []))
    assert (len(found.caller), len(found.agent)) == (0, 0)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"RIFF")
    with pytest.raises(ValueError, match="no WAV file"):
        waveform_peaks(path)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(320))
    with pytest.raises(ValueError, match="no stereo recording"):
        waveform_peaks(path)
