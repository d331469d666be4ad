"""When sockets are read: before the ticks of each phase that has sockets, early enough, and not in a burst after a
pause. Times in ms."""

from __future__ import annotations

import ctypes

import pytest

from tests.sipcore.native_harness import compile_native

PERIOD = 20.0
ALL_PHASES = 0b11111111
MIN_LEAD = 1.0


class _Times(ctypes.Structure):
    _fields_ = (
        ("period_ns", ctypes.c_int64),
        ("begin_ns", ctypes.c_int64),
        ("phase", ctypes.c_int),
        ("lead_ns", ctypes.c_int64 * 8),
    )


class Readings:
    """The times of readings from 1000 ms on."""

    def __init__(self, native: ctypes.CDLL) -> None:
        self._native = native
        self._times = _Times()
        native.reading_times_init(ctypes.byref(self._times), ctypes.c_int64(20_000_000), ctypes.c_int64(1_000_000_000))

    def begin(self, now: float = 1000.0) -> float:
        return float(self._native.reading_times_begin(ctypes.byref(self._times), ctypes.c_int64(int(now * 1e6)))) / 1e6

    def done(self, took: float, phases: int) -> None:
        self._native.reading_times_done(
            ctypes.byref(self._times), ctypes.c_int64(int(took * 1e6)), ctypes.c_uint(phases)
        )


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = compile_native(tmp_path_factory.mktemp("times"), "sipcore/native/rtp/reading_times.c")
    library.reading_times_begin.restype = ctypes.c_int64
    return library


@pytest.fixture
def readings(native: ctypes.CDLL) -> Readings:
    return Readings(native)


@pytest.mark.parametrize(
    ("phases", "ticks"),
    [
        (0b0001, [1020, 1040, 1060]),
        (0b00010001, [1020, 1030, 1040, 1050]),
        (0b10000000, [1020, 1037.5, 1040, 1057.5]),
        (ALL_PHASES, [1020, 1022.5, 1025, 1027.5, 1030, 1032.5, 1035, 1037.5, 1040]),
    ],
)
def test_phase_0_and_those_with_sockets_are_read_before_their_ticks(
    readings: Readings, phases: int, ticks: list[float]
) -> None:
    for tick in ticks:
        assert readings.begin() == tick - MIN_LEAD
        readings.done(0, phases)


def test_a_reading_begins_earlier_the_longer_the_last_ones_of_its_phase_took(readings: Readings) -> None:
    for _ in range(100):
        readings.done(2, 0b0011)
        readings.done(0, 0b0011)
    tick = 1020 + 100 * PERIOD
    assert tick - readings.begin(tick - 10) == pytest.approx(MIN_LEAD + 2.5, abs=0.01)
    readings.done(2, 0b0011)
    assert tick + PERIOD / 8 - readings.begin(tick) == pytest.approx(MIN_LEAD, abs=0.01)


def test_one_interrupted_reading_hardly_moves_the_next_ones(readings: Readings) -> None:
    readings.done(4, 0b0001)
    assert 1040 - readings.begin() <= MIN_LEAD + 5 / 4 + 0.01


def test_a_reading_begins_8_ms_before_its_tick_at_most(readings: Readings) -> None:
    for _ in range(100):
        readings.done(18, 0b0001)
    assert 1020 + 100 * PERIOD - readings.begin(3000) == pytest.approx(8, abs=0.01)


def test_a_late_reading_is_made_up_for_and_after_a_standstill_readings_are_skipped(readings: Readings) -> None:
    assert readings.begin(1055) == 1020 - MIN_LEAD
    readings.done(0, ALL_PHASES)
    assert readings.begin(5003) == 5020 - MIN_LEAD
