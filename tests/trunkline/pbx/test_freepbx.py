"""Asterisk with what FreePBX writes from the fields that `trunkline number create --pbx freepbx` prints.

FreePBX itself is not run: its rules are in tests/peers/freepbx.py, and its contexts are reduced to what calls pass.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
import pytest_asyncio

from api.pbx.server import SipServer
from api.pbx.sides import pbx_side
from tests.peers import freepbx
from tests.peers.asterisk import Asterisk, needs_root
from tests.trunkline.pbx.test_asterisk import call_outcome
from tests.trunkline.server_in_process import LocalServer, open_local_server

pytestmark = [needs_root, pytest.mark.asyncio(loop_scope="module")]

NOTHING = {"sipAuthUser": None, "sipUsername": None, "sipProtocol": None, "sipRegisterTransport": None}
PASSWORD = "a-long-password"
CONTEXTS = """
[from-internal]
include => from-internal-xfer
[from-internal-xfer]
include => ext-local
include => outbound-allroutes
[outbound-allroutes]
include => outrt-1
[outrt-1]
exten => {pattern},1,Dial(PJSIP/${{EXTEN}}@trunkline,300,T)

[from-pstn]
include => ext-did
include => from-did-direct
[ext-did]
exten => +41000012,1,Goto(from-did-direct,100,1)
[from-did-direct]
include => ext-local

[ext-local]
exten => 100,1,Answer()
same => n,Milliwatt()
exten => 750,1,Dial(${{PJSIP_DIAL_CONTACTS(750)}},15)

[tests]
exten => talk,1,Answer()
same => n,Milliwatt()
"""
"""The route to the agent, an inbound route to the extension 100, the extensions, and in [tests] a caller's voice."""


def fields_of(number: Mapping[str, Any], sip_address: str) -> dict[str, str]:
    """The fields that are printed for a number, of all screens."""
    host, _, port = sip_address.partition(":")
    printed = pbx_side("freepbx", number, SipServer(host, int(port), 0, "off"), PASSWORD)
    assert printed is not None
    return dict(line.strip().split(": ", 1) for line in printed.splitlines() if line.startswith(" "))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server")) as local_server:
        yield local_server


async def called_from(local_server: LocalServer, asterisk: Asterisk, extension: str) -> str:
    """Dial an extension as a telephone does, until the agent hangs up; returns the id of the phone number."""
    since = local_server.log.mark()
    await asterisk.cli(f"channel originate Local/{extension}@from-internal extension talk@tests")
    call = await local_server.ended(await local_server.answered(since))
    assert (call["status"], call["endedReason"]) == ("completed", "agent_ended")
    return str(call["phoneNumberId"])


@pytest.mark.parametrize(("transport", "dialled"), [("udp", "700"), ("tcp", "701")])
async def test_a_trunk_carries_calls_of_extensions_and_of_agents(
    local_server: LocalServer, transport: str, dialled: str
) -> None:
    trunk = {"sipMode": "ip_allowlist", "sipProtocol": transport}
    number = {**NOTHING, **trunk, "number": dialled, "sipInboundAuth": False}
    fields = fields_of(number, local_server.target)
    contexts = CONTEXTS.format(pattern=fields["Dial Patterns, match pattern"])
    async with Asterisk({**freepbx.trunk(fields), "extensions.conf": contexts}) as asterisk:
        agent_id = await local_server.client.agent(systemPrompt="Thank you. END", firstSpeaker="agent")
        number_id = await local_server.client.number(dialled, agent_id, sipPort=asterisk.port, **trunk)
        await asterisk.cli("pjsip qualify trunkline")
        assert await called_from(local_server, asterisk, dialled) == number_id
        for to in ("100", "+41000012"):
            assert await call_outcome(local_server, number_id, to) == ("completed", "agent_ended"), to
        assert await call_outcome(local_server, number_id, "101") == ("failed", "invalid_number")


async def test_an_extension_carries_calls_of_extensions_and_of_the_agent(local_server: LocalServer) -> None:
    number = {**NOTHING, "number": "750", "sipMode": "registration", "sipUsername": "750"}
    files = freepbx.extension(fields_of(number, local_server.target))
    async with Asterisk({**files, "extensions.conf": CONTEXTS.format(pattern="700")}) as asterisk:
        agent_id = await local_server.client.agent(systemPrompt="Thank you. END", firstSpeaker="agent")
        since = local_server.log.mark()
        number_id = await local_server.client.number(
            "750", agent_id, sipMode="registration", sipUsername="750", sipPassword=PASSWORD,
            sipProxy=f"127.0.0.1:{asterisk.port}",
        )  # fmt: skip
        await local_server.log.event("trunk.registered", since=since)
        assert await called_from(local_server, asterisk, "750") == number_id
        assert await call_outcome(local_server, number_id, "100") == ("completed", "agent_ended"), "after a 401"
