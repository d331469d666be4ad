"""The source allowlist: addresses, networks and host names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from ipaddress import ip_address
from threading import Event
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls.trunks.source_allowlist import CidrSet, SourceAllowlist
from calls.trunks.trunk_dns_watcher import TrunkDnsWatcher
from sipcore.resolver.dns_records import DnsAnswer, LookupFailed
from sipcore.resolver.sip_locator import ResolvedTargets
from sipcore.resolver.system_resolver import SystemResolver
from sipcore.resolver.target import SipHostPort, SipTarget
from storage.accounts import organizations
from storage.database.database import Database
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumberFields
from tests.calls.call_service_harness import until


async def replace_numbers(database: Database, *hosts: str) -> None:
    """Replace all numbers by ones on trunks at these hosts."""

    def replace(conn: sa.Connection) -> None:
        for old in phone_numbers.numbers_with_trunk(conn):
            phone_numbers.delete(conn, old.organization_id, old.id)
        owner = organizations.create(conn, str(uuid4()))
        for place, host in enumerate(hosts):
            fields = PhoneNumberFields(number=f"10{place}", provider="sip", sip_mode="ip_allowlist", sip_ip=host)
            phone_numbers.create(conn, owner.id, fields)

    await database.write(replace)


async def number(database: Database, sip_ip: str, *allowlist: str, **more: Any) -> None:
    """Store a number with this source, besides the others."""
    fields: dict[str, Any] = {"sip_mode": "ip_allowlist", "sip_ip": sip_ip, "sip_sources": list(allowlist), **more}

    def create(conn: sa.Connection) -> None:
        owner = organizations.create(conn, str(uuid4()))
        phone_numbers.create(conn, owner.id, PhoneNumberFields(number="100", provider="sip", **fields))

    await database.write(create)


class TrunkHarness:
    """An allowlist whose host names resolve by `names`; others fail."""

    def __init__(self, database: Database, **names: Sequence[str]) -> None:
        self.names = {name.replace("_", "."): addresses for name, addresses in names.items()}
        self.applied: list[set[str]] = []
        self.dns_watcher = TrunkDnsWatcher(self.locate, lambda _: None)
        self.allowlist = SourceAllowlist(database, lambda known: self.applied.append(set(known)), self.dns_watcher)

    async def locate(self, place: SipHostPort) -> ResolvedTargets:
        if place.host not in self.names:
            raise LookupFailed(f"{place.host}: no answer in time")
        port = place.port or 5070  # the port of the SRV record
        return ResolvedTargets(tuple(SipTarget(each, port, "udp") for each in self.names[place.host]), 300)

    async def known(self) -> set[str]:
        """Returns the known sources after a read of the database and all lookups."""
        await self.allowlist.refresh()
        await self.dns_watcher.wait_resolved(5)
        return self.applied[-1]


@pytest_asyncio.fixture
async def harness(database: Database) -> AsyncIterator[TrunkHarness]:
    harness = TrunkHarness(database)
    yield harness
    await harness.dns_watcher.close()


async def test_sources_are_addresses_networks_and_the_addresses_of_host_names(
    database: Database, harness: TrunkHarness
) -> None:
    harness.names["pbx.test"] = ["192.0.2.7", "2001:db8::7"]
    await number(database, "192.0.2.1", "198.51.100.0/24", "2001:DB8:1::/48", "PBX.test.", "::ffff:203.0.113.9")
    assert await harness.known() == {
        "192.0.2.1", "198.51.100.0/24", "2001:db8:1::/48", "192.0.2.7", "2001:db8::7", "203.0.113.9",
    }  # fmt: skip
    names = harness.allowlist.aliases_of
    assert set(names("192.0.2.7")) == {"192.0.2.7", "pbx.test"}
    assert set(names("2001:db8::7")) == {"2001:db8::7", "pbx.test"}
    assert set(names("198.51.100.77")) == {"198.51.100.77", "198.51.100.0/24"}
    assert set(names("2001:db8:1:2::3")) == {"2001:db8:1:2::3", "2001:db8:1::/48"}
    assert set(names("::ffff:203.0.113.9")) == {"::ffff:203.0.113.9", "203.0.113.9"}
    assert set(names("198.51.101.1")) == {"198.51.101.1"}


async def test_the_registrar_and_the_outbound_proxy_of_a_registration_are_sources(
    database: Database, harness: TrunkHarness
) -> None:
    harness.names |= {"sip.carrier.test": ["192.0.2.1"], "edge.carrier.test": ["192.0.2.2"]}
    more = {"sip_proxy": "sip.carrier.test:5070", "sip_outbound_proxy": "sip:edge.carrier.test;transport=tcp"}
    await number(database, "", sip_mode="registration", sip_username="u", **more)
    assert await harness.known() == {"192.0.2.1", "192.0.2.2"}
    assert set(harness.allowlist.aliases_of("192.0.2.2")) == {"192.0.2.2", "edge.carrier.test"}


async def test_every_network_that_contains_an_address_is_found() -> None:
    nested = CidrSet(["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "0.0.0.0/0", "::/0", "fd00::/8"])
    assert nested.containing(ip_address("10.1.9.9")) == {"10.0.0.0/8", "10.1.0.0/16", "0.0.0.0/0"}
    assert nested.containing(ip_address("fd00::1")) == {"::/0", "fd00::/8"}
    assert CidrSet().containing(ip_address("10.1.9.9")) == set()


async def test_a_failed_lookup_keeps_no_other_source_out(database: Database, harness: TrunkHarness) -> None:
    await number(database, "192.0.2.1", "gone.test")
    with capture_logs() as logs:
        assert await harness.known() == {"192.0.2.1"}
    assert {(line["event"], line["host"]) for line in logs} == {("trunks.host_unknown", "gone.test")}


async def test_a_host_that_moves_is_followed_without_reading_the_database(
    database: Database, harness: TrunkHarness
) -> None:
    await number(database, "pbx.test")
    await harness.known()
    harness.names["pbx.test"] = ["192.0.2.7"]
    assert await harness.dns_watcher.resolve(SipHostPort("pbx.test", None, "udp"))
    assert harness.applied[-1] == {"192.0.2.7"}
    assert set(harness.allowlist.aliases_of("192.0.2.7")) == {"192.0.2.7", "pbx.test"}


async def test_a_host_without_numbers_is_not_tracked(database: Database, harness: TrunkHarness) -> None:
    harness.names["pbx.test"] = ["192.0.2.7"]
    await replace_numbers(database, "pbx.test")
    assert await harness.known() == {"192.0.2.7"}
    await replace_numbers(database)
    assert await harness.known() == set()


async def test_changes_of_numbers_are_applied(database: Database, harness: TrunkHarness) -> None:
    following = asyncio.ensure_future(harness.allowlist.run())
    await replace_numbers(database, "192.0.2.1")
    harness.allowlist.on_number_change()
    await until(lambda: harness.applied and harness.applied[-1] == {"192.0.2.1"})
    await replace_numbers(database, "192.0.2.2")
    harness.allowlist.on_number_change()
    await until(lambda: harness.applied[-1] == {"192.0.2.2"})
    following.cancel()
    await asyncio.wait((following,))
    assert following.cancelled()


async def test_the_system_resolver_is_asked_once_for_a_slow_name_with_a_short_wait() -> None:
    asked, released = list[str](), Event()

    def look_up(name: str) -> Collection[str]:
        asked.append(name)
        released.wait(20)
        return {"192.0.2.8"}

    hosts = SystemResolver(look_up, 0.05)
    try:
        for _ in range(2):
            with pytest.raises(LookupFailed, match="no answer within"):
                await hosts.addresses("slow")
        assert asked == ["slow"]
    finally:
        released.set()
    await until(lambda: next(iter(hosts._lookups.values())).done())
    assert await hosts.addresses("slow") == DnsAnswer(("192.0.2.8",), 60.0)
    assert asked == ["slow"], "the late answer is used"
    hosts.close()


@pytest.mark.parametrize("impossible", ["a..b", f"{'x' * 64}.example"])
async def test_the_system_resolver_refuses_an_invalid_name(impossible: str) -> None:
    hosts = SystemResolver()
    with pytest.raises(LookupFailed):
        await hosts.addresses(impossible)
    assert "127.0.0.1" in (await hosts.addresses("localhost")).records
    hosts.close()


async def test_an_organization_with_very_many_sources_leaves_lookups_for_others(
    database: Database, harness: TrunkHarness
) -> None:
    never, plain = asyncio.Event(), harness.dns_watcher._locate

    async def locate(place: SipHostPort) -> ResolvedTargets:
        if place.host.startswith("slow"):
            await never.wait()
        return await plain(place)

    harness.dns_watcher._locate = locate
    await number(database, "192.0.2.1", *(f"slow{each}.test" for each in range(300)))
    await harness.allowlist.refresh()
    await asyncio.sleep(0.05)
    harness.names["pbx.test"] = ["192.0.2.7"]
    await number(database, "pbx.test")
    await harness.allowlist.refresh()
    await asyncio.sleep(0.2)
    assert harness.applied[-1] == {"192.0.2.1", "192.0.2.7"}
