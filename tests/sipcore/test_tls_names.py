"""A trunk over TLS whose host is a name: its certificate is for the name, wherever the name server says it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from sipcore.names import Target
from sipcore.settings import EndpointSettings
from sipcore.trunk import Credentials, Place, Trunk
from tests.certificates import Authority
from tests.peers import free_port
from tests.sipcore.phone import Phone
from tests.sipcore.raw_tls import server_context, serving

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


ALLOWED = Trunk(
    key="a", host=HOST, port=None, transport="tls", outbound_proxy=None, user="100", credentials=None,
    registers=False, follow_redirects=False, accept_refer=False, qualify_s=0,
)  # fmt: skip
REGISTERED = replace(ALLOWED, key="b", registers=True, credentials=Credentials("100", "hush"))
BEHIND = replace(REGISTERED, key="c", host="carrier.test", outbound_proxy=Place(HOST, None, "tls"))


@pytest.mark.parametrize("trunk", [ALLOWED, REGISTERED, BEHIND], ids=["allowed", "registered", "behind a proxy"])
async def test_a_certificate_for_the_name_of_a_trunk_is_good(phone: Phone, authority: Authority, trunk: Trunk) -> None:
    async with serving(server_context(authority.files(HOST, file="carrier"))) as (port, came):
        phone.endpoint.set_hosts({Place(HOST, None, "tls"): [Target("127.0.0.1", port, "tls")]})
        await phone.endpoint.set_trunks([trunk])
        if trunk.registers:
            connection = await asyncio.wait_for(came.get(), 5)
            register = await connection.message()
            assert register.first_line == f"REGISTER sip:{trunk.host};transport=tls SIP/2.0"
        leg = await phone.endpoint.call("200", trunk=trunk)
        if not trunk.registers:
            connection = await asyncio.wait_for(came.get(), 5)
        assert (await connection.message()).first_line.startswith("INVITE sip:200@")
        await leg.hangup()
        await phone.endpoint.set_trunks([])


@pytest.mark.parametrize("trunk", [ALLOWED, REGISTERED], ids=["allowed", "registered"])
async def test_a_certificate_for_its_address_alone_is_not(phone: Phone, authority: Authority, trunk: Trunk) -> None:
    async with serving(server_context(authority.files("127.0.0.1", file="carrier"))) as (port, came):
        phone.endpoint.set_hosts({Place(HOST, None, "tls"): [Target("127.0.0.1", port, "tls")]})
        await phone.endpoint.set_trunks([trunk])
        leg = await phone.endpoint.call("200", trunk=trunk)
        assert (await asyncio.wait_for(leg.ended, 5)).code in (0, 502, 503)
        while not came.empty():
            assert await came.get_nowait().reader.read() == b"", "it is told nothing"
        await phone.endpoint.set_trunks([])
