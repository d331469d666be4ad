"""The rings of a bridge, frame by frame: order of the threads, pauses of a reader, drift, limits."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest

from media.audio_port import Samples
from tests.sipcore.native_harness import compile_native

FRAME = 160
"""20 ms at 8 kHz."""
FADE = 40
LOUD = 100
"""Louder than comfort noise."""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    parts = ("bridge.c", "fade.c", "rate_conversion.c", "tick_pair.c")
    library = compile_native(
        tmp_path_factory.mktemp("bridge"),
        "tests/sipcore/audio/bridge_by_frames.c",
        *(f"sipcore/native/pump/{part}" for part in parts),
    )
    library.create.restype = ctypes.c_void_p
    return library


class Bridge:
    """A caller (side 0) whose samples count up, and a callee (side 1) that sends what it gets."""

    def __init__(self, native: ctypes.CDLL, rates: tuple[int, int] = (8000, 8000)) -> None:
        self._native = native
        self._pair = ctypes.c_void_p(native.create(*(ctypes.c_uint32(rate) for rate in rates)))
        self.connected = native.connect_pair(self._pair) == 0
        self.position = 0
        """Samples that the caller has sent."""

    def put(self, count: int = FRAME, side: int = 0) -> None:
        """A frame of the caller: 1000, 1001, ... without a zero."""
        samples = (1000 + np.arange(self.position, self.position + count) % 20000).astype(np.int16)
        self._native.put(self._pair, side, samples.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint32(count))
        self.position += count

    def mix(self, count: int = FRAME, side: int = 1, under: int = 0) -> Samples:
        """A frame that the callee gets, on top of a level."""
        out = np.full(count, under, np.int16)
        self._native.mix(self._pair, side, out.ctypes.data_as(ctypes.c_void_p), ctypes.c_uint32(count))
        return out

    def delay(self, frame: Samples) -> int:
        """Samples that the end of this frame lags behind the caller."""
        return (999 + self.position - int(frame[-1])) % 20000

    def end(self, side: int) -> None:
        """Ends the bridge from a side."""
        self._native.disconnect_side(self._pair, side)

    def close(self) -> None:
        """Both slots close."""
        self._native.drop(self._pair)


@pytest.fixture
def bridge(native: ctypes.CDLL) -> Iterator[Bridge]:
    bridge = Bridge(native)
    yield bridge
    bridge.close()


def test_a_consumer_that_ticks_after_the_producer_has_no_delay(bridge: Bridge) -> None:
    for _ in range(100):
        bridge.put()
        frame = bridge.mix()
    assert bridge.delay(frame) == 0
    assert np.array_equal(np.diff(frame), np.ones(FRAME - 1))


def test_a_consumer_that_ticks_before_the_producer_has_a_frame_of_delay(bridge: Bridge) -> None:
    for _ in range(100):
        frame = bridge.mix()
        bridge.put()
    assert bridge.delay(frame) == FRAME
    assert frame.min() > LOUD


def test_a_reader_that_paused_drops_what_has_piled_up(bridge: Bridge) -> None:
    bridge.put()
    frames = [bridge.mix()]
    for _ in range(20):
        bridge.put()
    frames.append(bridge.mix())
    for _ in range(30):
        bridge.put()
        frames.append(bridge.mix())
    assert bridge.delay(frames[-1]) == 0
    heard = np.concatenate(frames).astype(int)[FADE:]
    assert np.abs(np.diff(heard)).max() < 200  # fades over, without a click


def test_a_reader_that_paused_for_long_loses_the_newest_audio_and_recovers(bridge: Bridge) -> None:
    for _ in range(1000):
        bridge.put()
    frames = []
    for _ in range(60):
        bridge.put()
        frames.append(bridge.mix())
    assert bridge.delay(frames[-1]) == 0


def test_a_delay_that_is_not_needed_is_dropped_within_a_second(bridge: Bridge) -> None:
    bridge.put()
    for _ in range(50):
        bridge.put()
        frame = bridge.mix()
    assert bridge.delay(frame) == 0


def test_a_delay_that_jitter_needs_is_kept(bridge: Bridge) -> None:
    """The threads swap their order each second time: one frame must wait, and none is lost."""
    frames = []
    for number in range(200):
        if number % 2:
            bridge.put()
            frames.append(bridge.mix())
        else:
            frames.append(bridge.mix())
            bridge.put()
    late = np.concatenate(frames[100:])
    assert np.array_equal(np.diff(late.astype(int)) % 20000, np.ones(len(late) - 1))


@pytest.mark.parametrize("frame", [80, 240, 480])
def test_frames_of_another_duration_pass_whole(bridge: Bridge, frame: int) -> None:
    got, read, written = [], 0, 0
    for tick in range(1, 400):
        while written + FRAME <= tick * FRAME:
            bridge.put()
            written += FRAME
        while read + frame <= tick * FRAME:
            got.append(bridge.mix(frame))
            read += frame
    late = np.concatenate(got[len(got) // 2 :])
    assert np.array_equal(np.diff(late.astype(int)) % 20000, np.ones(len(late) - 1))


def test_a_missing_frame_fades_out_to_comfort_noise_and_in_again(bridge: Bridge) -> None:
    frames = []
    for number in range(12):
        if number not in (5, 6):
            bridge.put()
        frames.append(bridge.mix())
    gap = frames[6]
    assert 0 < np.abs(gap).max() < 10
    assert frames[5][FADE:].max() < 10
    assert np.abs(np.diff(np.concatenate(frames[4:8]).astype(int))).max() < 60


def test_audio_is_added_to_what_the_slot_says_itself_and_limited(bridge: Bridge) -> None:
    for _ in range(3):
        bridge.put()
        frame = bridge.mix(under=32000)
    assert frame.max() == frame.min() == 32767


def test_the_end_of_a_bridge_fades_out_for_both_and_leaves_silence(bridge: Bridge) -> None:
    for _ in range(3):
        bridge.put()
        bridge.mix()
        bridge.put(side=1)
        bridge.mix(side=0)
    bridge.end(0)
    for side in (0, 1):
        bridge.put(side=1 - side)
        ending, after = bridge.mix(side=side), bridge.mix(side=side)
        assert ending[0] > LOUD
        assert not ending[FADE:].any()
        assert not after.any()


def test_a_second_connection_replaces_the_first_and_all_is_freed(native: ctypes.CDLL) -> None:
    bridge = Bridge(native)
    for _ in range(3):
        assert native.connect_pair(bridge._pair) == 0
        bridge.put()
        assert bridge.mix()[FADE:].min() > LOUD
    bridge.close()


@pytest.mark.parametrize("rates", [(8000, 48000), (48000, 48000), (0, 8000)])
def test_other_rates_are_refused(native: ctypes.CDLL, rates: tuple[int, int]) -> None:
    bridge = Bridge(native, rates)
    assert not bridge.connected
    bridge.put()
    assert not bridge.mix().any()
    bridge.close()
