"""Which addresses are known as trunks, whatever the system's resolver does."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from threading import Event
from uuid import uuid4

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from calls import sources
from calls.host_names import HostNames
from calls.sources import TrunkSources
from storage import organizations, phone_numbers
from storage.database import Database
from storage.phone_numbers import PhoneNumberFields
from tests.calls.house import until


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = Database(f"sqlite+aiosqlite:///{tmp_path}/trunkline.db")
    await opened.open()
    yield opened
    await opened.close()


async def trunks(database: Database, *hosts: str) -> None:
    """Numbers on trunks at these hosts, and no others."""

    def replace(conn: sa.Connection) -> None:
        for old in phone_numbers.trunks(conn):
            phone_numbers.delete(conn, old.organization_id, old.id)
        owner = organizations.create(conn, str(uuid4()))
        for place, host in enumerate(hosts):
            fields = PhoneNumberFields(number=f"10{place}", provider="sip", sip_mode="ip_allowlist", sip_ip=host)
            phone_numbers.create(conn, owner.id, fields)

    await database.write(replace)


class Resolver:
    """Answers from a table; a name that is not in it does not resolve, one in `slow` waits for its event."""

    def __init__(self, **table: str) -> None:
        self.table = table
        self.slow: dict[str, Event] = {}
        self.asked: list[str] = []

    def __call__(self, name: str) -> Collection[str]:
        self.asked.append(name)
        if name in self.slow:
            self.slow[name].wait(20)
        if name not in self.table:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return {self.table[name]}


async def test_an_address_is_itself_and_a_name_what_it_resolves_to(database: Database) -> None:
    known: list[set[str]] = []
    trunk_sources = TrunkSources(database, lambda found: known.append(set(found)))
    await trunks(database, "192.0.2.1", "2001:DB8::1", "localhost")
    await trunk_sources.refresh()
    assert {"192.0.2.1", "2001:db8::1", "127.0.0.1"} <= known[-1] <= {"192.0.2.1", "2001:db8::1", "127.0.0.1", "::1"}
    assert set(trunk_sources.names_of("127.0.0.1")) == {"127.0.0.1", "localhost"}
    assert set(trunk_sources.names_of("198.51.100.1")) == {"198.51.100.1"}


@pytest.mark.parametrize("impossible", ["a..b", f"{'x' * 64}.example"])
async def test_a_name_that_cannot_be_one_is_told_and_the_others_are_known(database: Database, impossible: str) -> None:
    known: list[set[str]] = []
    await trunks(database, "192.0.2.1", impossible)
    with capture_logs() as logs:
        await TrunkSources(database, lambda found: known.append(set(found))).refresh()
    assert known[-1] == {"192.0.2.1"}
    assert [(line["event"], line["host"]) for line in logs] == [("trunks.host_unknown", impossible)]


async def test_a_name_whose_look_up_fails_keeps_the_addresses_it_had(database: Database) -> None:
    resolver, known = Resolver(pbx="192.0.2.7"), list[set[str]]()
    trunk_sources = TrunkSources(database, lambda found: known.append(set(found)), HostNames(resolver))
    await trunks(database, "pbx", "other")
    await trunk_sources.refresh()
    assert known[-1] == {"192.0.2.7"}
    del resolver.table["pbx"]
    with capture_logs() as logs:
        await trunk_sources.refresh()
    assert known[-1] == {"192.0.2.7"}
    assert set(trunk_sources.names_of("192.0.2.7")) == {"192.0.2.7", "pbx"}
    assert {line["host"]: line["kept"] for line in logs} == {"pbx": ["192.0.2.7"], "other": []}
    resolver.table["pbx"] = "192.0.2.8"
    await trunk_sources.refresh()
    assert known[-1] == {"192.0.2.8"}


async def test_a_name_that_nobody_has_any_more_is_forgotten(database: Database) -> None:
    resolver, known = Resolver(pbx="192.0.2.7"), list[set[str]]()
    trunk_sources = TrunkSources(database, lambda found: known.append(set(found)), HostNames(resolver))
    await trunks(database, "pbx")
    await trunk_sources.refresh()
    await trunks(database)
    await trunk_sources.refresh()
    assert known[-1] == set()
    resolver.table.clear()
    await trunks(database, "pbx")
    await trunk_sources.refresh()
    assert known[-1] == set()


async def test_a_slow_name_delays_nobody_and_is_asked_for_once(database: Database) -> None:
    resolver, known = Resolver(pbx="192.0.2.7", slow="192.0.2.8"), list[set[str]]()
    released = resolver.slow["slow"] = Event()
    trunk_sources = TrunkSources(database, lambda found: known.append(set(found)), HostNames(resolver, 0.05))
    await trunks(database, "192.0.2.1", "pbx", "slow")
    try:
        await trunk_sources.refresh()
        assert known == [{"192.0.2.1"}, {"192.0.2.1", "192.0.2.7"}]
        await trunk_sources.refresh()
        assert known[2:] == [{"192.0.2.1", "192.0.2.7"}] * 2
        assert resolver.asked.count("slow") == 1
    finally:
        released.set()
    await trunk_sources.refresh()
    assert known[-1] == {"192.0.2.1", "192.0.2.7", "192.0.2.8"}


async def test_a_failed_name_is_asked_for_again_sooner_and_changes_are_followed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "FAILED_AGAIN_S", 0.01)
    resolver, known = Resolver(), list[set[str]]()
    trunk_sources = TrunkSources(database, lambda found: known.append(set(found)), HostNames(resolver))
    await trunks(database, "pbx")
    following = asyncio.ensure_future(trunk_sources.run())
    trunk_sources.changed()
    await until(lambda: resolver.asked.count("pbx") >= 2)
    resolver.table["pbx"] = "192.0.2.7"
    await until(lambda: known[-1] == {"192.0.2.7"})
    await trunks(database, "192.0.2.1")
    trunk_sources.changed()
    await until(lambda: known[-1] == {"192.0.2.1"})
    following.cancel()
    await asyncio.wait((following,))
    assert following.cancelled()
