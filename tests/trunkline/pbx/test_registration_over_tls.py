"""A number that registers over TLS at Asterisk, set up with the block of docs/how-to/pbx/asterisk.md. Inbound calls
come over the connection of the registration, because no listener takes connections over TLS."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.peers.asterisk import Asterisk, needs_root
from tests.peers.certificate_authority import Authority
from tests.peers.dnsmasq import NameServer
from tests.trunkline.pbx.test_asterisk import call_outcome, pbx, place_call, sdp_of
from tests.trunkline.server_in_process import LocalServer, open_local_server

pytestmark = [needs_root, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The certificate authority that the server trusts."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with NameServer("host-record=pbx.test,other.test,127.0.0.1") as names:
        sip = {"tls_ca": str(authority.root), "srtp": "optional", "nameservers": ["{}:{}".format(*names.address)]}
        async with open_local_server(tmp_path_factory.mktemp("server"), sip=sip) as local_server:
            yield local_server


@pytest_asyncio.fixture(
    params=["rewrite_contact=yes", "rewrite_contact=no"], scope="module", loop_scope="module"
)  # fmt: skip
async def asterisk(
    request: pytest.FixtureRequest, local_server: LocalServer, authority: Authority
) -> AsyncIterator[Asterisk]:
    """With a certificate for its host name only: as on the page, and with a fixed Contact."""
    files = authority.files("pbx.test")
    assert files.certificate and files.key
    asterisk = pbx(
        local_server, "by registration, encrypted", "by registration", {"rewrite_contact=yes": request.param}
    )
    shutil.copy(files.certificate, asterisk.spool / "asterisk.crt")
    shutil.copy(files.key, asterisk.spool / "asterisk.key")
    async with asterisk:
        await asterisk.cli("pjsip set logger on")
        yield asterisk


async def create_registering_number(
    local_server: LocalServer, asterisk: Asterisk, host: str, user: str = "trunkline-reg"
) -> str:
    """Create a number that registers at Asterisk; returns its id."""
    agent_id = await local_server.client.agent(systemPrompt="Thank you. END", firstSpeaker="agent")
    return await local_server.client.number(
        "700", agent_id, sipMode="registration", sipUsername=user, sipPassword="a-long-password",
        sipProxy=f"{host}:{asterisk.port}", sipRegisterTransport="tls",
    )  # fmt: skip


async def test_a_number_registers_is_called_calls_and_unregisters(
    local_server: LocalServer, asterisk: Asterisk
) -> None:
    since = local_server.log.mark()
    number_id = await create_registering_number(local_server, asterisk, "pbx.test")
    await local_server.log.event("trunk.registered", since=since)
    assert not local_server.log.all("trunk.failed", since), "its host was still being looked for"
    assert (await local_server.client.v1("GET", f"phone-numbers/{number_id}"))["sipStatus"] == "registered"
    assert "trunkline-reg/sip:" in await asterisk.cli("pjsip show contacts")

    await asterisk.cli("channel originate Local/700@phones extension talk@tests")
    call = await local_server.ended(await local_server.answered(since))
    assert (call["phoneNumberId"], call["endedReason"]) == (number_id, "agent_ended")
    assert "RTP/SAVP" in await sdp_of(local_server, call["id"])

    assert await call_outcome(local_server, number_id, "+41000011") == ("completed", "agent_ended"), "after a 401"
    call_id = await place_call(local_server, number_id, "+41000012")
    call = await local_server.ended(call_id)
    assert (call["status"], call["endedReason"]) == ("completed", "customer_ended"), "their BYE finds us"

    assert await local_server.client.status("DELETE", f"phone-numbers/{number_id}") == 200
    await local_server.log.event("trunk.unregistered", since=since)
    assert "trunkline-reg/sip" not in await asterisk.cli("pjsip show contacts")


async def test_a_certificate_for_another_name_fails_the_registration_before_any_message(
    local_server: LocalServer, asterisk: Asterisk
) -> None:
    since = local_server.log.mark()
    number_id = await create_registering_number(local_server, asterisk, "other.test", "secretive")
    await local_server.log.event("trunk.failed", since=since)
    found = await local_server.client.v1("GET", f"phone-numbers/{number_id}")
    assert found["sipStatus"] == "failed"
    assert found["sipStatusDetail"] == "no connection to 127.0.0.1: its certificate is for pbx.test, not for other.test"
    assert await local_server.client.status("DELETE", f"phone-numbers/{number_id}") == 200
    assert "secretive" not in asterisk.output()
