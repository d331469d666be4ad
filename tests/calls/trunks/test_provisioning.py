"""Trunk provisioning from stored phone numbers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet

from calls.trunks.provisioning import (
    NO_TRUNK,
    CarrierAccount,
    TrunkBuilder,
    TrunkProvisioner,
    parse_destination,
    trunk_destinations,
)
from calls.trunks.trunk_dns_watcher import TrunkDnsWatcher
from config.secrets import Secrets
from sipcore.dialogs.invite_error import InviteError
from sipcore.resolver.dns_records import LookupFailed
from sipcore.resolver.sip_locator import ResolvedTargets
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.security.digest import Credentials
from sipcore.trunks.trunk import NEVER_QUALIFIED, NO_ANSWER_YET, Trunk, TrunkStatus
from storage.accounts import organizations
from storage.database.database import Database
from storage.nodes.work_share import AllWork
from storage.phone_numbers import phone_numbers
from storage.phone_numbers.phone_numbers import PhoneNumber, PhoneNumberFields
from tests.calls.call_service_harness import until

REGISTRATION = {"sip_mode": "registration", "sip_username": "ann", "sip_proxy": "pbx.example.net"}


@dataclass
class TrunkHarness:
    """A provisioner whose endpoint is a list; `names` are the hosts that can be resolved."""

    database: Database
    secrets: Secrets
    names: dict[SipHostPort, Sequence[SipTarget]] = field(default_factory=dict)
    applied: list[list[Trunk]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dns_watcher = TrunkDnsWatcher(self._locate, lambda _: None)
        self.provisioner = TrunkProvisioner(
            self.database, TrunkBuilder(self.secrets, self.dns_watcher), self._apply, self._status
        )

    async def number(self, **fields: Any) -> PhoneNumber:
        """Store a number."""
        if "sip_password" in fields:
            fields["sip_password_encrypted"] = self.secrets.encrypt(fields.pop("sip_password"))

        def create(conn: sa.Connection) -> PhoneNumber:
            owner = organizations.create(conn, str(uuid4()))
            values = {"number": "100", "provider": "sip", **fields}
            return phone_numbers.create(conn, owner.id, PhoneNumberFields(**values))

        return await self.database.write(create)

    async def change(self, number: PhoneNumber, **changes: Any) -> PhoneNumber:
        return await self.database.write(lambda conn: phone_numbers.replace(conn, number, changes))

    async def _locate(self, place: SipHostPort) -> ResolvedTargets:
        if place not in self.names:
            raise LookupFailed("no answer in time")
        return ResolvedTargets(tuple(self.names[place]), 300)

    async def _apply(self, trunks: Sequence[Trunk]) -> None:
        self.applied.append(list(trunks))

    def _status(self, key: str) -> TrunkStatus:
        return TrunkStatus("registered", key)


@pytest.fixture
async def harness(database: Database, secrets: Secrets) -> AsyncIterator[TrunkHarness]:
    harness = TrunkHarness(database, secrets)
    yield harness
    await harness.dns_watcher.close()


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("pbx.example.net", SipHostPort("pbx.example.net")),
        ("PBX.example.net.", SipHostPort("pbx.example.net")),
        ("pbx.example.net:5070", SipHostPort("pbx.example.net", 5070)),
        ("192.0.2.1:5070", SipHostPort("192.0.2.1", 5070)),
        ("2001:db8::1", SipHostPort("2001:db8::1")),
        ("[2001:db8::1]:5070", SipHostPort("2001:db8::1", 5070)),
        ("sip:pbx.example.net", SipHostPort("pbx.example.net")),
        ("sip:ann@pbx.example.net:5070;transport=tcp", SipHostPort("pbx.example.net", 5070, "tcp")),
        ("SIP:pbx.example.net;lr;Transport=TLS", SipHostPort("pbx.example.net", None, "tls")),
        ("sips:pbx.example.net", SipHostPort("pbx.example.net", None, "tls")),
        ("pbx.example.net;transport=udp;lr", SipHostPort("pbx.example.net", None, "udp")),
    ],
)
def test_a_destination_is_a_host_a_host_with_a_port_or_a_uri(text: str, destination: SipHostPort) -> None:
    assert parse_destination(text) == destination


def test_port_and_transport_of_the_destination_itself_have_precedence() -> None:
    assert parse_destination("pbx.test:5070;transport=tcp", 5080, "udp") == SipHostPort("pbx.test", 5070, "tcp")
    assert parse_destination("pbx.test", 5080, "udp") == SipHostPort("pbx.test", 5080, "udp")


@pytest.mark.parametrize(
    ("fields", "registrar", "proxy"),
    [
        ({}, SipHostPort("pbx.example.net"), None),
        ({"sip_port": 5070}, SipHostPort("pbx.example.net", 5070), None),
        ({"sip_register_transport": "tls"}, SipHostPort("pbx.example.net", None, "tls"), None),
        ({"sip_protocol": "tcp"}, SipHostPort("pbx.example.net", None, "tcp"), None),
        (
            {"sip_proxy": "sip:pbx.example.net;transport=udp", "sip_register_transport": "tcp"},
            SipHostPort("pbx.example.net", None, "tcp"),
            None,
        ),
        (
            {"sip_outbound_proxy": "edge.example.net:5065", "sip_register_transport": "tcp"},
            SipHostPort("pbx.example.net", None, "tcp"),
            SipHostPort("edge.example.net", 5065, "tcp"),
        ),
        (
            {"sip_mode": "ip_allowlist", "sip_ip": "192.0.2.1", "sip_outbound_proxy": "edge.example.net"},
            SipHostPort("192.0.2.1", None, "udp"),
            None,
        ),
    ],
)
async def test_the_destinations_of_a_numbers_trunk(
    harness: TrunkHarness, fields: dict[str, Any], registrar: SipHostPort, proxy: SipHostPort | None
) -> None:
    number = await harness.number(**{**REGISTRATION, **fields})
    assert trunk_destinations(number) == (registrar, proxy)


async def test_a_registration_becomes_a_trunk_with_its_password(harness: TrunkHarness) -> None:
    number = await harness.number(
        **REGISTRATION, sip_password="s3cret", sip_auth_user="line7", sip_allow_redirect=True, sip_qualify_seconds=0
    )
    await harness.provisioner.refresh()
    assert harness.applied == [
        [
            Trunk(
                key=number.id,
                host="pbx.example.net",
                port=None,
                transport="udp",
                outbound_proxy=None,
                user="ann",
                credentials=Credentials("line7", "s3cret"),
                registers=True,
                follow_redirects=True,
                accept_refer=False,
                qualify_s=0,
                number="100",
            )
        ]
    ]
    assert "s3cret" not in repr(harness.applied)


async def test_an_allowlist_trunk_has_credentials_when_it_has_a_user_and_a_password(harness: TrunkHarness) -> None:
    number = await harness.number(sip_mode="ip_allowlist", sip_ip="192.0.2.1", sip_password="s3cret")
    maker = TrunkBuilder(harness.secrets, harness.dns_watcher)
    trunk = maker.build(number)
    assert trunk and (trunk.registers, trunk.user, trunk.credentials) == (False, "100", None)
    trunk = maker.build(await harness.change(number, sip_username="ann"))
    assert trunk and (trunk.user, trunk.credentials) == ("100", Credentials("ann", "s3cret"))


async def test_on_standby_no_number_registers(harness: TrunkHarness) -> None:
    number = await harness.number(**REGISTRATION, sip_password="s3cret")
    usual, standby = (TrunkBuilder(harness.secrets, harness.dns_watcher, each).build(number) for each in (False, True))
    assert usual and standby and (usual.registers, standby) == (True, replace(usual, registers=False))


class OtherNodes(AllWork):
    """Node b has every registration."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: set[str] = set()

    def want(self, keys: Collection[str]) -> None:
        self.wanted = set(keys)

    def does(self, key: str) -> bool:
        return False

    def holder(self, key: str) -> str | None:
        return "b" if key in self.wanted else None


async def test_a_trunk_that_another_node_registers_is_used_for_calls_only(harness: TrunkHarness) -> None:
    number = await harness.number(**REGISTRATION, sip_password="s3cret")
    await harness.number(number="101", sip_mode="ip_allowlist", sip_ip="192.0.2.1")
    usual, others = harness.provisioner.builder.build(number), OtherNodes()
    builder = TrunkBuilder(harness.secrets, harness.dns_watcher, registrations=others)
    harness.provisioner = TrunkProvisioner(harness.database, builder, harness._apply, harness._status)
    assert harness.provisioner.status(number) == TrunkStatus("registering", "no node registers it yet")
    await harness.provisioner.refresh()
    assert others.wanted == {number.id}
    assert usual and [each for each in harness.applied[-1] if each.registers] == [replace(usual, registers_here=False)]
    assert harness.provisioner.status(number) == TrunkStatus("listening", "node b registers it")


@pytest.mark.parametrize("for_all", [True, False])
async def test_another_node_gets_the_trunks_of_a_registrar_out_of_reach(harness: TrunkHarness, for_all: bool) -> None:
    first, second, elsewhere = [
        await harness.number(number=number, **REGISTRATION | {"sip_proxy": proxy})
        for number, proxy in (("100", "192.0.2.1"), ("101", "192.0.2.1"), ("102", "192.0.2.2"))
    ]
    refused: set[str] = set()

    def refuse(keys: Collection[str]) -> None:
        refused.update(keys)

    harness.provisioner.builder.registrations.refuse = refuse  # type: ignore[method-assign]
    await harness.provisioner.refresh()
    harness.provisioner.on_registrar_unreached(first.id, for_all)
    assert refused == ({first.id, second.id} if for_all else {first.id}) and elsewhere.id not in refused
    harness.provisioner.on_registrar_unreached("deleted", for_all)
    assert len(refused) == 1 + for_all


CARRIER = {"sip_mode": "registration", "sip_proxy": "192.0.2.9", "sip_port": 5070, "sip_register_transport": "tcp"}
OF_CARRIER = {"provider": "provider_a", "carrier_trunk": CARRIER}


async def test_numbers_of_a_carrier_share_one_registration(harness: TrunkHarness) -> None:
    account = CarrierAccount("harbour", Credentials("login", "s3cret"), ("PCMA",))
    builder = TrunkBuilder(harness.secrets, harness.dns_watcher, carriers={"provider_a": account})
    harness.provisioner.builder = builder
    fields = {"sip_allow_redirect": True, "sip_username": "ann", "sip_password": "own"}
    first = await harness.number(**OF_CARRIER, **fields)
    second = await harness.number(number="101", **OF_CARRIER)
    trunk = builder.build(first)
    assert trunk == builder.build(second) == await harness.provisioner.ready_trunk(first)
    assert (trunk.key, trunk.user, trunk.number, trunk.registers) == ("provider_a", "harbour", "provider_a", True)
    assert (trunk.host_port, trunk.credentials) == (SipHostPort("192.0.2.9", 5070, "tcp"), account.credentials)
    assert trunk.codecs == builder.codecs(first) == ("PCMA",)
    assert {each.key: each for each in harness.applied[-1]} == {"provider_a": trunk}
    third = await harness.number(number="102", **OF_CARRIER)
    for number in (second, third):
        assert harness.provisioner.status(number) == TrunkStatus("registered", "provider_a"), "registered already"


async def test_numbers_of_a_carrier_by_address_have_their_own_trunks_with_its_credentials(
    harness: TrunkHarness,
) -> None:
    account = CarrierAccount("harbour", Credentials("login", "s3cret"))
    builder = TrunkBuilder(harness.secrets, harness.dns_watcher, carriers={"provider_a": account})
    number = await harness.number(
        provider="provider_a", carrier_trunk={"sip_mode": "ip_allowlist", "sip_ip": "192.0.2.9"}
    )
    trunk = builder.build(number)
    assert trunk and (trunk.key, trunk.user, trunk.registers) == (number.id, "100", False)
    assert (trunk.host, trunk.credentials) == ("192.0.2.9", account.credentials)


async def test_a_trunk_of_the_numbers_own_never_has_the_password_and_codecs_of_its_carrier(
    harness: TrunkHarness,
) -> None:
    carriers = {"provider_a": CarrierAccount("harbour", Credentials("login", "s3cret"), ("PCMA",))}
    builder = TrunkBuilder(harness.secrets, harness.dns_watcher, carriers=carriers)
    number = await harness.number(provider="provider_a", sip_mode="ip_allowlist", sip_ip="192.0.2.66")
    trunk = builder.build(number)
    assert trunk and trunk.credentials is None
    assert trunk.codecs == builder.codecs(number) == ()


async def test_a_number_without_a_trunk_has_a_status_that_says_so(harness: TrunkHarness) -> None:
    number = await harness.number()
    await harness.provisioner.refresh()
    assert (harness.applied, harness.provisioner.status(number)) == ([[]], NO_TRUNK)


async def test_a_host_without_a_stated_transport_uses_that_of_its_first_target(harness: TrunkHarness) -> None:
    place = SipHostPort("pbx.example.net")
    harness.names[place] = [SipTarget("192.0.2.7", 5061, "tls")]
    number = await harness.number(**REGISTRATION, sip_password="s3cret")
    running = asyncio.create_task(harness.provisioner.run())
    harness.provisioner.on_number_change()
    await until(
        lambda: harness.applied and harness.applied[-1][0].host_port == SipHostPort("pbx.example.net", None, "tls")
    )
    assert (await harness.provisioner.ready_trunk(number)).transport == "tls"
    running.cancel()


async def test_a_notified_change_is_applied(harness: TrunkHarness) -> None:
    number = await harness.number(**REGISTRATION, sip_password="s3cret")
    running = asyncio.create_task(harness.provisioner.run())
    harness.provisioner.on_number_change()
    await until(lambda: harness.applied)
    assert harness.provisioner.status(number) == TrunkStatus("registered", number.id)
    await harness.change(number, sip_username="bob")
    harness.provisioner.on_number_change()
    await until(lambda: harness.applied[-1][0].user == "bob")
    running.cancel()


async def test_a_new_number_is_registering_or_listening(harness: TrunkHarness) -> None:
    assert harness.provisioner.status(await harness.number(**REGISTRATION)).state == "registering"
    allowed = await harness.number(sip_mode="ip_allowlist", sip_ip="192.0.2.1")
    assert harness.provisioner.status(allowed) == TrunkStatus("listening", NO_ANSWER_YET)
    never = await harness.number(sip_mode="ip_allowlist", sip_ip="192.0.2.2", sip_qualify_seconds=0)
    assert harness.provisioner.status(never) == TrunkStatus("listening", NEVER_QUALIFIED)


async def test_an_unapplied_change_does_not_show_the_former_status(harness: TrunkHarness) -> None:
    number = await harness.number(**REGISTRATION, sip_password="s3cret")
    await harness.provisioner.refresh()
    assert harness.provisioner.status(await harness.change(number, name="Front desk")).state == "registered"
    assert harness.provisioner.status(await harness.change(number, sip_username="bob")).state == "registering"


async def test_a_password_of_another_key_fails_its_trunk_alone(harness: TrunkHarness) -> None:
    other = Secrets([Fernet.generate_key()])
    strange = await harness.number(**REGISTRATION, sip_password_encrypted=other.encrypt("s3cret"))
    fine = await harness.number(sip_mode="ip_allowlist", sip_ip="192.0.2.1")
    await harness.provisioner.refresh()
    assert [trunk.key for trunk in harness.applied[-1]] == [fine.id]
    assert harness.provisioner.status(strange) == TrunkStatus(
        "failed", "a stored secret does not fit the secret key file"
    )
    with pytest.raises(InviteError, match="secret") as caught:
        await harness.provisioner.ready_trunk(await harness.change(strange, sip_proxy="192.0.2.9"))
    assert caught.value.kind == "trunk_unusable"


async def test_a_call_waits_until_its_trunk_is_applied(harness: TrunkHarness) -> None:
    place = SipHostPort("pbx.example.net")
    number = await harness.number(**REGISTRATION, sip_password="s3cret")
    with pytest.raises(InviteError, match="the trunk's host is unknown: no answer in time") as caught:
        await harness.provisioner.ready_trunk(number)
    assert caught.value.kind == "unresolved"
    await harness.dns_watcher.close()
    harness.names[place] = [SipTarget("192.0.2.7", 5060, "udp")]
    trunk = await harness.provisioner.ready_trunk(number)
    assert harness.applied[-1] == [trunk]
    count = len(harness.applied)
    assert await harness.provisioner.ready_trunk(number) == trunk
    assert len(harness.applied) == count


async def test_an_outdated_number_is_not_dialled_from_without_another_read(
    harness: TrunkHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = await harness.number(sip_mode="ip_allowlist", sip_ip="192.0.2.1")
    later = number.updated_at + timedelta(seconds=1)
    monkeypatch.setattr(phone_numbers, "utc_now", lambda: later)
    moved = await harness.change(number, sip_ip="192.0.2.2")
    await harness.provisioner.refresh()
    for _ in range(3):
        with pytest.raises(InviteError, match="changed meanwhile") as caught:
            await harness.provisioner.ready_trunk(number)
        assert caught.value.kind == "trunk_changed"
    assert (await harness.provisioner.ready_trunk(moved)).host == "192.0.2.2"
    assert len(harness.applied) == 1


async def test_calls_of_a_new_number_read_the_trunks_once(harness: TrunkHarness) -> None:
    number = await harness.number(sip_mode="ip_allowlist", sip_ip="192.0.2.1")
    trunks = await asyncio.gather(*(harness.provisioner.ready_trunk(number) for _ in range(5)))
    assert {trunk.key for trunk in trunks} == {number.id}
    assert len(harness.applied) == 1
