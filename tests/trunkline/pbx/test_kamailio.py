"""Kamailio in front of a server, with the configuration of docs/how-to/pbx/kamailio.md."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from tests.peers.baresip import Baresip
from tests.peers.ports import free_port
from tests.peers.process import Process
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.server_in_process import LocalServer, open_local_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = Path(__file__).parents[3] / "docs/how-to/pbx/kamailio.md"


class LoadBalancer(Process):
    """Kamailio with the page's configuration; the PBX is at `pbx_port`."""

    def __init__(self, targets: list[str], pbx_port: int) -> None:
        super().__init__()
        self.port = free_port()
        self.target = f"127.0.0.1:{self.port}"
        config, destinations = re.findall(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL)
        for there, here in {
            "192.0.2.20:5060": self.target,
            "192.0.2.10:5060": f"127.0.0.1:{pbx_port}",
            "/etc/kamailio/dispatcher.list": f"{self.folder}/dispatcher.list",
            '"ds_ping_interval", 10': '"ds_ping_interval", 1',
        }.items():
            assert there in config
            config = config.replace(there, here)
        assert destinations == "1 sip:198.51.100.5:5060\n"
        (self.folder / "kamailio.cfg").write_text(config)
        (self.folder / "dispatcher.list").write_text("".join(f"1 sip:{target}\n" for target in targets))

    async def __aenter__(self) -> LoadBalancer:
        await self.start(
            "kamailio", "-DD", "-E", "-f", str(self.folder / "kamailio.cfg"), "-P", str(self.folder / "pid"),
            "-Y", str(self.folder), "-m", "32", "-M", "4", "-w", str(self.folder),
        )  # fmt: skip
        async with asyncio.timeout(10), RawPhone(self.target) as phone:
            while True:  # it says nowhere that it listens
                phone.send(phone.request("OPTIONS", phone.dialog()))
                with suppress(TimeoutError):
                    await asyncio.wait_for(phone.sip.received.get(), 0.05)
                    return self


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(
        tmp_path_factory.mktemp("server"), limits={"max_outbound_per_second": 50}
    ) as local_server:
        yield local_server


async def test_calls_are_routed_to_a_responding_server_and_from_it_to_the_pbx(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent("Thank you. END", firstSpeaker="user")
    since = local_server.log.mark()
    dead = f"127.0.0.1:{free_port()}"
    async with (
        Baresip("PCMU/8000/1", user="+41445550123") as phone,
        LoadBalancer([dead, local_server.target], phone.port) as balancer,
    ):
        for _ in range(2):
            await phone.command("dial", f"sip:{number}@{balancer.target}")
            await phone.event("CALL_ESTABLISHED")
            await phone.command("hangup")
            await phone.event("CALL_CLOSED")
        ended = await local_server.log.events_of("call.ended", 2, since=since)
        assert [each["reason"] for each in ended] == ["customer_ended"] * 2
        agent_id = await local_server.client.agent(systemPrompt="Thank you. END", firstSpeaker="agent")
        number_id = await local_server.client.number("+41445550100", None, sipPort=balancer.port)
        body = {"agentId": agent_id, "phoneNumberId": number_id, "to": "+41445550123"}
        call = await local_server.ended((await local_server.client.v1("POST", "calls", body))["id"])
        assert (call["status"], call["endedReason"]) == ("completed", "agent_ended")
        await phone.event("CALL_ESTABLISHED")


async def test_a_draining_server_gets_no_calls(local_server: LocalServer) -> None:
    number = await local_server.number_with_agent("Thank you. END")
    async with Baresip("PCMU/8000/1") as phone, LoadBalancer([local_server.target], phone.port) as balancer:
        local_server.server.endpoint.set_accepting(False)
        try:
            await phone.command("dial", f"sip:{number}@{balancer.target}")
            closed = await phone.event("CALL_CLOSED")
        finally:
            local_server.server.endpoint.set_accepting(True)
    assert closed["param"].startswith("503")
