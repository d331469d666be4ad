"""A change of one phone number among very many does not block the event loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from calls.cooperative_scheduling import MAX_REST_S, REST_FACTOR, DutyCycle, TimeSlice
from calls.trunks.provisioning import TrunkBuilder, TrunkProvisioner
from calls.trunks.source_allowlist import SourceAllowlist
from calls.trunks.trunk_authorization import TrunkAuthorizer
from calls.trunks.trunk_dns_watcher import TrunkDnsWatcher
from config.secrets import Secrets
from sipcore.resolver.sip_locator import ResolvedTargets
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.trunks.trunk import Trunk, TrunkStatus
from storage.accounts import organizations
from storage.database.database import Database
from storage.phone_numbers import phone_numbers, trunk_grants
from storage.phone_numbers.phone_numbers import PhoneNumber, PhoneNumberFields
from storage.phone_numbers.trunk_grant_evaluation import TrunkAccessRules

NUMBERS = 2000
ENFORCED = TrunkAccessRules(enforced=True)
LONGEST_S = 0.1
"""Of processor time, in one step: many times what it takes, a fraction of what it took with every number looked at in
one go, and every place for every number."""


@contextmanager
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Records the processor time of every step of the event loop, without garbage collection."""
    step_times: list[float] = []
    plain = asyncio.Handle._run

    def run(handle: Any) -> None:
        before_s = time.thread_time()
        plain(handle)
        step_times.append(time.thread_time() - before_s)

    gc.disable()
    with monkeypatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", run)
        yield step_times
    gc.enable()


def fill(conn: sa.Connection) -> list[PhoneNumber]:
    """Store numbers: half with one host name and a port each, half with addresses."""
    owner = organizations.create(conn, "busy").id
    for trunk in ("pbx.test", "198.18.0.0/15"):
        trunk_grants.allow(conn, owner, trunk, "*", actor="ann")

    def create(place: int) -> PhoneNumber:
        host = "pbx.test" if place % 2 else f"198.18.{place // 250}.{place % 250 + 1}"
        fields = PhoneNumberFields(
            number=str(100000 + place), provider="sip", sip_mode="ip_allowlist", sip_protocol="udp", sip_ip=host,
            sip_port=10000 + place,
        )  # fmt: skip
        return phone_numbers.create(conn, owner, fields, ENFORCED)

    return [create(place) for place in range(NUMBERS)]


async def test_a_change_among_very_many_numbers_does_not_block_the_event_loop(
    database: Database, secrets: Secrets, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[SipHostPort] = []
    had: list[Trunk] = []

    async def locate(place: SipHostPort) -> ResolvedTargets:
        looked.append(place)
        return ResolvedTargets((SipTarget("203.0.113.7", place.port or 5060, "udp"),), 300)

    async def apply(trunks: Sequence[Trunk]) -> None:
        had[:] = trunks

    authorizer = TrunkAuthorizer("approved")
    dns_watcher = TrunkDnsWatcher(locate, lambda _: None)
    dns_watcher.is_allowed, authorizer.resolved_hosts = authorizer.is_allowed, dns_watcher.all_resolved_addresses
    maker = TrunkBuilder(secrets, dns_watcher)
    provisioner = TrunkProvisioner(database, maker, apply, lambda _: TrunkStatus("listening"), authorizer)
    sources = SourceAllowlist(database, lambda _: None, dns_watcher, "approved")
    numbers = await database.write(fill)
    for _ in range(2):
        await sources.refresh()
        await provisioner.refresh()
        await dns_watcher.wait_resolved(30)
    assert len(had) == NUMBERS
    assert len(looked) <= 3, "the ports of a host share a lookup"
    for place in (1, 2):
        await database.write(partial(phone_numbers.replace, stored=numbers[place], changes={"sip_port": 9000}))
    with steps(monkeypatch) as step_times:
        await provisioner.refresh()
        await sources.refresh()
        await asyncio.sleep(0.1)
    assert sum(trunk.port == 9000 for trunk in had) == 2
    assert max(step_times) < LONGEST_S
    await dns_watcher.close()


def busy(seconds: float) -> None:
    """Block the event loop."""
    time.sleep(seconds)


async def test_long_work_yields_to_the_event_loop() -> None:
    turns: list[str] = []

    async def work() -> None:
        slices = TimeSlice(0.001)
        for _ in range(3):
            busy(0.002)
            await slices.checkpoint()
            turns.append("work")

    async def others() -> None:
        for _ in range(3):
            turns.append("others")
            await asyncio.sleep(0)

    await asyncio.gather(work(), others())
    assert turns == ["others", "work"] * 3


async def test_the_rest_is_a_multiple_of_the_run() -> None:
    duty_cycle = DutyCycle()
    assert duty_cycle.rest_s == 0, "the first begins at once"
    with duty_cycle.busy():
        busy(0.02)
    assert 0.02 < duty_cycle.rest_s < MAX_REST_S
    begun_s = time.perf_counter()
    await duty_cycle.wait()
    assert time.perf_counter() - begun_s >= 0.02 * (REST_FACTOR - 1)
    assert duty_cycle.rest_s < 0.02


async def test_a_flood_of_changes_is_read_at_the_duty_cycle(database: Database, secrets: Secrets) -> None:
    reads: list[float] = []

    async def slow(_: Sequence[Trunk]) -> None:
        reads.append(time.perf_counter())
        await asyncio.sleep(0.05)

    dns_watcher = TrunkDnsWatcher(lambda _: asyncio.sleep(60, ResolvedTargets((), 60)), lambda _: None)
    provisioner = TrunkProvisioner(
        database, TrunkBuilder(secrets, dns_watcher), slow, lambda _: TrunkStatus("listening")
    )
    task = asyncio.create_task(provisioner.run())
    until_s = time.perf_counter() + 1
    while time.perf_counter() < until_s:
        provisioner.on_number_change()
        await asyncio.sleep(0.005)
    task.cancel()
    assert 2 <= len(reads) <= 1 / (0.05 * (1 + REST_FACTOR)) + 1
    await dns_watcher.close()
