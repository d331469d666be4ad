"""Recordings read back, and replayed to the engine on a clock of their own."""

from __future__ import annotations

import re
import wave
from pathlib import Path

import numpy as np
import pytest

from media.audio_port import INFO_ARRIVAL_NS, INFO_COLUMNS, INFO_JITTER_MS, INFO_QUEUED, TICK_MS, Samples
from media.recording import RecordingWriter
from media.replay.recording_reader import InvalidRecording, RecordedCall, agent_audible, audible_onsets, read_recording
from media.replay.replay_port import START_MS, ReplayPort
from tests.media.speech import silence, speech, tone


def write(path: Path, frames: bytes, channels: int = 2, rate: int = 8000, width: int = 2) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(frames)
    return path


def spans(agent: Samples) -> list[tuple[int, int]]:
    """When the agent is audible, ms."""
    sounding = agent_audible(RecordedCall(8000, np.zeros_like(agent), agent))
    ends = audible_onsets(~sounding)
    return [
        (TICK_MS * begin, TICK_MS * min(ends[ends > begin], default=len(sounding)))
        for begin in audible_onsets(sounding)
    ]


@pytest.mark.parametrize("rate", [8000, 16000])
def test_a_recording_is_read_up_to_its_last_whole_tick(tmp_path: Path, rate: int) -> None:
    caller, agent = tone(150, rate), tone(150, rate, 4000)
    writer = RecordingWriter()
    writer.start()
    recording = writer.open(tmp_path / "call.wav", rate=rate, call_id="call")
    recording.append(caller, agent)
    recording.close()
    writer.close()
    sound = read_recording(tmp_path / "call.wav")
    assert (sound.rate, sound.ticks) == (rate, 7)
    assert sound.rx_audio.tolist() == caller[: 140 * rate // 1000].tolist()
    assert sound.tx_audio.tolist() == agent[: 140 * rate // 1000].tolist()


def test_other_files_are_rejected(tmp_path: Path) -> None:
    stereo = np.zeros(8000, "<i2").tobytes()
    (tmp_path / "text.wav").write_text("hello")
    (tmp_path / "folder.wav").mkdir()
    whole = write(tmp_path / "whole.wav", stereo).read_bytes()
    (tmp_path / "cut.wav").write_bytes(whole[:20])
    cases = {
        tmp_path / "none.wav": "does not exist",
        tmp_path / "text.wav": "is not a WAV file",
        tmp_path / "cut.wav": "is not a WAV file",
        tmp_path / "folder.wav": "cannot be read: Is a directory",
        write(tmp_path / "mono.wav", stereo, channels=1): "is not stereo",
        write(tmp_path / "music.wav", stereo, rate=44100): "has 16 bit at 44100 Hz",
        write(tmp_path / "bytes.wav", stereo, width=1): "has 8 bit at 8000 Hz",
        write(tmp_path / "empty.wav", b""): "has no audio",
    }
    for path, complaint in cases.items():
        with pytest.raises(InvalidRecording, match=f"{re.escape(path.name)} {complaint}"):
            read_recording(path)


def test_a_truncated_recording_is_read_up_to_its_end(tmp_path: Path) -> None:
    path = write(tmp_path / "call.wav", np.ones(8000, "<i2").tobytes())
    path.write_bytes(path.read_bytes()[:-3000])
    assert read_recording(path).ticks == (16000 - 3000) // 640


def test_the_agent_is_audible_from_its_first_sound_to_its_last() -> None:
    agent = np.concatenate([silence(1000), speech("hello there"), silence(1000), speech("goodbye"), silence(1000)])
    length = len(speech("hello there")) / 8
    (first, end), (second, _) = spans(agent[: len(agent) // 160 * 160])
    assert (first, end) == (1000, pytest.approx(1000 + length, abs=40))
    assert second == pytest.approx(2000 + length, abs=20)


def test_a_short_gap_belongs_to_the_speech_of_the_agent() -> None:
    assert spans(np.concatenate([silence(400), tone(200), silence(280), tone(200), silence(400)])) == [(400, 1080)]
    assert spans(np.concatenate([silence(400), tone(200), silence(320), tone(200), silence(400)])) == [
        (400, 600),
        (920, 1120),
    ]


def test_a_background_sound_does_not_count_as_the_agent() -> None:
    """Noise at -36 dBFS, from the first second of the call on."""
    noise = np.random.default_rng(5).normal(0, 500, 8 * 6000)
    agent = np.concatenate([silence(2000), speech("hello there"), silence(6000)])[: 8 * 6000].astype(float)
    agent[8000:] += noise[8000:]
    ((first, end),) = [span for span in spans(agent.astype(np.int16)) if span[0] >= 1500]
    assert first == pytest.approx(2000, abs=60)
    assert end == pytest.approx(2000 + len(speech("hello there")) / 8, abs=150)


def test_each_step_of_the_port_is_a_tick_of_both_sides() -> None:
    sound = RecordedCall(8000, tone(60), tone(60, amplitude=500))
    port = ReplayPort(sound, np.array([False, True, False]), np.array([0.0, 60.0, 59.6]))
    heard, said = np.zeros((2, 1, 6400), np.int16)
    counts, info = np.zeros(1, np.int32), np.zeros((1, INFO_COLUMNS), np.int64)
    least = np.zeros(1, np.int32)
    got: list[tuple[int, int, int]] = []
    assert (port.read(heard, said, counts, info, least), counts[0]) == (1, 0), "nothing before the first step"
    while port.step():
        port.read(heard, said, counts, info, least)
        assert heard[0, :160].tolist() == sound.rx_audio[160 * len(got) : 160 * len(got) + 160].tolist()
        assert said[0, :160].tolist() == sound.tx_audio[160 * len(got) : 160 * len(got) + 160].tolist()
        got.append((int(counts[0]), int(info[0, INFO_ARRIVAL_NS]) // 10**6 - START_MS, int(info[0, INFO_QUEUED])))
    assert got == [(160, 20, 0), (160, 40, 1), (160, 60, 0)]
    assert info[0, INFO_JITTER_MS] == 60
    assert port.now_ns() == (START_MS + 60) * 10**6
