"""Tracking of trunk host names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from calls.trunks.trunk_dns_watcher import (
    DEMOTION_S,
    FAILURE_RETRY_S,
    MAX_REFRESH_S,
    MIN_REFRESH_S,
    HostTable,
    TrunkDnsWatcher,
    refresh_after_s,
)
from sipcore.resolver.dns_records import LookupFailed
from sipcore.resolver.sip_locator import ResolvedTargets
from sipcore.resolver.target import SipHostPort, SipTarget, Transport
from tests.virtual_time import virtually

PBX = SipHostPort("pbx.test", 5060, "udp")


def at(*addresses: str, transport: Transport = "udp") -> tuple[SipTarget, ...]:
    return tuple(SipTarget(each, 5060, transport) for each in addresses)


@dataclass
class DnsWatcherHarness:
    """A DNS watcher whose hosts resolve by `names`: others fail, those in `slow` wait for their event, and None raises
    an unexpected exception."""

    names: dict[str, ResolvedTargets | None] = field(default_factory=dict)
    slow: dict[str, asyncio.Event] = field(default_factory=dict)
    asked: list[tuple[float, str]] = field(default_factory=list)
    tables: list[HostTable] = field(default_factory=list)
    ttl_s: float = 300.0

    def __post_init__(self) -> None:
        self.dns_watcher = TrunkDnsWatcher(self.locate, self.tables.append)

    def __setitem__(self, name: str, targets: tuple[SipTarget, ...]) -> None:
        self.names[name] = ResolvedTargets(targets, self.ttl_s)

    async def locate(self, place: SipHostPort) -> ResolvedTargets:
        self.asked.append((asyncio.get_running_loop().time(), place.host))
        if place.host in self.slow:
            await self.slow[place.host].wait()
        if place.host not in self.names:
            raise LookupFailed(f"{place.host}: no answer in time")
        found = self.names[place.host]
        if found is None:
            raise RuntimeError("broken")
        return found

    def times(self, name: str) -> list[float]:
        return [at_s for at_s, asked in self.asked if asked == name]


def with_harness(test: Callable[[DnsWatcherHarness], object]) -> Callable[[], None]:
    """Run a test with a DNS watcher on a virtual clock."""

    @virtually
    async def run() -> None:
        harness = DnsWatcherHarness()
        try:
            await test(harness)  # type: ignore[misc]
        finally:
            await harness.dns_watcher.close()

    run.__name__ = test.__name__
    return run


@with_harness
async def test_a_destination_is_published_when_it_is_resolved(harness: DnsWatcherHarness) -> None:
    harness["pbx.test"] = at("192.0.2.1", "192.0.2.2")
    harness.dns_watcher.subscribe("trunks", [PBX])
    assert harness.dns_watcher.targets(PBX) == []
    await harness.dns_watcher.wait_resolved(5)
    assert harness.dns_watcher.targets(PBX) == list(at("192.0.2.1", "192.0.2.2"))
    assert harness.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): list(at("192.0.2.1", "192.0.2.2"))}
    assert harness.dns_watcher.allowed_addresses("PBX.test.") == {"192.0.2.1", "192.0.2.2"}


@with_harness
async def test_an_address_that_no_trunk_may_have_is_never_published(harness: DnsWatcherHarness) -> None:
    harness["pbx.test"] = at("239.1.2.3", "192.0.2.1", "169.254.169.254")
    harness["evil.test"] = at("255.255.255.255", "0.0.0.0", "::ffff:224.0.0.1")
    evil = SipHostPort("evil.test", 5060, "udp")
    harness.dns_watcher.subscribe("trunks", [PBX, evil])
    with capture_logs() as logs:
        await harness.dns_watcher.wait_resolved(5)
    assert harness.dns_watcher.targets(PBX) == list(at("192.0.2.1"))
    assert harness.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): list(at("192.0.2.1"))}
    assert await harness.dns_watcher.resolve(evil) == []
    assert harness.dns_watcher.allowed_addresses("evil.test") == set()
    assert "no address that a trunk may have: 255.255.255.255 (broadcast)" in str(
        harness.dns_watcher.lookup_error(evil)
    )
    assert {line["event"] for line in logs} == {"trunks.address_refused", "trunks.host_unknown"}


@with_harness
async def test_a_host_that_moves_to_an_unusable_address_keeps_its_targets(
    harness: DnsWatcherHarness,
) -> None:
    harness["pbx.test"] = at("192.0.2.1")
    harness.dns_watcher.subscribe("trunks", [PBX])
    await harness.dns_watcher.wait_resolved(5)
    harness["pbx.test"] = at("169.254.169.254")
    await asyncio.sleep(MAX_REFRESH_S)
    assert len(harness.times("pbx.test")) > 1
    assert harness.dns_watcher.targets(PBX) == list(at("192.0.2.1"))


@with_harness
async def test_a_destination_without_a_transport_is_entered_under_each_transport(harness: DnsWatcherHarness) -> None:
    tcp, udp = at("192.0.2.1", transport="tcp"), at("192.0.2.2")
    harness["pbx.test"] = tcp + udp
    harness.dns_watcher.subscribe("trunks", [SipHostPort("pbx.test")])
    await harness.dns_watcher.wait_resolved(5)
    assert harness.tables[-1] == {
        SipHostPort("pbx.test", None, "tcp"): list(tcp),
        SipHostPort("pbx.test", None, "udp"): list(udp),
    }


@with_harness
async def test_an_ip_address_is_never_looked_up(harness: DnsWatcherHarness) -> None:
    harness.dns_watcher.subscribe("trunks", [SipHostPort("192.0.2.1"), SipHostPort("2001:db8::1")])
    assert await harness.dns_watcher.resolve(SipHostPort("192.0.2.9", None, "tcp")) == list(
        at("192.0.2.9", transport="tcp")
    )
    assert harness.asked == []


@with_harness
async def test_a_host_is_refreshed_before_its_ttl_ends(harness: DnsWatcherHarness) -> None:
    harness["pbx.test"] = at("192.0.2.1")
    harness.dns_watcher.subscribe("trunks", [PBX])
    await asyncio.sleep(299)
    assert len(harness.times("pbx.test")) == 2
    harness["pbx.test"] = at("192.0.2.7")
    await asyncio.sleep(300)
    assert harness.dns_watcher.targets(PBX) == list(at("192.0.2.7"))
    assert harness.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): list(at("192.0.2.7"))}


def test_refresh_intervals_have_bounds() -> None:
    for chance in (0.0, 0.999):
        assert 0.89 * MIN_REFRESH_S < refresh_after_s(0, chance) < MIN_REFRESH_S
        assert 0.89 * MAX_REFRESH_S < refresh_after_s(10**9, chance) < MAX_REFRESH_S
        assert 89 < refresh_after_s(100, chance) < 100
        assert refresh_after_s(None, chance) == FAILURE_RETRY_S


@with_harness
async def test_a_failing_lookup_keeps_the_targets_and_is_logged_once(harness: DnsWatcherHarness) -> None:
    harness["pbx.test"] = at("192.0.2.1")
    harness.dns_watcher.subscribe("trunks", [PBX])
    await harness.dns_watcher.wait_resolved(5)
    del harness.names["pbx.test"]
    with capture_logs() as logs:
        await asyncio.sleep(3600)
    assert harness.dns_watcher.targets(PBX) == list(at("192.0.2.1"))
    assert [(line["event"], line["host"], line["kept"]) for line in logs] == [
        ("trunks.host_unknown", "pbx.test", ["192.0.2.1"])
    ]
    assert len(harness.times("pbx.test")) == pytest.approx(1 + 3600 / FAILURE_RETRY_S, abs=12), (
        "more often than after a success"
    )
    assert harness.dns_watcher.lookup_error(PBX) == "pbx.test: no answer in time"
    harness["pbx.test"] = at("192.0.2.2")
    with capture_logs() as logs:
        await asyncio.sleep(FAILURE_RETRY_S)
    assert harness.dns_watcher.targets(PBX) == list(at("192.0.2.2"))
    assert [line["event"] for line in logs] == ["trunks.host_found"]
    assert harness.dns_watcher.lookup_error(PBX) is None


@with_harness
async def test_an_incomplete_answer_is_used_unless_there_is_a_complete_one(harness: DnsWatcherHarness) -> None:
    harness.names["pbx.test"] = ResolvedTargets(at("192.0.2.1"), 300, complete=False)
    harness.dns_watcher.subscribe("trunks", [PBX])
    await harness.dns_watcher.wait_resolved(5)
    assert harness.dns_watcher.targets(PBX) == list(at("192.0.2.1"))
    harness["pbx.test"] = at("192.0.2.2")
    await asyncio.sleep(FAILURE_RETRY_S + 1)
    harness.names["pbx.test"] = ResolvedTargets(at("192.0.2.1"), 300, complete=False)
    await asyncio.sleep(1800)
    assert harness.dns_watcher.targets(PBX) == list(at("192.0.2.2"))
    await asyncio.sleep(3600)
    assert harness.dns_watcher.targets(PBX) == list(at("192.0.2.1")), "the incomplete answer is used"


@with_harness
async def test_a_slow_lookup_delays_no_other(harness: DnsWatcherHarness) -> None:
    harness.slow["slow.test"] = asyncio.Event()
    harness["slow.test"], harness["pbx.test"] = at("192.0.2.8"), at("192.0.2.1")
    slow = SipHostPort("slow.test", 5060, "udp")
    harness.dns_watcher.subscribe("trunks", [slow, PBX])
    assert await harness.dns_watcher.resolve(PBX) == list(at("192.0.2.1"))
    await harness.dns_watcher.wait_resolved(1)
    assert asyncio.get_running_loop().time() == pytest.approx(1, abs=0.1)
    waiting = asyncio.create_task(harness.dns_watcher.resolve(slow))
    await asyncio.sleep(1)
    assert not waiting.done()
    harness.slow["slow.test"].set()
    assert await waiting == list(at("192.0.2.8"))
    assert len(harness.times("slow.test")) == 1


@with_harness
async def test_a_destination_without_subscribers_is_not_tracked(harness: DnsWatcherHarness) -> None:
    harness["pbx.test"], harness["sbc.test"] = at("192.0.2.1"), at("192.0.2.2")
    sbc = SipHostPort("sbc.test", 5060, "udp")
    harness.dns_watcher.subscribe("trunks", [PBX, sbc])
    harness.dns_watcher.subscribe("sources", [PBX])
    await harness.dns_watcher.wait_resolved(5)
    harness.dns_watcher.subscribe("trunks", [])
    assert harness.dns_watcher.targets(PBX) == list(at("192.0.2.1")), "another subscriber has it"
    assert harness.dns_watcher.targets(sbc) == []
    await asyncio.sleep(1)
    assert harness.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): list(at("192.0.2.1"))}
    await asyncio.sleep(3600)
    assert len(harness.times("sbc.test")) == 1


@with_harness
async def test_a_resolved_destination_is_tracked_for_minutes(harness: DnsWatcherHarness) -> None:
    harness["pbx.test"] = at("192.0.2.1")
    assert await harness.dns_watcher.resolve(PBX) == list(at("192.0.2.1"))
    assert harness.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): list(at("192.0.2.1"))}, "PJSIP can go there now"
    assert await harness.dns_watcher.resolve(SipHostPort("nowhere.test")) == []
    await asyncio.sleep(3600)
    assert harness.dns_watcher.targets(PBX) == []
    assert harness.tables[-1] == {}


@with_harness
async def test_destinations_without_subscribers_are_limited(harness: DnsWatcherHarness) -> None:
    for number in range(300):
        harness[f"n{number}.test"] = at("192.0.2.1")
        await harness.dns_watcher.resolve(SipHostPort(f"n{number}.test", 5060, "udp"))
    await asyncio.sleep(1)
    assert len(harness.tables[-1]) <= 257


@with_harness
async def test_a_demoted_address_comes_last_for_minutes(harness: DnsWatcherHarness) -> None:
    harness["pbx.test"] = at("192.0.2.1", "192.0.2.2")
    await harness.dns_watcher.resolve(PBX)
    harness.dns_watcher.demote("PBX.test", "192.0.2.1")
    turned = list(at("192.0.2.2", "192.0.2.1"))
    assert harness.dns_watcher.targets(PBX) == turned
    assert harness.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): turned}
    await harness.dns_watcher.resolve(PBX)
    await asyncio.sleep(DEMOTION_S + 1)
    assert harness.dns_watcher.targets(PBX) == list(at("192.0.2.1", "192.0.2.2"))
    assert harness.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): list(at("192.0.2.1", "192.0.2.2"))}


@with_harness
async def test_on_change_is_called_after_changes_alone(harness: DnsWatcherHarness) -> None:
    heard: list[float] = []
    harness.dns_watcher.on_change.append(lambda: heard.append(asyncio.get_running_loop().time()))
    harness["pbx.test"], harness["sbc.test"] = at("192.0.2.1"), at("192.0.2.2")
    harness.dns_watcher.subscribe("trunks", [PBX, SipHostPort("sbc.test", 5060, "udp")])
    await asyncio.sleep(3000)
    assert len(heard) == 1, "both changes at once"
    harness["pbx.test"] = at("192.0.2.3")
    await asyncio.sleep(300)
    assert len(heard) == 2


@with_harness
async def test_an_unexpected_exception_in_a_lookup_is_logged_and_retried(harness: DnsWatcherHarness) -> None:
    harness.names["pbx.test"] = None
    with capture_logs() as logs:
        assert await harness.dns_watcher.resolve(PBX) == []
    assert [line["event"] for line in logs] == ["names.look_up_broken", "trunks.host_unknown"]
    harness["pbx.test"] = at("192.0.2.1")
    await asyncio.sleep(FAILURE_RETRY_S + 1)
    assert harness.dns_watcher.targets(PBX) == list(at("192.0.2.1"))


@virtually
async def test_waiters_return_at_close() -> None:
    harness = DnsWatcherHarness()
    harness.slow["pbx.test"] = asyncio.Event()
    waiting = asyncio.create_task(harness.dns_watcher.resolve(PBX))
    await asyncio.sleep(1)
    await harness.dns_watcher.close()
    assert await waiting == []


@with_harness
async def test_the_ports_of_a_host_share_a_lookup(harness: DnsWatcherHarness) -> None:
    harness["pbx.test"] = at("192.0.2.1", "192.0.2.2")
    transports: tuple[Transport, ...] = ("udp", "tcp")
    ports = [SipHostPort("pbx.test", port, transport) for port in range(5000, 5300) for transport in transports]
    harness.dns_watcher.subscribe("trunks", ports)
    await harness.dns_watcher.wait_resolved(5)
    assert len(harness.asked) == 1
    assert harness.dns_watcher.targets(SipHostPort("pbx.test", 5007, "tcp")) == [
        SipTarget("192.0.2.1", 5007, "tcp"), SipTarget("192.0.2.2", 5007, "tcp"),
    ]  # fmt: skip
    assert len(harness.tables[-1]) == len(ports)
    harness.dns_watcher.subscribe("trunks", [*ports[7:], SipHostPort("pbx.test", 6000, "udp")])
    await asyncio.sleep(10)
    assert len(harness.asked) == 1, "no further lookup is made"
    assert SipHostPort("pbx.test", 6000, "udp") in harness.tables[-1]
    assert SipHostPort("pbx.test", 5000, "udp") not in harness.tables[-1]


@with_harness
async def test_a_full_table_is_shared_fairly_by_organizations(harness: DnsWatcherHarness) -> None:
    with patch("calls.trunks.trunk_dns_watcher.MAX_HOSTS", 20):
        harness["pbx.test"], harness["other.test"], harness["source.test"] = (
            at("192.0.2.1"),
            at("192.0.2.2"),
            at("192.0.2.3"),
        )
        hog = {SipHostPort("pbx.test", 5000 + each, "udp"): {"hog"} for each in range(100)}
        small = {SipHostPort("other.test", 6000 + each, "udp"): {"small"} for each in range(8)}
        harness.dns_watcher.subscribe(
            "sources", [SipHostPort("source.test", 7000 + each, "udp") for each in range(100)]
        )
        harness.dns_watcher.subscribe("trunks", hog | small)
        await harness.dns_watcher.wait_resolved(5)
        table = harness.tables[-1]
        assert len(table) == 20
        assert {place.host for place in table} == {"pbx.test", "other.test"}
        assert sum(place.host == "other.test" for place in table) == 8


@with_harness
async def test_an_organization_with_very_many_hosts_leaves_lookups_for_others(harness: DnsWatcherHarness) -> None:
    hog = {SipHostPort(f"slow{each}.test", 5060, "udp"): {"hog"} for each in range(300)}
    harness.slow |= {place.host: asyncio.Event() for place in hog}
    harness["pbx.test"] = at("192.0.2.1")
    harness.dns_watcher.subscribe("trunks", hog)
    await asyncio.sleep(1)
    harness.dns_watcher.subscribe("trunks", {**hog, PBX: {"small"}})
    await asyncio.sleep(1)
    assert harness.dns_watcher.targets(PBX) == list(at("192.0.2.1"))
