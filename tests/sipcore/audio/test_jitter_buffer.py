"""The jitter buffer of a bridged slot, packet by packet: PJMEDIA's, and what the pump removes from it."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator

import pytest

from tests.sipcore.native_harness import compile_native

LOUD = 3000
SECOND = 50
"""Ticks."""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = compile_native(
        tmp_path_factory.mktemp("jitter"),
        "tests/sipcore/audio/jitter_by_packets.c",
        "sipcore/native/pump/jitter_buffer.c",
        "sipcore/native/rtp/rtp_stats.c",
    )
    library.create.restype = ctypes.c_void_p
    library.discarded_ms.restype = ctypes.c_double
    return library


class Buffer:
    """A jitter buffer that has got one packet more than ticks have read."""

    def __init__(self, native: ctypes.CDLL) -> None:
        self._native = native
        self._buffer = ctypes.c_void_p(native.create())
        self.put()

    def put(self, packets: int = 1) -> None:
        for _ in range(packets):
            self._native.put_packet(self._buffer)

    def tick(self, bridged: bool = True, level: int = 0) -> int:
        """Frames that are left."""
        return int(self._native.tick(self._buffer, int(bridged), ctypes.c_int16(level)))

    def steady(self, ticks: int, bridged: bool = True, level: int = 0) -> int:
        """One packet a tick; frames that are left in the end."""
        left = 0
        for _ in range(ticks):
            self.put()
            left = self.tick(bridged, level)
        return left

    @property
    def discarded_ms(self) -> float:
        return float(self._native.discarded_ms(self._buffer))

    def close(self) -> None:
        self._native.drop(self._buffer)


@pytest.fixture
def buffer(native: ctypes.CDLL) -> Iterator[Buffer]:
    made = Buffer(native)
    yield made
    made.close()


def test_without_a_bridge_the_last_superfluous_frame_stays(buffer: Buffer) -> None:
    assert buffer.steady(60 * SECOND, bridged=False) == 1


def test_in_a_bridge_superfluous_frames_are_removed_within_half_a_second(buffer: Buffer) -> None:
    assert buffer.steady(SECOND // 2) == 0
    assert buffer.discarded_ms == 20


def test_frames_are_removed_in_silence_rather_than_in_speech(buffer: Buffer) -> None:
    assert buffer.steady(2 * SECOND, level=LOUD) == 1, "PJMEDIA itself has discarded the other one"
    assert buffer.discarded_ms == 0
    assert buffer.steady(1) == 0
    assert buffer.discarded_ms == 10


def test_after_some_seconds_frames_are_removed_in_speech_too(buffer: Buffer) -> None:
    assert buffer.steady(6 * SECOND, level=LOUD) == 0


def test_a_frame_that_jitter_needs_stays(buffer: Buffer) -> None:
    chance = random.Random(1)
    buffer.steady(SECOND)
    buffer.put()
    for _ in range(60 * SECOND // 5):
        late = chance.randrange(4)
        for at in range(4):
            buffer.put(0 if at == late else 1)
            buffer.tick()
        buffer.put(2)
        buffer.tick()
    assert buffer.discarded_ms <= 20, "nothing but what was superfluous in the beginning"
