"""Needless delay of a jitter buffer: when it is found, and how it is taken out."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import numpy as np
import pytest

from media.audio_port import Samples
from tests.sipcore.native_harness import compile_native

WINDOW = 250
EARLY_NS, LATE_NS = 8_000_000, 1_000_000
FRAME = 160


class JitterDelay:
    """A `jitter_delay_t`."""

    def __init__(self, native: ctypes.CDLL) -> None:
        self._native = native
        self._delay = ctypes.create_string_buffer(64)
        native.jitter_delay_reset(self._delay)

    def observe(self, left_ms: int, wait_ns: int = EARLY_NS) -> int:
        """The duration that is to be taken out, ms."""
        return int(self._native.jitter_delay_observe(self._delay, left_ms, ctypes.c_int64(wait_ns)))

    def observe_all(self, left_ms: Iterable[int], wait_ns: int = EARLY_NS) -> list[int]:
        """The same for several reads."""
        return [self.observe(each, wait_ns) for each in left_ms]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compile_native(tmp_path_factory.mktemp("jitter"), "sipcore/native/pump/jitter_delay.c")


@pytest.fixture
def delay(native: ctypes.CDLL) -> JitterDelay:
    return JitterDelay(native)


@pytest.mark.parametrize("left_ms", [10, 20])
def test_what_is_left_after_every_read_of_five_seconds_is_taken_out(delay: JitterDelay, left_ms: int) -> None:
    assert delay.observe_all([left_ms] * WINDOW) == [0] * (WINDOW - 1) + [left_ms]


def test_a_buffer_that_was_empty_once_keeps_its_delay(delay: JitterDelay) -> None:
    assert not any(delay.observe_all([10] * 200 + [0] + [10] * 49))
    assert delay.observe_all([10] * WINDOW)[-1] == 10, "the next five seconds count on their own"


@pytest.mark.parametrize("left_ms", [10, 20])
def test_packets_that_come_shortly_before_the_read_keep_the_delay(delay: JitterDelay, left_ms: int) -> None:
    assert not any(delay.observe_all([left_ms] * WINDOW, LATE_NS))


def test_one_late_packet_keeps_the_delay(delay: JitterDelay) -> None:
    delay.observe(10, LATE_NS)
    assert not any(delay.observe_all([10] * (WINDOW - 1)))


def test_of_more_than_a_read_a_whole_read_is_taken_out_however_late_packets_come(delay: JitterDelay) -> None:
    assert delay.observe_all([30] * WINDOW, LATE_NS)[-1] == 20


def test_half_a_read_is_taken_out_when_no_more_is_left(delay: JitterDelay) -> None:
    assert not any(delay.observe_all([10] * (WINDOW - 1) + [30, 20]))
    assert delay.observe(10) == 10
    assert not any(delay.observe_all([0] * 2 * WINDOW))


def splice(native: ctypes.CDLL, frame: Samples, following: Samples, dropped: int, ramp: int) -> None:
    """Changes `frame`."""
    pointers = (each.ctypes.data_as(ctypes.c_void_p) for each in (frame, following))
    native.jitter_delay_splice(next(pointers), len(frame), next(pointers), dropped, ramp)


@pytest.mark.parametrize("dropped", [FRAME // 2, FRAME])
def test_what_is_taken_out_is_replaced_by_what_followed(native: ctypes.CDLL, dropped: int) -> None:
    frame, following = np.full(FRAME, 1000, np.int16), np.full(FRAME, 5000, np.int16)
    splice(native, frame, following, dropped, 40)
    kept = FRAME - dropped
    assert (frame[:kept] == 1000).all()
    assert (np.diff(frame[kept : kept + 40].astype(int)) == 100).all(), "a fade of 5 ms"
    assert (frame[kept + 40 :] == 5000).all()
