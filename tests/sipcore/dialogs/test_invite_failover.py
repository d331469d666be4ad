"""Calls through a trunk whose host has several addresses (RFC 3263 4.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
import pytest_asyncio

from sipcore.dialogs import invite_failover
from sipcore.dialogs.leg import Leg
from sipcore.messages.contact import Contact
from sipcore.messages.headers import NameAddr
from sipcore.resolver.target import SipHostPort, SipTarget, Transport
from sipcore.security.digest import Credentials
from sipcore.settings import EndpointSettings
from sipcore.trunks.trunk import Trunk
from tests.peers.certificate_authority import Authority
from tests.peers.sipp_baresip import free_port
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.raw.raw_tls import server_context, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")
NAME = "pbx.example"
SHARED = Trunk(
    key="t", host=NAME, port=None, transport="udp", outbound_proxy=None, user="100", credentials=None,
    registers=False, follow_redirects=True, accept_refer=False, qualify_s=0, number="100",
)  # fmt: skip
OWN = replace(SHARED, credentials=Credentials("100", "hush"))
BEHIND = replace(OWN, host="127.0.0.9", port=9, outbound_proxy=SHARED.host_port)
KINDS = pytest.mark.parametrize("trunk", [SHARED, OWN, BEHIND], ids=["shared account", "own account", "behind a proxy"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def phone(authority: Authority) -> AsyncIterator[Phone]:
    files = authority.files("localhost", "127.0.0.1")
    async with Phone(EndpointSettings(codecs=("PCMU",), max_calls=20, tls_port=free_port(), tls=files)) as phone:
        yield phone


@pytest_asyncio.fixture(loop_scope="module")
async def first(phone: Phone) -> AsyncIterator[RawPhone]:
    """The host's best address."""
    async with RawPhone(phone.target, "127.0.0.2") as first:
        yield first


@pytest_asyncio.fixture(loop_scope="module")
async def second(phone: Phone) -> AsyncIterator[RawPhone]:
    """The other one."""
    async with RawPhone(phone.target, "127.0.0.3") as second:
        yield second


@pytest.fixture(autouse=True)
def silent(phone: Phone, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What was told of addresses that do not answer. They are waited for long."""
    told: list[tuple[str, str]] = []
    phone.endpoint.set_sources([f"127.0.0.{last}" for last in (1, 2, 3)])
    monkeypatch.setattr(phone.endpoint, "on_unresponsive", lambda host, address: told.append((host, address)))
    monkeypatch.setattr(invite_failover, "NO_RESPONSE_S", 60.0)
    return told


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invite_failover, "NO_RESPONSE_S", 0.3)


@pytest.fixture
def patient_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """PJSIP does not tell of every connection that is refused: not when it is before the INVITE waits for it."""
    monkeypatch.setattr(invite_failover, "NO_RESPONSE_S", 1.0)


def at(raw: RawPhone) -> SipTarget:
    return SipTarget(raw.host, raw.sip.port, "udp")


async def calls(phone: Phone, trunk: Trunk, targets: Sequence[SipTarget], **more: object) -> Leg:
    """A call through the trunk, whose host is at these addresses."""
    transports: tuple[Transport, ...] = ("udp", "tcp")
    phone.endpoint.set_host_table({SipHostPort(NAME, None, transport): targets for transport in transports})
    await phone.endpoint.set_trunks([trunk])
    return await phone.endpoint.call("900", trunk=trunk, caller=NameAddr("100", "Desk"), **more)  # type: ignore[arg-type]


async def is_over(leg: Leg, callee: RawCallee) -> None:
    """Answer, let it ring out and end it from our side."""
    callee.answers()
    await asyncio.wait_for(leg.connected(), 5)
    ending = asyncio.create_task(leg.hangup())
    await callee.is_hung_up_on()
    await ending
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def hears_nothing_more(raw: RawPhone) -> None:
    await raw.options()
    assert raw.sip.received.empty()


@KINDS
@pytest.mark.usefixtures("impatient")
async def test_when_the_first_address_says_nothing_the_next_one_is_called(
    phone: Phone, first: RawPhone, second: RawPhone, silent: list[tuple[str, str]], trunk: Trunk
) -> None:
    leg = await calls(phone, trunk, [at(first), at(second)])
    dead = await RawCallee.called(first)
    callee = await RawCallee.called(second)
    assert callee.invite.header("Call-ID") == dead.invite.header("Call-ID") == leg.sip_call_id
    assert callee.invite.header("From").split(";")[0] == dead.invite.header("From").split(";")[0]
    assert callee.invite.header("P-Asserted-Identity") == dead.invite.header("P-Asserted-Identity") != ""
    assert silent == [(NAME, "127.0.0.2")]
    dead.rings()
    await dead.gets("CANCEL")
    assert not leg.ringing.done()
    await is_over(leg, callee)


@pytest.mark.parametrize("trunk", [SHARED, OWN], ids=["shared account", "own account"])
@pytest.mark.usefixtures("patient_for_a_second")
async def test_when_the_first_address_refuses_the_connection_the_next_one_is_called(
    phone: Phone, second: RawPhone, silent: list[tuple[str, str]], trunk: Trunk
) -> None:
    leg = await calls(phone, replace(trunk, transport="tcp"), [SipTarget("127.0.0.2", free_port(), "tcp"), at(second)])
    callee = await RawCallee.called(second)
    assert silent == [(NAME, "127.0.0.2")]
    await is_over(leg, callee)


@KINDS
async def test_when_the_first_address_has_no_time_the_next_one_is_called(
    phone: Phone, first: RawPhone, second: RawPhone, silent: list[tuple[str, str]], trunk: Trunk
) -> None:
    leg = await calls(phone, trunk, [at(first), at(second)])
    (await RawCallee.called(first)).refuses("503 Service Unavailable")
    callee = await RawCallee.called(second)
    callee.refuses("503 Service Unavailable", "Reason: Q.850;cause=34")
    end = await asyncio.wait_for(leg.ended, 5)
    assert (end.code, end.by_peer, end.cause and end.cause.number) == (503, True, 34)
    assert silent == [], "it has answered"


async def test_what_the_first_address_decides_is_decided(phone: Phone, first: RawPhone, second: RawPhone) -> None:
    leg = await calls(phone, OWN, [at(first), at(second)])
    (await RawCallee.called(first)).refuses("486 Busy Here")
    assert (await asyncio.wait_for(leg.ended, 5)).code == 486
    await hears_nothing_more(second)


@pytest.mark.usefixtures("impatient")
async def test_who_says_anything_at_all_is_waited_for(phone: Phone, first: RawPhone, second: RawPhone) -> None:
    leg = await calls(phone, OWN, [at(first), at(second)])
    callee = await RawCallee.called(first)
    callee.trying()
    await asyncio.wait((leg.ended,), timeout=0.6)
    await hears_nothing_more(second)
    await is_over(leg, callee)


@pytest.mark.usefixtures("impatient")
async def test_a_call_whose_addresses_are_all_silent_waits_at_the_last_one_until_it_is_hung_up(
    phone: Phone, first: RawPhone, second: RawPhone, silent: list[tuple[str, str]]
) -> None:
    leg = await calls(phone, OWN, [at(first), at(second)])
    for raw in (first, second):
        await RawCallee.called(raw)
    await asyncio.wait((leg.ended,), timeout=0.6)
    assert not leg.ended.done()
    assert await leg.latest_status() == 0
    assert silent == [(NAME, "127.0.0.2")]
    await leg.hangup()
    assert not (await asyncio.wait_for(leg.ended, 5)).by_peer


async def test_a_call_that_cannot_be_made_to_the_next_address_ends_as_it_did_at_the_first(
    phone: Phone, first: RawPhone
) -> None:
    """The endpoint does not listen on IPv6."""
    leg = await calls(phone, SHARED, [at(first), SipTarget("::1", 9, "udp")])
    (await RawCallee.called(first)).refuses("503 Service Unavailable")
    assert (await asyncio.wait_for(leg.ended, 5)).code == 503
    assert phone.endpoint.live_legs == 0


@pytest.mark.usefixtures("impatient")
async def test_a_call_that_is_hung_up_is_not_made_again(phone: Phone, first: RawPhone, second: RawPhone) -> None:
    leg = await calls(phone, OWN, [at(first), at(second)])
    await RawCallee.called(first)
    await leg.hangup()
    await asyncio.wait_for(leg.ended, 5)
    await asyncio.sleep(0.5)  # as long as an address would be waited for, and more
    await hears_nothing_more(second)


@KINDS
@pytest.mark.usefixtures("impatient")
async def test_a_redirect_by_the_next_address_does_not_lead_to_the_silent_one(
    phone: Phone, first: RawPhone, second: RawPhone, trunk: Trunk
) -> None:
    async def follow(contact: Contact) -> str:
        return contact.user

    leg = await calls(phone, trunk, [at(first), at(second)], follow=follow)
    await RawCallee.called(first)
    callee = await RawCallee.called(second)
    callee.refuses("302 Moved Temporarily", "Contact: <sip:300@elsewhere.example>")
    await callee.gets("ACK")
    callee = await RawCallee.called(second)
    assert callee.number == "300"
    await is_over(leg, callee)


@pytest.mark.parametrize("trunk", [SHARED, OWN], ids=["shared account", "own account"])
@pytest.mark.usefixtures("patient_for_a_second")
async def test_tls_goes_on_too_and_the_certificate_is_for_the_name(
    phone: Phone, authority: Authority, trunk: Trunk
) -> None:
    """PJSIP finds the addresses of the name by itself: the silent one comes last from then on."""
    place, trunk = SipHostPort(NAME, None, "tls"), replace(trunk, transport="tls")
    async with serving(server_context(authority.files(NAME, file="pbx"))) as (port, came):
        dead, alive = SipTarget("127.0.0.2", free_port(), "tls"), SipTarget("127.0.0.1", port, "tls")
        phone.endpoint.on_unresponsive = lambda *_: phone.endpoint.set_host_table({place: [alive, dead]})
        phone.endpoint.set_host_table({place: [dead, alive]})
        await phone.endpoint.set_trunks([trunk])
        leg = await phone.endpoint.call("900", trunk=trunk, caller=NameAddr("100", "Desk"))
        connection = await asyncio.wait_for(came.get(), 5)
        assert (await connection.message()).first_line.startswith("INVITE sip:900@")
        await leg.hangup()
        connection.close()
        await asyncio.wait_for(leg.ended, 5)
