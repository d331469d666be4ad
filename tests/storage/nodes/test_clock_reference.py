"""The time of the database as a node knows it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from config import clock
from storage.database.database import Database
from storage.nodes.clock_reference import MAX_SLEWED_S, SLEW, WINDOW_S, ClockReference, ClockSample
from storage.nodes.cluster_membership import ClusterMembership
from storage.tables.columns import EPOCH

HEARTBEAT_S = 2.0


class World:
    """A database's clock and a node's monotonic one, which gains `drift` on it."""

    def __init__(self, skew_s: float = 1_800_000_000.0, drift: float = 0.0) -> None:
        self.true_s = 100.0
        self.skew_s = skew_s
        self.drift = drift
        self.reference = ClockReference()

    @property
    def monotonic_s(self) -> float:
        return self.true_s * (1 + self.drift)

    @property
    def database(self) -> datetime:
        return EPOCH + timedelta(seconds=self.true_s + self.skew_s)

    def heartbeat(self, there_s: float = 0.0002, back_s: float = 0.0002) -> float:
        """One reading; returns the jump."""
        before_s = self.monotonic_s
        self.true_s += there_s
        at = clock.whole_ms(self.database)
        self.true_s += back_s
        return self.reference.add(ClockSample(before_s, at, self.monotonic_s))

    def wait(self, seconds: float) -> None:
        self.true_s += seconds

    @property
    def error_s(self) -> float:
        """Of the node's time."""
        return (self.reference.now(self.monotonic_s) - self.database).total_seconds()


def test_the_node_has_the_time_of_the_database_after_one_quick_reading() -> None:
    world = World()
    world.heartbeat()
    assert abs(world.error_s) < 0.002


def test_slow_round_trips_do_not_spoil_a_quick_one() -> None:
    world, rng = World(), random.Random(1)
    world.heartbeat()
    for _ in range(40):
        world.wait(HEARTBEAT_S)
        world.heartbeat(there_s=rng.uniform(0, 0.45), back_s=rng.uniform(0, 0.45))
        assert abs(world.error_s) < 0.01


def test_the_smallest_round_trip_of_a_window_counts() -> None:
    world, rng = World(), random.Random(2)
    world.heartbeat(0.4, 0.0)
    assert abs(world.error_s) < 0.25
    for _ in range(200):
        world.wait(HEARTBEAT_S)
        quick = rng.random() < 0.1
        world.heartbeat(*((0.001, 0.001) if quick else (rng.uniform(0.1, 0.4), 0.0)))
    assert abs(world.error_s) < 0.015


def test_a_reading_that_took_more_than_a_second_does_not_count() -> None:
    world = World()
    world.heartbeat(1.5, 0.0)
    assert not world.reference.is_known
    world.heartbeat()
    world.wait(HEARTBEAT_S)
    world.heartbeat(0.0, 8.0)
    assert abs(world.error_s) < 0.01


def test_a_small_error_is_made_up_slowly_and_time_never_runs_back() -> None:
    world = World()
    world.heartbeat(0.4, 0.0)
    world.heartbeat()
    assert world.error_s == pytest.approx(0.2, abs=0.01)
    last = world.reference.now(world.monotonic_s)
    for _ in range(3000):
        world.wait(0.01)
        now = world.reference.now(world.monotonic_s)
        assert timedelta(seconds=0.01 * (1 - 2 * SLEW)) < now - last < timedelta(seconds=0.01 * (1 + 2 * SLEW))
        last = now
    assert abs(world.error_s) < 0.002


@pytest.mark.parametrize("step_s", [-60.0, 60.0])
def test_a_step_of_the_databases_clock_is_followed_at_once(step_s: float) -> None:
    world = World()
    for _ in range(10):
        world.heartbeat()
        world.wait(HEARTBEAT_S)
    world.skew_s += step_s
    assert world.heartbeat() == pytest.approx(step_s, abs=0.01)
    assert abs(world.error_s) < 0.002


def test_a_small_step_of_the_databases_clock_is_made_up_slowly() -> None:
    world = World()
    world.heartbeat()
    world.skew_s += 0.5
    assert MAX_SLEWED_S > 0.5 and world.heartbeat() == 0.0
    for _ in range(30):
        world.wait(HEARTBEAT_S)
        assert world.heartbeat() == 0.0
    assert abs(world.error_s) < 0.005


@pytest.mark.parametrize("drift", [-80e-6, 80e-6])
def test_a_clock_that_drifts_stays_close(drift: float) -> None:
    world, rng = World(drift=drift), random.Random(3)
    for _ in range(int(3 * WINDOW_S / HEARTBEAT_S)):
        world.heartbeat(rng.uniform(0, 0.003), rng.uniform(0, 0.003))
        world.wait(HEARTBEAT_S)
        assert abs(world.error_s) < 0.01


@pytest.fixture
def machine_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[timedelta]]:
    """How far the machine's clock is ahead; a list of one."""
    ahead, true_time = [timedelta()], clock.machine_time

    def skewed() -> datetime:
        return true_time() + ahead[0]

    monkeypatch.setattr(clock, "machine_time", skewed)
    monkeypatch.setattr(clock, "_source", skewed)
    yield ahead
    clock.set_source(true_time)


async def test_a_node_whose_clock_is_a_minute_ahead_has_the_databases_time(
    database: Database, machine_clock: list[timedelta]
) -> None:
    machine_clock[0] = timedelta(minutes=1)
    true_time = clock.machine_time() - machine_clock[0]
    assert clock.utc_now() - true_time > timedelta(seconds=59)
    node = ClusterMembership(database, "a", None, "1")
    await node.join()

    def error() -> timedelta:
        return clock.utc_now() - (clock.machine_time() - machine_clock[0])

    assert abs(error()) < timedelta(seconds=0.1)
    machine_clock[0] = timedelta(minutes=-3)
    assert abs(error()) < timedelta(seconds=0.1), "the machine's clock was set meanwhile"
    await node.leave()
    assert error() < timedelta(minutes=-2), "it has left the nodes"
