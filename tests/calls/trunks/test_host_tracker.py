"""What is known of trunks' host names, and how it is kept up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from structlog.testing import capture_logs

from calls.trunks.host_tracker import (
    DEMOTED_S,
    FAILURE_RETRY_S,
    MAX_REFRESH_S,
    MIN_REFRESH_S,
    HostTracker,
    Table,
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
class World:
    """Names as they are; what is not there is looked for in vain, what is in `slow` when its event is set, and None
    breaks the look-up."""

    names: dict[str, ResolvedTargets | None] = field(default_factory=dict)
    slow: dict[str, asyncio.Event] = field(default_factory=dict)
    asked: list[tuple[float, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    ttl_s: float = 300.0

    def __post_init__(self) -> None:
        self.places = HostTracker(self.locate, self.tables.append)

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


def in_world(test: Callable[[World], object]) -> Callable[[], None]:
    """On a virtual clock, with places that are closed at the end."""

    @virtually
    async def run() -> None:
        world = World()
        try:
            await test(world)  # type: ignore[misc]
        finally:
            await world.places.close()

    run.__name__ = test.__name__
    return run


@in_world
async def test_a_place_is_published_when_it_is_found(world: World) -> None:
    world["pbx.test"] = at("192.0.2.1", "192.0.2.2")
    world.places.subscribe("trunks", [PBX])
    assert world.places.targets(PBX) == []
    await world.places.wait_resolved(5)
    assert world.places.targets(PBX) == list(at("192.0.2.1", "192.0.2.2"))
    assert world.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): list(at("192.0.2.1", "192.0.2.2"))}
    assert world.places.allowed_addresses("PBX.test.") == {"192.0.2.1", "192.0.2.2"}


@in_world
async def test_an_address_that_no_trunk_may_have_is_never_published(world: World) -> None:
    world["pbx.test"] = at("239.1.2.3", "192.0.2.1", "169.254.169.254")
    world["evil.test"] = at("255.255.255.255", "0.0.0.0", "::ffff:224.0.0.1")
    evil = SipHostPort("evil.test", 5060, "udp")
    world.places.subscribe("trunks", [PBX, evil])
    with capture_logs() as logs:
        await world.places.wait_resolved(5)
    assert world.places.targets(PBX) == list(at("192.0.2.1"))
    assert world.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): list(at("192.0.2.1"))}
    assert await world.places.resolve(evil) == []
    assert world.places.allowed_addresses("evil.test") == set()
    assert "no address that a trunk may have: 255.255.255.255 (broadcast)" in str(world.places.resolve_error(evil))
    assert {line["event"] for line in logs} == {"trunks.address_refused", "trunks.host_unknown"}


@in_world
async def test_a_name_that_moves_to_an_address_that_no_trunk_may_have_stays_where_it_was(world: World) -> None:
    world["pbx.test"] = at("192.0.2.1")
    world.places.subscribe("trunks", [PBX])
    await world.places.wait_resolved(5)
    world["pbx.test"] = at("169.254.169.254")
    await asyncio.sleep(MAX_REFRESH_S)
    assert len(world.times("pbx.test")) > 1
    assert world.places.targets(PBX) == list(at("192.0.2.1"))


@in_world
async def test_a_place_without_a_transport_stands_under_each_that_it_has(world: World) -> None:
    tcp, udp = at("192.0.2.1", transport="tcp"), at("192.0.2.2")
    world["pbx.test"] = tcp + udp
    world.places.subscribe("trunks", [SipHostPort("pbx.test")])
    await world.places.wait_resolved(5)
    assert world.tables[-1] == {
        SipHostPort("pbx.test", None, "tcp"): list(tcp),
        SipHostPort("pbx.test", None, "udp"): list(udp),
    }


@in_world
async def test_an_address_is_never_looked_for(world: World) -> None:
    world.places.subscribe("trunks", [SipHostPort("192.0.2.1"), SipHostPort("2001:db8::1")])
    assert await world.places.resolve(SipHostPort("192.0.2.9", None, "tcp")) == list(at("192.0.2.9", transport="tcp"))
    assert world.asked == []


@in_world
async def test_a_name_is_asked_for_again_before_its_time_is_over(world: World) -> None:
    world["pbx.test"] = at("192.0.2.1")
    world.places.subscribe("trunks", [PBX])
    await asyncio.sleep(299)
    assert len(world.times("pbx.test")) == 2
    world["pbx.test"] = at("192.0.2.7")
    await asyncio.sleep(300)
    assert world.places.targets(PBX) == list(at("192.0.2.7"))
    assert world.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): list(at("192.0.2.7"))}


def test_times_to_live_are_kept_within_bounds() -> None:
    for chance in (0.0, 0.999):
        assert 0.89 * MIN_REFRESH_S < refresh_after_s(0, chance) < MIN_REFRESH_S
        assert 0.89 * MAX_REFRESH_S < refresh_after_s(10**9, chance) < MAX_REFRESH_S
        assert 89 < refresh_after_s(100, chance) < 100
        assert refresh_after_s(None, chance) == FAILURE_RETRY_S


@in_world
async def test_a_failing_look_up_takes_nothing_away_and_is_told_once(world: World) -> None:
    world["pbx.test"] = at("192.0.2.1")
    world.places.subscribe("trunks", [PBX])
    await world.places.wait_resolved(5)
    del world.names["pbx.test"]
    with capture_logs() as logs:
        await asyncio.sleep(3600)
    assert world.places.targets(PBX) == list(at("192.0.2.1"))
    assert [(line["event"], line["host"], line["kept"]) for line in logs] == [
        ("trunks.host_unknown", "pbx.test", ["192.0.2.1"])
    ]
    assert len(world.times("pbx.test")) == pytest.approx(1 + 3600 / FAILURE_RETRY_S, abs=12), "sooner than usual"
    assert world.places.resolve_error(PBX) == "pbx.test: no answer in time"
    world["pbx.test"] = at("192.0.2.2")
    with capture_logs() as logs:
        await asyncio.sleep(FAILURE_RETRY_S)
    assert world.places.targets(PBX) == list(at("192.0.2.2"))
    assert [line["event"] for line in logs] == ["trunks.host_found"]
    assert world.places.resolve_error(PBX) is None


@in_world
async def test_half_an_answer_is_better_than_none_but_not_than_a_whole_one(world: World) -> None:
    world.names["pbx.test"] = ResolvedTargets(at("192.0.2.1"), 300, complete=False)
    world.places.subscribe("trunks", [PBX])
    await world.places.wait_resolved(5)
    assert world.places.targets(PBX) == list(at("192.0.2.1"))
    world["pbx.test"] = at("192.0.2.2")
    await asyncio.sleep(FAILURE_RETRY_S + 1)
    world.names["pbx.test"] = ResolvedTargets(at("192.0.2.1"), 300, complete=False)
    await asyncio.sleep(1800)
    assert world.places.targets(PBX) == list(at("192.0.2.2"))
    await asyncio.sleep(3600)
    assert world.places.targets(PBX) == list(at("192.0.2.1")), "it seems to be all that there is to know"


@in_world
async def test_a_slow_name_keeps_nobody_else_waiting(world: World) -> None:
    world.slow["slow.test"] = asyncio.Event()
    world["slow.test"], world["pbx.test"] = at("192.0.2.8"), at("192.0.2.1")
    slow = SipHostPort("slow.test", 5060, "udp")
    world.places.subscribe("trunks", [slow, PBX])
    assert await world.places.resolve(PBX) == list(at("192.0.2.1"))
    await world.places.wait_resolved(1)
    assert asyncio.get_running_loop().time() == pytest.approx(1, abs=0.1)
    waiting = asyncio.create_task(world.places.resolve(slow))
    await asyncio.sleep(1)
    assert not waiting.done()
    world.slow["slow.test"].set()
    assert await waiting == list(at("192.0.2.8"))
    assert len(world.times("slow.test")) == 1


@in_world
async def test_who_is_not_wanted_any_more_is_forgotten(world: World) -> None:
    world["pbx.test"], world["sbc.test"] = at("192.0.2.1"), at("192.0.2.2")
    sbc = SipHostPort("sbc.test", 5060, "udp")
    world.places.subscribe("trunks", [PBX, sbc])
    world.places.subscribe("sources", [PBX])
    await world.places.wait_resolved(5)
    world.places.subscribe("trunks", [])
    assert world.places.targets(PBX) == list(at("192.0.2.1")), "somebody else wants it"
    assert world.places.targets(sbc) == []
    await asyncio.sleep(1)
    assert world.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): list(at("192.0.2.1"))}
    await asyncio.sleep(3600)
    assert len(world.times("sbc.test")) == 1


@in_world
async def test_a_place_that_is_asked_for_is_there_at_once_and_kept_for_minutes(world: World) -> None:
    world["pbx.test"] = at("192.0.2.1")
    assert await world.places.resolve(PBX) == list(at("192.0.2.1"))
    assert world.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): list(at("192.0.2.1"))}, "PJSIP can go there now"
    assert await world.places.resolve(SipHostPort("nowhere.test")) == []
    await asyncio.sleep(3600)
    assert world.places.targets(PBX) == []
    assert world.tables[-1] == {}


@in_world
async def test_no_more_places_are_kept_for_those_who_just_ask_than_fit(world: World) -> None:
    for number in range(300):
        world[f"n{number}.test"] = at("192.0.2.1")
        await world.places.resolve(SipHostPort(f"n{number}.test", 5060, "udp"))
    await asyncio.sleep(1)
    assert len(world.tables[-1]) <= 257


@in_world
async def test_an_address_that_did_not_answer_comes_last_for_minutes(world: World) -> None:
    world["pbx.test"] = at("192.0.2.1", "192.0.2.2")
    await world.places.resolve(PBX)
    world.places.demote("PBX.test", "192.0.2.1")
    turned = list(at("192.0.2.2", "192.0.2.1"))
    assert world.places.targets(PBX) == turned
    assert world.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): turned}
    await world.places.resolve(PBX)
    await asyncio.sleep(DEMOTED_S + 1)
    assert world.places.targets(PBX) == list(at("192.0.2.1", "192.0.2.2"))
    assert world.tables[-1] == {SipHostPort("pbx.test", 5060, "udp"): list(at("192.0.2.1", "192.0.2.2"))}


@in_world
async def test_whoever_wants_to_hears_of_changes_and_only_of_those(world: World) -> None:
    heard: list[float] = []
    world.places.on_change.append(lambda: heard.append(asyncio.get_running_loop().time()))
    world["pbx.test"], world["sbc.test"] = at("192.0.2.1"), at("192.0.2.2")
    world.places.subscribe("trunks", [PBX, SipHostPort("sbc.test", 5060, "udp")])
    await asyncio.sleep(3000)
    assert len(heard) == 1, "both at once"
    world["pbx.test"] = at("192.0.2.3")
    await asyncio.sleep(300)
    assert len(heard) == 2


@in_world
async def test_a_fault_in_a_look_up_is_told_and_ends_nothing(world: World) -> None:
    world.names["pbx.test"] = None
    with capture_logs() as logs:
        assert await world.places.resolve(PBX) == []
    assert [line["event"] for line in logs] == ["names.look_up_broken", "trunks.host_unknown"]
    world["pbx.test"] = at("192.0.2.1")
    await asyncio.sleep(FAILURE_RETRY_S + 1)
    assert world.places.targets(PBX) == list(at("192.0.2.1"))


@virtually
async def test_who_waits_for_a_place_is_let_go_at_the_end() -> None:
    world = World()
    world.slow["pbx.test"] = asyncio.Event()
    waiting = asyncio.create_task(world.places.resolve(PBX))
    await asyncio.sleep(1)
    await world.places.close()
    assert await waiting == []


@in_world
async def test_the_ports_of_a_host_are_looked_for_together(world: World) -> None:
    world["pbx.test"] = at("192.0.2.1", "192.0.2.2")
    transports: tuple[Transport, ...] = ("udp", "tcp")
    ports = [SipHostPort("pbx.test", port, transport) for port in range(5000, 5300) for transport in transports]
    world.places.subscribe("trunks", ports)
    await world.places.wait_resolved(5)
    assert len(world.asked) == 1
    assert world.places.targets(SipHostPort("pbx.test", 5007, "tcp")) == [
        SipTarget("192.0.2.1", 5007, "tcp"), SipTarget("192.0.2.2", 5007, "tcp"),
    ]  # fmt: skip
    assert len(world.tables[-1]) == len(ports)
    world.places.subscribe("trunks", [*ports[7:], SipHostPort("pbx.test", 6000, "udp")])
    await asyncio.sleep(1)
    assert len(world.asked) == 1, "nothing new is to be found out"
    assert SipHostPort("pbx.test", 6000, "udp") in world.tables[-1]
    assert SipHostPort("pbx.test", 5000, "udp") not in world.tables[-1]


@in_world
async def test_where_not_all_places_find_room_organizations_take_turns(world: World) -> None:
    with patch("calls.trunks.host_tracker.MAX_HOSTS", 20):
        world["pbx.test"], world["other.test"], world["source.test"] = at("192.0.2.1"), at("192.0.2.2"), at("192.0.2.3")
        hog = {SipHostPort("pbx.test", 5000 + each, "udp"): {"hog"} for each in range(100)}
        small = {SipHostPort("other.test", 6000 + each, "udp"): {"small"} for each in range(8)}
        world.places.subscribe("sources", [SipHostPort("source.test", 7000 + each, "udp") for each in range(100)])
        world.places.subscribe("trunks", hog | small)
        await world.places.wait_resolved(5)
        table = world.tables[-1]
        assert len(table) == 20
        assert {place.host for place in table} == {"pbx.test", "other.test"}
        assert sum(place.host == "other.test" for place in table) == 8


@in_world
async def test_an_organization_with_very_many_names_leaves_room_for_others_look_ups(world: World) -> None:
    hog = {SipHostPort(f"slow{each}.test", 5060, "udp"): {"hog"} for each in range(300)}
    world.slow |= {place.host: asyncio.Event() for place in hog}
    world["pbx.test"] = at("192.0.2.1")
    world.places.subscribe("trunks", hog)
    await asyncio.sleep(1)
    world.places.subscribe("trunks", {**hog, PBX: {"small"}})
    await asyncio.sleep(1)
    assert world.places.targets(PBX) == list(at("192.0.2.1"))
