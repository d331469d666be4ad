"""Failover of outbound INVITEs through a trunk whose host has several addresses (RFC 3263 4.3)."""

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
from tests.peers.ports import free_port
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.raw.raw_tls import server_context, tls_server

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
    """The host's preferred address."""
    async with RawPhone(phone.target, "127.0.0.2") as first:
        yield first


@pytest_asyncio.fixture(loop_scope="module")
async def second(phone: Phone) -> AsyncIterator[RawPhone]:
    """The other address."""
    async with RawPhone(phone.target, "127.0.0.3") as second:
        yield second


@pytest.fixture(autouse=True)
def unresponsive(phone: Phone, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The reports of addresses that do not respond; the response timeout is long."""
    reports: list[tuple[str, str]] = []
    phone.endpoint.set_sources([f"127.0.0.{last}" for last in (1, 2, 3)])
    monkeypatch.setattr(phone.endpoint, "on_unresponsive", lambda host, address: reports.append((host, address)))
    monkeypatch.setattr(invite_failover, "RESPONSE_TIMEOUT_S", 60.0)
    return reports


@pytest.fixture
def short_response_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invite_failover, "RESPONSE_TIMEOUT_S", 0.3)


@pytest.fixture
def response_timeout_of_1_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """PJSIP does not report every refused connection: not one that is refused before the INVITE waits for it."""
    monkeypatch.setattr(invite_failover, "RESPONSE_TIMEOUT_S", 1.0)


def at(raw: RawPhone) -> SipTarget:
    return SipTarget(raw.host, raw.sip.port, "udp")


async def call_trunk(phone: Phone, trunk: Trunk, targets: Sequence[SipTarget], **more: object) -> Leg:
    """A call through the trunk, whose host has these addresses."""
    transports: tuple[Transport, ...] = ("udp", "tcp")
    phone.endpoint.set_host_table({SipHostPort(NAME, None, transport): targets for transport in transports})
    await phone.endpoint.set_trunks([trunk])
    return await phone.endpoint.call("900", trunk=trunk, caller=NameAddr("100", "Desk"), **more)  # type: ignore[arg-type]


async def ring_and_end(leg: Leg, callee: RawCallee) -> None:
    """Ring, answer and hang up from our side."""
    callee.answer()
    await asyncio.wait_for(leg.wait_connected(), 5)
    ending = asyncio.create_task(leg.hangup())
    await callee.expect_bye()
    await ending
    await asyncio.wait_for(leg.ended, 5)
    leg.release()


async def receives_nothing(raw: RawPhone) -> None:
    await raw.options()
    assert raw.sip.received.empty()


@KINDS
@pytest.mark.usefixtures("short_response_timeout")
async def test_next_target_is_called_when_the_first_does_not_respond(
    phone: Phone, first: RawPhone, second: RawPhone, unresponsive: list[tuple[str, str]], trunk: Trunk
) -> None:
    leg = await call_trunk(phone, trunk, [at(first), at(second)])
    dead = await RawCallee.wait_for_invite(first)
    callee = await RawCallee.wait_for_invite(second)
    assert callee.invite.header("Call-ID") == dead.invite.header("Call-ID") == leg.sip_call_id
    assert callee.invite.header("From").split(";")[0] == dead.invite.header("From").split(";")[0]
    assert callee.invite.header("P-Asserted-Identity") == dead.invite.header("P-Asserted-Identity") != ""
    assert unresponsive == [(NAME, "127.0.0.2")]
    dead.ring()
    await dead.next_request("CANCEL")
    assert not leg.ringing.done()
    await ring_and_end(leg, callee)


@pytest.mark.parametrize("trunk", [SHARED, OWN], ids=["shared account", "own account"])
@pytest.mark.usefixtures("response_timeout_of_1_s")
async def test_next_target_is_called_when_the_first_refuses_the_connection(
    phone: Phone, second: RawPhone, unresponsive: list[tuple[str, str]], trunk: Trunk
) -> None:
    leg = await call_trunk(
        phone, replace(trunk, transport="tcp"), [SipTarget("127.0.0.2", free_port(), "tcp"), at(second)]
    )
    callee = await RawCallee.wait_for_invite(second)
    assert unresponsive == [(NAME, "127.0.0.2")]
    await ring_and_end(leg, callee)


@KINDS
async def test_next_target_is_called_when_the_first_responds_503(
    phone: Phone, first: RawPhone, second: RawPhone, unresponsive: list[tuple[str, str]], trunk: Trunk
) -> None:
    leg = await call_trunk(phone, trunk, [at(first), at(second)])
    (await RawCallee.wait_for_invite(first)).reject("503 Service Unavailable")
    callee = await RawCallee.wait_for_invite(second)
    callee.reject("503 Service Unavailable", "Reason: Q.850;cause=34")
    end = await asyncio.wait_for(leg.ended, 5)
    assert (end.code, end.by_peer, end.cause and end.cause.number) == (503, True, 34)
    assert unresponsive == [], "it has answered"


async def test_other_final_responses_of_the_first_target_are_final(
    phone: Phone, first: RawPhone, second: RawPhone
) -> None:
    leg = await call_trunk(phone, OWN, [at(first), at(second)])
    (await RawCallee.wait_for_invite(first)).reject("486 Busy Here")
    assert (await asyncio.wait_for(leg.ended, 5)).code == 486
    await receives_nothing(second)


@pytest.mark.usefixtures("short_response_timeout")
async def test_target_that_responded_is_not_given_up(phone: Phone, first: RawPhone, second: RawPhone) -> None:
    leg = await call_trunk(phone, OWN, [at(first), at(second)])
    callee = await RawCallee.wait_for_invite(first)
    callee.send_trying()
    await asyncio.wait((leg.ended,), timeout=0.6)
    await receives_nothing(second)
    await ring_and_end(leg, callee)


@pytest.mark.usefixtures("short_response_timeout")
async def test_last_target_is_waited_for_until_hangup(
    phone: Phone, first: RawPhone, second: RawPhone, unresponsive: list[tuple[str, str]]
) -> None:
    leg = await call_trunk(phone, OWN, [at(first), at(second)])
    for raw in (first, second):
        await RawCallee.wait_for_invite(raw)
    await asyncio.wait((leg.ended,), timeout=0.6)
    assert not leg.ended.done()
    assert await leg.latest_status() == 0
    assert unresponsive == [(NAME, "127.0.0.2")]
    await leg.hangup()
    assert not (await asyncio.wait_for(leg.ended, 5)).by_peer


async def test_leg_ends_with_the_first_failure_if_the_next_target_cannot_be_called(
    phone: Phone, first: RawPhone
) -> None:
    """The endpoint does not listen on IPv6."""
    leg = await call_trunk(phone, SHARED, [at(first), SipTarget("::1", 9, "udp")])
    (await RawCallee.wait_for_invite(first)).reject("503 Service Unavailable")
    assert (await asyncio.wait_for(leg.ended, 5)).code == 503
    assert phone.endpoint.live_legs == 0


@pytest.mark.usefixtures("short_response_timeout")
async def test_hung_up_call_is_not_sent_to_another_target(phone: Phone, first: RawPhone, second: RawPhone) -> None:
    leg = await call_trunk(phone, OWN, [at(first), at(second)])
    await RawCallee.wait_for_invite(first)
    await leg.hangup()
    await asyncio.wait_for(leg.ended, 5)
    await asyncio.sleep(0.5)  # as long as an address would be waited for, and more
    await receives_nothing(second)


@KINDS
@pytest.mark.usefixtures("short_response_timeout")
async def test_redirect_by_the_next_target_does_not_use_the_unresponsive_one(
    phone: Phone, first: RawPhone, second: RawPhone, trunk: Trunk
) -> None:
    async def follow(contact: Contact) -> str:
        return contact.user

    leg = await call_trunk(phone, trunk, [at(first), at(second)], follow=follow)
    await RawCallee.wait_for_invite(first)
    callee = await RawCallee.wait_for_invite(second)
    callee.reject("302 Moved Temporarily", "Contact: <sip:300@elsewhere.example>")
    await callee.next_request("ACK")
    callee = await RawCallee.wait_for_invite(second)
    assert callee.number == "300"
    await ring_and_end(leg, callee)


@pytest.mark.parametrize("trunk", [SHARED, OWN], ids=["shared account", "own account"])
@pytest.mark.usefixtures("response_timeout_of_1_s")
async def test_tls_fails_over_and_verifies_the_host_name(phone: Phone, authority: Authority, trunk: Trunk) -> None:
    """PJSIP resolves the name by itself: the unresponsive target comes last from then on."""
    place, trunk = SipHostPort(NAME, None, "tls"), replace(trunk, transport="tls")
    async with tls_server(server_context(authority.files(NAME, file="pbx"))) as (port, connections):
        dead, alive = SipTarget("127.0.0.2", free_port(), "tls"), SipTarget("127.0.0.1", port, "tls")
        phone.endpoint.on_unresponsive = lambda *_: phone.endpoint.set_host_table({place: [alive, dead]})
        phone.endpoint.set_host_table({place: [dead, alive]})
        await phone.endpoint.set_trunks([trunk])
        leg = await phone.endpoint.call("900", trunk=trunk, caller=NameAddr("100", "Desk"))
        connection = await asyncio.wait_for(connections.get(), 5)
        assert (await connection.next_message()).first_line.startswith("INVITE sip:900@")
        await leg.hangup()
        connection.close()
        await asyncio.wait_for(leg.ended, 5)
