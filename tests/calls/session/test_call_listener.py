"""The frames of someone who listens in to a call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calls.session.call_listener import FRAME_BYTES, MAX_WAITING_MS, CallListener
from media.audio_port import Samples
from tests.sipcore.tones import loudest_hz, tone


class Audio:
    """A `CallAudio` at this rate."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.taps: list[Any] = []

    def add_tap(self, tap: Any) -> None:
        self.taps.append(tap)

    def remove_tap(self, tap: Any) -> None:
        self.taps = [each for each in self.taps if each is not tap]


def listener_of(audio: Audio) -> CallListener:
    anything: Any = audio
    return CallListener(anything)


def stereo(frames: list[bytes]) -> Samples:
    return np.frombuffer(b"".join(frames), "<i2").reshape(-1, 2)


@pytest.mark.parametrize("rate", [8000, 16000])
async def test_frames_are_stereo_at_16_khz_with_the_caller_on_the_left(rate: int) -> None:
    listener = listener_of(Audio(rate))
    caller, agent, block = tone(rate, 440, 0.5), tone(rate, 1000, 0.5), rate // 50
    for at in range(0, len(caller), block):
        listener.on_audio(caller[at : at + block], agent[at : at + block])
    listener.on_end()
    frames = [frame async for frame in listener.frames()]
    assert {len(frame) for frame in frames} == {FRAME_BYTES}
    sound = stereo(frames)
    assert len(sound) == pytest.approx(8000, abs=640)
    assert loudest_hz(sound[:, 0], 16000) == pytest.approx(440, abs=5)
    assert loudest_hz(sound[:, 1], 16000) == pytest.approx(1000, abs=5)


async def test_a_slow_listener_loses_the_oldest_audio_only() -> None:
    listener = listener_of(Audio(16000))
    blocks = 3 * MAX_WAITING_MS // 20
    for number in range(blocks):
        listener.on_audio(np.full(320, number, np.int16), np.zeros(320, np.int16))
    listener.on_end()
    got = stereo([frame async for frame in listener.frames()])[::320, 0].tolist()
    assert got == list(range(blocks - MAX_WAITING_MS // 20, blocks))
    assert listener.dropped_ms == 2 * MAX_WAITING_MS


async def test_a_closed_listener_is_no_tap_any_more_and_its_frames_end() -> None:
    audio = Audio(8000)
    listener = listener_of(audio)
    assert audio.taps == [listener]
    listener.close()
    listener.close()
    assert audio.taps == []
    assert [frame async for frame in listener.frames()] == []
