"""Trunk authorization with moving host names and changing grants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from calls.admission.number_routing import match_number
from calls.trunks.provisioning import TrunkBuilder, TrunkProvisioner
from calls.trunks.source_allowlist import SourceAllowlist
from calls.trunks.trunk_authorization import NOT_GRANTED, RESOLVES_ELSEWHERE, TrunkAuthorizer
from calls.trunks.trunk_dns_watcher import HostTable, TrunkDnsWatcher
from config.secrets import Secrets
from sipcore.dialogs.invite_error import InviteError
from sipcore.dialogs.leg import InviteFacts
from sipcore.messages.headers import NameAddr
from sipcore.resolver.dns_records import LookupFailed
from sipcore.resolver.sip_locator import ResolvedTargets
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.trunks.trunk import Trunk, TrunkStatus
from storage.accounts import organizations
from storage.database.database import Database
from storage.phone_numbers import phone_numbers, trunk_grants
from storage.phone_numbers.phone_numbers import InboundMatch, PhoneNumber, PhoneNumberFields
from storage.phone_numbers.trunk_grant_evaluation import TrunkAccessRules

PBX = SipHostPort("pbx.test", None, "udp")
TRUNK = SipHostPort("trunk.test", None, "udp")
INSIDE = SipHostPort("inside.test", None, "udp")
NOBODY = NameAddr("", "")
ENFORCED = TrunkAccessRules(enforced=True)


@dataclass
class TrunkHarness:
    """A provisioner, an allowlist and a DNS watcher with one trunk authorizer."""

    database: Database
    secrets: Secrets
    names: dict[SipHostPort, list[str]] = field(default_factory=dict)
    trunks: list[Trunk] = field(default_factory=list)
    tables: list[HostTable] = field(default_factory=list)
    known: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.authorizer = TrunkAuthorizer("approved")
        self.dns_watcher = TrunkDnsWatcher(self._locate, self.tables.append)
        self.dns_watcher.is_allowed, self.authorizer.resolved_hosts = (
            self.authorizer.is_allowed,
            self.dns_watcher.all_resolved_addresses,
        )
        builder = TrunkBuilder(self.secrets, self.dns_watcher)
        self.provisioner = TrunkProvisioner(self.database, builder, self._apply, self._status, self.authorizer)
        self.allowlist = SourceAllowlist(
            self.database, lambda known: setattr(self, "known", set(known)), self.dns_watcher, "approved"
        )

    async def number(self, *given: str, before: bool = False, **fields: Any) -> PhoneNumber:
        """Store a number of an organization with grants; `before`: stored under the policy `open`."""

        def create(conn: sa.Connection) -> PhoneNumber:
            owner = organizations.create(conn, str(uuid4())).id
            for trunk in given:
                trunk_grants.allow(conn, owner, trunk, "*", actor="ann")
            facts = {"sip_mode": "ip_allowlist", "sip_protocol": "udp", "sip_port": None, **fields}
            made = PhoneNumberFields(number="100", provider="sip", **facts)
            return phone_numbers.create(
                conn, owner, made, trunk_grants.current_access_rules(conn, "open") if before else ENFORCED
            )

        return await self.database.write(create)

    async def grant(self, number: PhoneNumber, trunk: str) -> None:
        """Grant one more trunk to a number's organization."""
        owner = number.organization_id
        await self.database.write(lambda conn: trunk_grants.allow(conn, owner, trunk, "*", actor="ann"))

    async def refresh(self) -> None:
        """Read the database, and resolve every name."""
        for _ in range(2):
            await self.provisioner.refresh()
            await self.allowlist.refresh()
            await self.dns_watcher.wait_resolved(5)

    async def move_host(self, place: SipHostPort, *addresses: str) -> None:
        """Change the addresses of a name, and refresh."""
        self.names[place] = list(addresses)
        await self.dns_watcher.close()
        await self.refresh()

    async def called_organization(self, source: str) -> InboundMatch:
        """Who gets a call of that source to the number that all of them have."""
        facts, names = InviteFacts("1", "inbound", source, "100", NOBODY, NOBODY), self.allowlist.aliases_of(source)
        return await self.database.read(lambda conn: match_number(conn, facts, names, "approved"))

    @property
    def trunk_hosts(self) -> set[str]:
        """The hosts of the endpoint's trunks."""
        return {trunk.host for trunk in self.trunks}

    def published(self) -> set[str]:
        """Returns the addresses that were published to PJSIP."""
        return {target.address for targets in self.tables[-1].values() for target in targets} if self.tables else set()

    async def _locate(self, place: SipHostPort) -> ResolvedTargets:
        for asked, addresses in self.names.items():
            if asked.host == place.host:
                return ResolvedTargets(tuple(SipTarget(each, 5060, "udp") for each in addresses), 300)
        raise LookupFailed("no answer in time")

    async def _apply(self, trunks: Sequence[Trunk]) -> None:
        self.trunks = list(trunks)

    def _status(self, key: str) -> TrunkStatus:
        return TrunkStatus("listening", "answers")


@pytest.fixture
async def harness(database: Database, secrets: Secrets) -> AsyncIterator[TrunkHarness]:
    harness = TrunkHarness(database, secrets)
    yield harness
    await harness.dns_watcher.close()


async def test_a_trunk_that_is_not_granted_is_not_registered_allowed_or_resolved(harness: TrunkHarness) -> None:
    mine = await harness.number("192.0.2.1", sip_ip="192.0.2.1")
    theirs = await harness.number(sip_ip="192.0.2.2", sip_sources=["198.51.100.0/24"])
    named = await harness.number(sip_ip="pbx.test")
    harness.names[PBX] = ["192.0.2.3"]
    await harness.refresh()
    assert harness.trunk_hosts == {"192.0.2.1"} == harness.known
    assert harness.published() == set()
    assert harness.provisioner.status(mine) == TrunkStatus("listening", "answers")
    for number in (theirs, named):
        assert harness.provisioner.status(number) == TrunkStatus("failed", NOT_GRANTED)
        with pytest.raises(InviteError, match=NOT_GRANTED) as caught:
            await harness.provisioner.ready_trunk(number)
        assert caught.value.kind == "not_permitted"
    await harness.grant(theirs, "192.0.2.2")
    assert (await harness.provisioner.ready_trunk(theirs)).host == "192.0.2.2"
    await harness.refresh()
    assert harness.known == {"192.0.2.1", "192.0.2.2"}


@pytest.mark.parametrize("inside", ["127.0.0.1", "10.0.0.9", "203.0.113.9"])
async def test_an_address_that_was_not_granted_is_used_for_no_organization(harness: TrunkHarness, inside: str) -> None:
    await harness.number("203.0.113.9", sip_ip="203.0.113.9")
    evil = await harness.number("pbx.test", sip_ip="pbx.test")
    harness.names[PBX] = ["198.51.100.7", inside]
    await harness.refresh()
    assert harness.trunk_hosts == {"203.0.113.9"} == harness.known - {"198.51.100.7"}
    assert inside not in harness.published()
    assert harness.provisioner.status(evil) == TrunkStatus("failed", RESOLVES_ELSEWHERE)
    with pytest.raises(InviteError, match=RESOLVES_ELSEWHERE):
        await harness.provisioner.ready_trunk(evil)
    await harness.grant(evil, inside)
    await harness.refresh()
    assert harness.trunk_hosts == {"203.0.113.9", "pbx.test"}
    assert {inside, "198.51.100.7"} <= harness.known
    assert inside in harness.published()


async def test_a_host_that_moves_to_loopback_loses_its_trunk(harness: TrunkHarness) -> None:
    evil = await harness.number("pbx.test", sip_ip="pbx.test")
    harness.names[PBX] = ["198.51.100.7"]
    await harness.refresh()
    assert (harness.trunk_hosts, harness.published()) == ({"pbx.test"}, {"198.51.100.7"})
    await harness.dns_watcher.close()
    harness.names[PBX] = ["127.0.0.1"]
    with pytest.raises(InviteError, match=RESOLVES_ELSEWHERE):
        await harness.provisioner.ready_trunk(evil)
    await harness.refresh()
    assert (harness.trunk_hosts, harness.known, harness.published()) == (set(), set(), set())


async def test_a_host_may_not_resolve_to_an_address_of_another_organizations_host(harness: TrunkHarness) -> None:
    """Toll fraud: an organization gets neither calls through another one's trunk, nor its inbound calls; a move of
    either host is checked again."""
    theirs = await harness.number("trunk.test", sip_ip="trunk.test")
    evil = await harness.number("pbx.test", sip_ip="pbx.test")
    harness.names[TRUNK], harness.names[PBX] = ["198.51.100.5"], ["198.51.100.7"]
    await harness.refresh()
    assert harness.trunk_hosts == {"trunk.test", "pbx.test"}
    await harness.move_host(PBX, "198.51.100.5")
    assert harness.trunk_hosts == {"trunk.test"}
    assert harness.provisioner.status(evil) == TrunkStatus("failed", RESOLVES_ELSEWHERE)
    with pytest.raises(InviteError, match=RESOLVES_ELSEWHERE):
        await harness.provisioner.ready_trunk(evil)
    assert harness.allowlist.aliases_of("198.51.100.5") == {"198.51.100.5", "trunk.test"}
    assert (await harness.called_organization("198.51.100.5")).number == theirs
    assert (await harness.provisioner.ready_trunk(theirs)).host == "trunk.test"

    await harness.move_host(TRUNK, "198.51.100.6")
    assert (await harness.called_organization("198.51.100.5")).number == evil
    assert (await harness.provisioner.ready_trunk(evil)).host == "pbx.test"

    await harness.move_host(TRUNK, "198.51.100.5")
    assert harness.trunk_hosts == {"trunk.test"}
    await harness.grant(evil, "198.51.100.5")
    await harness.refresh()
    assert harness.trunk_hosts == {"pbx.test"}
    assert harness.provisioner.status(theirs) == TrunkStatus("failed", RESOLVES_ELSEWHERE)
    assert (await harness.called_organization("198.51.100.5")).number == evil


async def test_a_granted_host_belongs_to_its_organization_before_a_number_names_it(harness: TrunkHarness) -> None:
    await harness.number("trunk.test", "inside.test", sip_ip=None)
    evil = await harness.number("pbx.test", sip_ip="pbx.test")
    harness.names |= {TRUNK: ["198.51.100.5"], PBX: ["198.51.100.5"], INSIDE: ["127.0.0.1"]}
    await harness.refresh()
    assert harness.provisioner.status(evil) == TrunkStatus("failed", RESOLVES_ELSEWHERE)
    assert (harness.trunk_hosts, harness.known, harness.published()) == (set(), set(), {"198.51.100.5"})


async def test_an_address_of_this_machine_is_used_for_no_organization(
    harness: TrunkHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a host name cannot be used to scan this machine's ports."""
    own = frozenset({"198.51.100.7"})
    monkeypatch.setattr("calls.trunks.trunk_authorization.own_addresses", lambda: own)
    evil = await harness.number("pbx.test", sip_ip="pbx.test")
    harness.names[PBX] = ["198.51.100.7"]
    await harness.refresh()
    assert (harness.trunk_hosts, harness.known, harness.published()) == (set(), set(), set())
    assert harness.provisioner.status(evil) == TrunkStatus("failed", RESOLVES_ELSEWHERE)
    await harness.grant(evil, "198.51.100.7")
    await harness.refresh()
    assert (harness.trunk_hosts, harness.published()) == ({"pbx.test"}, {"198.51.100.7"})


async def test_a_host_stored_before_the_policy_may_resolve_anywhere(harness: TrunkHarness) -> None:
    old = await harness.number(sip_ip="pbx.test", before=True)
    harness.names[PBX] = ["127.0.0.1"]
    await harness.refresh()
    assert (harness.trunk_hosts, harness.known, harness.published()) == ({"pbx.test"}, {"127.0.0.1"}, {"127.0.0.1"})
    assert (await harness.provisioner.ready_trunk(old)).host == "pbx.test"


@pytest.mark.parametrize(("address", "what"), [("224.0.0.1", "multicast"), ("0.0.0.0", "this network")])
async def test_an_unusable_address_stored_before_the_policy_is_not_used(
    harness: TrunkHarness, address: str, what: str
) -> None:
    old = await harness.number(sip_ip=address, before=True)
    await harness.refresh()
    assert harness.trunks == []
    status = harness.provisioner.status(old)
    assert status == TrunkStatus("failed", f"its address is {what}: a trunk's is that of one host")
    with pytest.raises(InviteError, match=what):
        await harness.provisioner.ready_trunk(old)
