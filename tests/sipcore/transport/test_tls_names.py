"""A trunk over TLS whose host is a name: its certificate must match the name, whatever address DNS has."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace

import pytest
import pytest_asyncio

from sipcore.dialogs.leg import Leg
from sipcore.resolver.target import SipHostPort, SipTarget
from sipcore.security.digest import Credentials
from sipcore.settings import EndpointSettings
from sipcore.trunks.trunk import Trunk
from tests.peers.certificate_authority import Authority
from tests.peers.ports import free_port
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.raw.raw_phone import RawPhone
from tests.sipcore.raw.raw_tls import Connection, client_context, server_context, tls_server
from tests.sipcore.transport.test_tls import response_to
from tests.sipcore.trunks.test_registration_client import TrunkWatcher

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOST = "sip.carrier.test"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def phone(authority: Authority) -> AsyncIterator[Phone]:
    files = authority.files("localhost", "127.0.0.1")
    async with Phone(EndpointSettings(codecs=("PCMU",), max_calls=20, tls_port=free_port(), tls=files)) as phone:
        yield phone
        await phone.endpoint.set_trunks([])


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


ALLOWED = Trunk(
    key="a", host=HOST, port=None, transport="tls", outbound_proxy=None, user="100", credentials=None,
    registers=False, follow_redirects=False, accept_refer=False, qualify_s=0,
)  # fmt: skip
REGISTERED = replace(ALLOWED, key="b", registers=True, credentials=Credentials("100", "hush"))
BEHIND = replace(REGISTERED, key="c", host="carrier.test", outbound_proxy=SipHostPort(HOST, None, "tls"))


@pytest.mark.parametrize("trunk", [ALLOWED, REGISTERED, BEHIND], ids=["allowed", "registered", "behind a proxy"])
async def test_certificate_for_the_trunks_name_is_accepted(phone: Phone, authority: Authority, trunk: Trunk) -> None:
    async with tls_server(server_context(authority.files(HOST, file="carrier"))) as (port, connections):
        phone.endpoint.set_host_table({SipHostPort(HOST, None, "tls"): [SipTarget("127.0.0.1", port, "tls")]})
        await phone.endpoint.set_trunks([trunk])
        if trunk.registers:
            connection = await asyncio.wait_for(connections.get(), 5)
            register = await connection.next_message()
            assert register.first_line == f"REGISTER sip:{trunk.host};transport=tls SIP/2.0"
        leg = await phone.endpoint.call("200", trunk=trunk)
        if not trunk.registers:
            connection = await asyncio.wait_for(connections.get(), 5)
        assert (await connection.next_message()).first_line.startswith("INVITE sip:200@")
        await leg.hangup()
        await phone.endpoint.set_trunks([])


@pytest.mark.parametrize("trunk", [ALLOWED, REGISTERED], ids=["allowed", "registered"])
async def test_certificate_for_the_trunks_address_alone_is_rejected(
    phone: Phone, authority: Authority, trunk: Trunk
) -> None:
    async with tls_server(server_context(authority.files("127.0.0.1", file="carrier"))) as (port, connections):
        phone.endpoint.set_host_table({SipHostPort(HOST, None, "tls"): [SipTarget("127.0.0.1", port, "tls")]})
        await phone.endpoint.set_trunks([trunk])
        leg = await phone.endpoint.call("200", trunk=trunk)
        assert (await asyncio.wait_for(leg.ended, 5)).code in (0, 502, 503)
        while not connections.empty():
            assert await connections.get_nowait().reader.read() == b"", "it gets no data"
        await phone.endpoint.set_trunks([])


async def test_trunk_with_an_address_requires_a_certificate_for_the_address(phone: Phone, authority: Authority) -> None:
    watch = TrunkWatcher(phone)
    async with tls_server(server_context(authority.files(HOST, file="carrier"))) as (port, connections):
        phone.endpoint.set_host_table({SipHostPort(HOST, port, "tls"): [SipTarget("127.0.0.1", port, "tls")]})
        await phone.endpoint.set_trunks([replace(REGISTERED, host="127.0.0.1", port=port)])
        detail = (await watch.until("failed", "b")).detail
        assert detail == f"no connection to 127.0.0.1: its certificate is for {HOST}, not for 127.0.0.1"
        with suppress(ConnectionError):
            assert await (await connections.get()).reader.read() == b""
        await phone.endpoint.set_trunks([])


async def test_connection_with_a_name_mismatch_is_not_used_to_register(
    phone: Phone, raw: RawPhone, authority: Authority
) -> None:
    """The peer that connects and calls has a name; its Contact has the address."""
    watch, settings = TrunkWatcher(phone), phone.settings
    async with tls_server(server_context(authority.files(HOST, file="carrier"))) as (port, connections):
        phone.endpoint.set_host_table({SipHostPort(HOST, port, "tls"): [SipTarget("127.0.0.1", port, "tls")]})
        caller, dialog = (
            await Connection.connect("127.0.0.1", settings.tls_port, client_context(settings.tls)),
            raw.dialog(),
        )
        invite = raw.request("INVITE", dialog, body=raw.offer("0"), via="TLS").decode()
        contact_uri = f"sip:raw@127.0.0.1:{port};transport=tls"
        caller.writer.write(re.sub("(?m)^Contact: .*$", f"Contact: <{contact_uri}>\r", invite).encode())
        leg = await phone.next_leg()
        answered = asyncio.create_task(leg.answer())
        while (answer := await caller.next_message()).status != 200:
            pass
        dialog.to = answer.header("To")
        caller.writer.write(raw.request("ACK", dialog, via="TLS"))
        await answered
        await leg.hangup()
        called = await connections.get()
        bye = await called.next_message()
        assert bye.first_line == f"BYE {contact_uri} SIP/2.0"
        called.writer.write(response_to(bye, "200 OK"))
        await asyncio.wait_for(leg.ended, 5)
        leg.release()

        await phone.endpoint.set_trunks([replace(REGISTERED, host="127.0.0.1", port=port)])
        detail = "no connection to 127.0.0.1: its certificate is for another name"
        assert (await watch.until("failed", "b")).detail == detail
        assert not await called.wait_closed(0.1) and connections.empty()
        await phone.endpoint.set_trunks([])
        caller.close()


async def test_calls_begun_while_their_connection_is_rejected_all_end(phone: Phone, authority: Authority) -> None:
    """A thread that makes a call holds PJSUA's lock and needs the connection's; a thread that closes the connection
    must not hold that one and need PJSUA's."""
    context = server_context(authority.files("127.0.0.1", file="carrier"))
    for _ in range(4):
        async with tls_server(context) as (port, _):
            phone.endpoint.set_host_table({SipHostPort(HOST, None, "tls"): [SipTarget("127.0.0.1", port, "tls")]})
            await phone.endpoint.set_trunks([ALLOWED])
            async with asyncio.timeout(10):
                calls = [asyncio.create_task(phone.endpoint.call("200", trunk=ALLOWED)) for _ in range(12)]
                legs = [leg for leg in await asyncio.gather(*calls, return_exceptions=True) if isinstance(leg, Leg)]
                assert legs
                for leg in legs:
                    await leg.hangup()
                    await leg.ended
                    leg.release()
    await phone.endpoint.set_trunks([])
