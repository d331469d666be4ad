"""Locating SIP servers with a real name server (RFC 3263, RFC 2782)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sipcore.resolver.dns_client import DnsClient
from sipcore.resolver.dns_records import DnsAnswer, LookupFailed, SrvRecord
from sipcore.resolver.sip_locator import SipLocator, order_srv
from sipcore.resolver.target import SipHostPort, SipTarget, Transport, ip_literal_targets
from tests.peers.dnsmasq import NameServer, SlowNameServer
from tests.peers.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECORDS = (
    "host-record=one.test,192.0.2.1",
    "host-record=two.test,192.0.2.2,2001:db8::2",
    "host-record=three.test,192.0.2.3,7",
    "cname=alias.test,one.test",
    # A carrier with NAPTR and SRV records: TCP first, then UDP.
    "naptr-record=full.test,20,10,s,SIP+D2U,,_sip._udp.full.test",
    "naptr-record=full.test,10,20,s,SIP+D2T,,_sip._tcp.full.test",
    "naptr-record=full.test,10,10,s,SIPS+D2T,,_sips._tcp.full.test",
    "naptr-record=full.test,5,10,u,E2U+sip,!^.*$!sip:x@y!",
    "srv-host=_sip._tcp.full.test,one.test,5070,10,0",
    "srv-host=_sip._udp.full.test,two.test,5080,20,0",
    "srv-host=_sip._udp.full.test,three.test,5090,10,0",
    "srv-host=_sips._tcp.full.test,one.test,5071,10,0",
    "host-record=full.test,192.0.2.99",
    # One that has SRV records alone.
    "srv-host=_sip._tcp.some.test,one.test,5070,10,0",
    # A carrier whose SRV record rules out UDP.
    "srv-host=_sip._udp.none.test",
    "host-record=none.test,192.0.2.98",
    # An SRV target without addresses.
    "srv-host=_sip._udp.half.test,gone.test,5060,10,0",
    "srv-host=_sip._udp.half.test,one.test,5060,20,0",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[NameServer]:
    async with NameServer(*RECORDS) as server:
        yield server


async def no_addresses(name: str) -> DnsAnswer[str]:
    raise LookupFailed(f"{name}: not known to the system")


def locator(
    *servers: tuple[str, int],
    speaks: tuple[Transport, ...] = ("udp", "tcp"),
    versions: tuple[int, ...] = (4,),
    hosts: Path = Path("/nowhere"),
    timeout_s: float = 5.0,
) -> SipLocator:
    return SipLocator(DnsClient(servers, timeout_s, hosts), no_addresses, speaks, versions)


@pytest.mark.parametrize(
    ("place", "targets"),
    [
        (SipHostPort("one.test", 5062), [SipTarget("192.0.2.1", 5062, "udp")]),
        (SipHostPort("one.test", 5062, "tcp"), [SipTarget("192.0.2.1", 5062, "tcp")]),
        (SipHostPort("one.test"), [SipTarget("192.0.2.1", 5060, "udp")]),
        (SipHostPort("one.test", None, "tcp"), [SipTarget("192.0.2.1", 5060, "tcp")]),
        (SipHostPort("one.test", None, "tls"), [SipTarget("192.0.2.1", 5061, "tls")]),
        (SipHostPort("alias.test"), [SipTarget("192.0.2.1", 5060, "udp")]),
        (SipHostPort("full.test", 5060, "udp"), [SipTarget("192.0.2.99", 5060, "udp")]),
        (
            SipHostPort("full.test", None, "udp"),
            [SipTarget("192.0.2.3", 5090, "udp"), SipTarget("192.0.2.2", 5080, "udp")],
        ),
        (
            SipHostPort("full.test"),
            [
                SipTarget("192.0.2.1", 5070, "tcp"),
                SipTarget("192.0.2.3", 5090, "udp"),
                SipTarget("192.0.2.2", 5080, "udp"),
            ],
        ),
        (SipHostPort("full.test", None, "tls"), [SipTarget("192.0.2.1", 5071, "tls")]),
        (SipHostPort("some.test"), [SipTarget("192.0.2.1", 5070, "tcp")]),
        (SipHostPort("none.test", None, "udp"), []),
        (SipHostPort("none.test", 5060), [SipTarget("192.0.2.98", 5060, "udp")]),
        (SipHostPort("half.test", None, "udp"), [SipTarget("192.0.2.1", 5060, "udp")]),
        (SipHostPort("nowhere.test"), []),
        (SipHostPort("nowhere.test", 5060), []),
    ],
)
async def test_targets_are_those_of_naptr_srv_and_address_records(
    server: NameServer, place: SipHostPort, targets: list[SipTarget]
) -> None:
    found = await locator(server.address).locate(place)
    assert (list(found.targets), found.complete) == (targets, True)


async def test_tls_targets_are_used_only_with_tls(server: NameServer) -> None:
    found = await locator(server.address, speaks=("udp", "tcp", "tls")).locate(SipHostPort("full.test"))
    assert found.targets[:2] == (SipTarget("192.0.2.1", 5071, "tls"), SipTarget("192.0.2.1", 5070, "tcp"))


@pytest.mark.parametrize(
    ("versions", "addresses"),
    [((4,), ["192.0.2.2"]), ((6,), ["2001:db8::2"]), ((4, 6), ["192.0.2.2", "2001:db8::2"])],
)
async def test_targets_have_the_supported_ip_versions(
    server: NameServer, versions: tuple[int, ...], addresses: list[str]
) -> None:
    found = await locator(server.address, versions=versions).locate(SipHostPort("two.test", 5060))
    assert [each.address for each in found.targets] == addresses


async def test_ttl_is_that_of_the_shortest_record(server: NameServer) -> None:
    ask = locator(server.address)
    assert (await ask.locate(SipHostPort("one.test", 5060))).ttl_s == 60
    assert (await ask.locate(SipHostPort("full.test", None, "udp"))).ttl_s == 7


async def test_the_hosts_file_comes_first(server: NameServer, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("# ours\n192.0.2.50 Full.test pbx # the PBX\n2001:db8::50 pbx\nnonsense pbx\n")
    ask = locator(server.address, hosts=hosts, versions=(4, 6))
    assert (await ask.locate(SipHostPort("full.test"))).targets == (SipTarget("192.0.2.50", 5060, "udp"),)
    found = await ask.locate(SipHostPort("pbx", 5070, "tcp"))
    assert found.targets == (SipTarget("192.0.2.50", 5070, "tcp"), SipTarget("2001:db8::50", 5070, "tcp"))


async def test_name_without_dns_records_uses_the_systems_resolver(server: NameServer) -> None:
    async def system(name: str) -> DnsAnswer[str]:
        assert name == "printer.test"
        return DnsAnswer(("2001:db8::9", "192.0.2.9"), 60.0)

    ask = SipLocator(DnsClient([server.address]), system)
    assert (await ask.locate(SipHostPort("printer.test"))).targets == (SipTarget("192.0.2.9", 5060, "udp"),)


async def test_dead_name_server_raises_lookup_failed() -> None:
    ask = locator(("127.0.0.1", free_port()), timeout_s=0.3)
    for place in (SipHostPort("one.test"), SipHostPort("one.test", 5060), SipHostPort("one.test", None, "udp")):
        with pytest.raises(LookupFailed, match=r"one\.test: "):
            await ask.locate(place)


async def test_next_name_server_is_queried_when_one_is_dead(server: NameServer) -> None:
    ask = locator(("127.0.0.1", free_port()), server.address)
    assert (await ask.locate(SipHostPort("one.test", 5060))).targets == (SipTarget("192.0.2.1", 5060, "udp"),)


async def test_slow_name_server_times_out(server: NameServer) -> None:
    async with SlowNameServer(server) as slow:
        with pytest.raises(LookupFailed, match="no answer in time"):
            await locator(slow.address, timeout_s=0.2).locate(SipHostPort("one.test", 5060))
        asking = asyncio.ensure_future(locator(slow.address).locate(SipHostPort("one.test", 5060)))
        await slow.queried.wait()
        slow.released.set()
        assert (await asking).targets == (SipTarget("192.0.2.1", 5060, "udp"),)


@pytest.mark.parametrize("impossible", ["a..b", f"{'x' * 64}.test", ".", "ü" * 80, "x" * 300])
async def test_invalid_name_is_not_found(server: NameServer, impossible: str) -> None:
    with pytest.raises(LookupFailed):
        await locator(server.address).locate(SipHostPort(impossible, 5060))


async def test_ip_address_is_its_own_target() -> None:
    assert ip_literal_targets(SipHostPort("192.0.2.1")) == (SipTarget("192.0.2.1", 5060, "udp"),)
    assert ip_literal_targets(SipHostPort("2001:DB8::1", 5070, "tls")) == (SipTarget("2001:db8::1", 5070, "tls"),)
    assert ip_literal_targets(SipHostPort("one.test")) is None


SERVERS = [
    SrvRecord(10, 60, 5060, "big"),
    SrvRecord(10, 20, 5060, "small"),
    SrvRecord(10, 0, 5060, "spare"),
    SrvRecord(5, 1, 5060, "first"),
]


async def test_srv_order_is_by_priority_and_stable() -> None:
    orders = {tuple(each.target for each in order_srv(SERVERS, b"here")) for _ in range(5)}
    assert len(orders) == 1
    assert orders.pop()[0] == "first"


async def test_srv_records_of_equal_priority_are_ordered_by_weight() -> None:
    drawn = Counter(order_srv(SERVERS[:3], number.to_bytes(4))[0].target for number in range(4000))
    assert drawn["big"] / 4000 == pytest.approx(0.75, abs=0.03)
    assert drawn["small"] / 4000 == pytest.approx(0.25, abs=0.03)
    assert drawn["spare"] < 10
