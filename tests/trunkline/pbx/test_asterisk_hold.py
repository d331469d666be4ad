"""A telephone of Asterisk holds a transferred call, with the setting of docs/how-to/pbx/freepbx.md and without it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.peers.asterisk import Asterisk, needs_root
from tests.peers.baresip import Baresip
from tests.trunkline.pbx.test_asterisk import configuration
from tests.trunkline.server_in_process import LocalServer, open_local_server

pytestmark = [needs_root, pytest.mark.asyncio(loop_scope="module")]

PAGE = Path(__file__).parents[3] / "docs/how-to/pbx/freepbx.md"
TELEPHONE = """
[telephone]
type=endpoint
context=phones
disallow=all
allow=ulaw
aors=telephone
direct_media=no

[telephone]
type=aor
contact=sip:127.0.0.1:{telephone_port}
"""
EXTENSIONS = """
[tests]
exten => caller,1,Answer()
same => n,Milliwatt()

[from-trunkline]
exten => 555,1,Dial(PJSIP/555@telephone)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server")) as local_server:
        yield local_server


def pbx(local_server: LocalServer, telephone: Baresip, setting: str) -> Asterisk:
    """Asterisk with its page's trunk by address, one telephone, and the setting."""
    pjsip = configuration("pjsip.conf", "by address").replace("0.0.0.0:5060", "127.0.0.1:{port}")
    pjsip = pjsip.replace("198.51.100.5:5060", local_server.target).replace("198.51.100.5", "127.0.0.1")
    extensions = configuration("extensions.conf", "by address") + EXTENSIONS
    files = {"pjsip.conf": pjsip + TELEPHONE + setting, "extensions.conf": extensions}
    return Asterisk(files, telephone_port=telephone.port)


@pytest.mark.parametrize("passed_on", [True, False])
async def test_a_hold_of_the_target_is_passed_on_with_the_pages_setting(
    local_server: LocalServer, passed_on: bool
) -> None:
    client, since = local_server.client, local_server.log.mark()
    setting = PAGE.read_text().partition("```ini\n")[2].partition("```")[0]
    assert setting == "[trunkline](+)\nmoh_passthrough=yes\n"
    targets = [{"name": "Desk", "description": "Berths", "number": "555", "mode": "cold"}]
    agent_id = await client.agent(systemPrompt="Yes.", transferTargets=targets)
    async with (
        Baresip("PCMU/8000/1", user="555") as telephone,
        pbx(local_server, telephone, setting if passed_on else "") as asterisk,
    ):
        await client.number("700", agent_id, sipPort=asterisk.port, sipTransferMethod="bridge")
        await asterisk.cli("channel originate Local/700@phones extension caller@tests")
        call_id = await local_server.answered(since)
        started = await client.v1("POST", f"calls/{call_id}/transfer", {"target": "Desk"})
        await local_server.log.event("transfer.connected", since=since)
        for command, event in (("hold", "call.held"), ("resume", "call.resumed")):
            await telephone.command(command)
            if passed_on:
                await local_server.log.event(event, since=since, call_id=started["id"], by="peer")
        await telephone.command("hangup")
        await local_server.ended(call_id)
        await local_server.ended(started["id"])
    trace = (await client.v1("GET", f"calls/{started['id']}/sip"))["messages"]
    re_invites = [each for each in trace if each["summary"].startswith("INVITE") and each["direction"] == "received"]
    assert len(re_invites) == (2 if passed_on else 0)
