"""The phase of two bridged slots' ticks, packet by packet: which packets each tick reads."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator

import numpy as np
import pytest

from tests.sipcore.native_harness import compile_native

TICK_MS = 20.0
LEAD_MS = 1.3
"""How long before its tick a reading begins."""
BEGIN_MS = 1000.0
SETTLED_MS = 600.0
"""After the beginning: the phase has been chosen, from arrivals that were known by then."""


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = compile_native(
        tmp_path_factory.mktemp("pair"),
        "tests/sipcore/audio/pair_by_packets.c",
        "sipcore/native/pump/packet_arrival.c",
        "sipcore/native/pump/tick_pair.c",
    )
    library.create.restype = ctypes.c_void_p
    library.next_tick_ns.restype = ctypes.c_int64
    return library


class Pair:
    """Two slots, whose peers send a packet every 20 ms of their own clocks."""

    def __init__(self, native: ctypes.CDLL, lead_ms: float = LEAD_MS) -> None:
        self._native = native
        begin, lead = (ctypes.c_int64(int(ms * 1e6)) for ms in (BEGIN_MS, lead_ms))
        self._pair = ctypes.c_void_p(native.create(lead, begin))
        self.uneven: list[float] = []
        """Times, ms after the beginning, of ticks that had no packet of a peer, or two."""
        self.changes: list[float] = []
        """Times of the changes of the phase."""
        self.waits: list[float] = []
        """From each packet's arrival until its tick, ms; without those before `SETTLED_MS`."""

    def run(self, seconds: float, arrivals: tuple[Iterator[float], Iterator[float]]) -> None:
        """Ticks while packets come at these times, ms after the beginning; at `inf` there are no more."""
        came: tuple[list[float], list[float]] = ([], [])
        coming = sorted(((at, slot) for slot in (0, 1) for at in _until(arrivals[slot], seconds)), reverse=True)
        while (now := self._native.next_tick_ns(self._pair) / 1e6 - BEGIN_MS) < seconds * 1000:
            while coming and coming[-1][0] <= now:
                at, slot = coming.pop()
                self._native.packet_comes(self._pair, slot, ctypes.c_int64(int((BEGIN_MS + at) * 1e6)))
                came[slot].append(at)
            self._tick(now, came)

    def _tick(self, now: float, came: tuple[list[float], list[float]]) -> None:
        read = (ctypes.c_int * 2)()
        before = self._native.phase_of(self._pair)
        self._native.tick(self._pair, read)
        if self._native.phase_of(self._pair) != before:
            self.changes.append(now)
        for slot, arrived in enumerate(came):
            if read[slot] != 1 and arrived:
                self.uneven.append(now)
            taken, came[slot][:] = arrived[: read[slot]], arrived[read[slot] :]
            self.waits += [now - at for at in taken if now > SETTLED_MS]

    def close(self) -> None:
        self._native.drop(self._pair)


def _until(arrivals: Iterator[float], seconds: float) -> Iterator[float]:
    for at in arrivals:
        if at > seconds * 1000:
            return
        yield at


def packets(offset_ms: float, jitter_ms: float = 0.0, drift_ppm: float = 0.0) -> Iterator[float]:
    """Arrivals of packets that are sent every 20 ms of a clock that is slow by `drift_ppm`, each early or late by up to
    `jitter_ms`."""
    chance = random.Random(int(offset_ms * 1000))
    at = offset_ms + TICK_MS
    while True:
        yield at + chance.uniform(-jitter_ms, jitter_ms)
        at += TICK_MS * (1 + drift_ppm / 1e6)


@pytest.fixture
def pair(native: ctypes.CDLL) -> Iterator[Pair]:
    made = Pair(native)
    yield made
    made.close()


OFFSETS = np.arange(0.0, 20.0, 0.25)


@pytest.mark.parametrize("apart_ms", [0.0, 3.0, 7.5, 10.0])
def test_packets_wait_briefly_and_each_tick_has_one_of_each_peer(native: ctypes.CDLL, apart_ms: float) -> None:
    for offset in OFFSETS:
        pair = Pair(native)
        pair.run(20, (packets(offset, 1.0), packets(offset + apart_ms, 1.0)))
        pair.close()
        assert [at for at in pair.uneven if at > SETTLED_MS] == [], offset
        assert len(pair.changes) <= 1
        assert max(pair.waits) <= 10 + TICK_MS / 4 + LEAD_MS + 2.5, offset


def test_packets_at_the_moment_of_the_reading_wait_for_a_later_phase(pair: Pair) -> None:
    pair.run(20, (packets(-LEAD_MS, 1.0), packets(-LEAD_MS / 2, 1.0)))
    assert [at for at in pair.uneven if at > SETTLED_MS] == []
    assert 3 < np.median(pair.waits) < 8
    assert len(pair.changes) == 1


@pytest.mark.parametrize("drift_ppm", [-100.0, 100.0])
def test_a_drifting_clock_changes_the_phase_in_small_steps(pair: Pair, drift_ppm: float) -> None:
    seconds = 600  # in which the peer's clock drifts by 60 ms
    pair.run(seconds, (packets(2.0, 0.3, drift_ppm), packets(12.0, 0.3)))
    slips = abs(drift_ppm) / 1e6 * seconds * 1000 / TICK_MS
    assert slips - 1 <= len(pair.changes) <= 8 * slips + 1
    strays = [at for at in pair.uneven if at > SETTLED_MS and not any(0 <= at - change < 50 for change in pair.changes)]
    assert strays == []


def test_without_packets_of_one_peer_those_of_the_other_decide(pair: Pair) -> None:
    pair.run(20, (packets(18.5, 0.5), iter(())))
    assert [at for at in pair.uneven if at > 2000] == []
    assert len(pair.changes) == 1
    assert np.median(pair.waits[100:]) < 8


def test_a_long_reading_does_not_make_the_phase_change_again_and_again(native: ctypes.CDLL) -> None:
    pair = Pair(native, lead_ms=8.0)
    pair.run(60, (packets(3.0, 1.0), packets(13.0, 1.0)))
    pair.close()
    assert len(pair.changes) <= 1
