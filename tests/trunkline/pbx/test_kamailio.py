"""Kamailio in front of a server, with the configuration of docs/how-to/pbx/kamailio.md."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sipcore.settings import TlsFiles
from tests.peers.asterisk import Asterisk, needs_root
from tests.peers.baresip import Baresip
from tests.peers.certificate_authority import Authority
from tests.peers.ports import free_port
from tests.peers.process import Process
from tests.sipcore.raw.raw_callee import RawCallee
from tests.sipcore.raw.raw_phone import RawPhone
from tests.trunkline.callees import TargetCall
from tests.trunkline.pbx.test_asterisk import configuration
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import PCMA, PhoneCall, calling
from tests.trunkline.transferred_calls import assert_they_hear_each_other

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = Path(__file__).parents[3] / "docs/how-to/pbx/kamailio.md"
PBX_EXTENSIONS = """
[tests]
exten => caller,1,Answer()
same => n,Milliwatt()

[from-trunkline]
exten => 555,1,Answer()
same => n,Milliwatt()
exten => 556,1,Answer()
same => n(key),Wait(1)
same => n,SendDTMF(1)
same => n,Goto(key)
"""


HIDDEN_CALL_IDS = """
loadmodule "topoh.so"
modparam("topoh", "mask_key", "key")
modparam("topoh", "mask_ip", "127.0.0.8")
modparam("topoh", "mask_callid", 1)
modparam("topoh", "sanity_checks", 0)
"""


class LoadBalancer(Process):
    """Kamailio with the page's configuration and `modules`; the PBX is at `pbx_port`. With `tls` it uses TLS between
    itself and the servers at `targets`."""

    def __init__(
        self,
        targets: list[str],
        pbx_port: int,
        port: int | None = None,
        modules: str = "",
        tls: TlsFiles | None = None,
    ) -> None:
        super().__init__()
        self.port = port or free_port()
        self.target = f"127.0.0.1:{self.port}"
        config, destinations, with_tls = re.findall(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL)
        self.trunk: dict[str, Any] = {"sipPort": self.port}
        """Fields of a phone number whose trunk it is."""
        self.route = f"Route: <sip:{self.target};"
        """The beginning of the first Route of a server's requests."""
        if tls is not None:
            self.trunk = {"sipPort": free_port(), "sipProtocol": "tls"}
            self.route = f"Route: <sip:127.0.0.1:{self.trunk['sipPort']};transport=tls;"
            config = self._with_tls(config, with_tls, tls)
            targets = [f"{target};transport=tls" for target in targets]
        for there, here in {
            "192.0.2.20:5060": self.target,
            "192.0.2.10:5060": f"127.0.0.1:{pbx_port}",
            "/etc/kamailio/dispatcher.list": f"{self.folder}/dispatcher.list",
            '"ds_ping_interval", 10': '"ds_ping_interval", 1',
            'loadmodule "dispatcher.so"\n': f'loadmodule "dispatcher.so"\n{modules}',
        }.items():
            assert there in config
            config = config.replace(there, here)
        assert destinations == "1 sip:198.51.100.5:5060\n"
        (self.folder / "kamailio.cfg").write_text(config)
        (self.folder / "dispatcher.list").write_text("".join(f"1 sip:{target}\n" for target in targets))

    def _with_tls(self, config: str, settings: str, tls: TlsFiles) -> str:
        """The configuration with the page's changes for TLS."""
        for there, here in {
            "192.0.2.20:5061": f"127.0.0.1:{self.trunk['sipPort']}",
            "/etc/kamailio/tls/kamailio.pem": str(tls.certificate),
            "/etc/kamailio/tls/kamailio.key": str(tls.key),
            "/etc/kamailio/tls/ca.pem": str(tls.authorities),
        }.items():
            assert there in settings
            settings = settings.replace(there, here)
        for place, change in (
            ("auto_aliases=no\n", "auto_aliases=no\n" + settings),
            ('ds_is_from_list("1")', 'ds_is_from_list("1", "1")'),
        ):
            assert place in config and change.splitlines()[-1] in PAGE.read_text() + settings
            config = config.replace(place, change)
        return config

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


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The certificate authority that the server and Kamailio trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    files = authority.files("127.0.0.1")
    sip = {
        "tls_port": free_port(), "tls_cert": str(files.certificate), "tls_key": str(files.key),
        "tls_ca": str(authority.root),
    }  # fmt: skip
    async with open_local_server(
        tmp_path_factory.mktemp("server"), sip=sip, limits={"max_outbound_per_second": 50}
    ) as local_server:
        yield local_server


def load_balancer(
    local_server: LocalServer, pbx_port: int, tls: TlsFiles | None, port: int | None = None, modules: str = ""
) -> LoadBalancer:
    """Kamailio in front of this server, over TLS or UDP."""
    target = local_server.target if tls is None else f"127.0.0.1:{local_server.server.settings.sip.tls_port}"
    return LoadBalancer([target], pbx_port, port, modules, tls)


@pytest.fixture(params=["udp", "tls"])
def tls(request: pytest.FixtureRequest, authority: Authority) -> TlsFiles | None:
    """The certificate of Kamailio; None: UDP between Kamailio and the server."""
    return authority.files("127.0.0.1", file="kamailio") if request.param == "tls" else None


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


@pytest.mark.parametrize(("leaver", "tls"), [("caller", "udp"), ("target", "udp"), ("target", "tls")], indirect=["tls"])
async def test_requests_of_both_legs_of_a_transfer_follow_the_route_set(
    local_server: LocalServer, leaver: str, tls: TlsFiles | None
) -> None:
    """Both legs pass through Kamailio with Record-Route: re-INVITEs of either peer, and the BYE of either side."""
    local_server.numbers += 1
    number, since, client = str(local_server.numbers), local_server.log.mark(), local_server.client
    targets = [{"name": "Desk", "description": "Berths", "number": "555", "mode": "cold"}]
    agent_id = await client.agent(systemPrompt="Yes.", transferTargets=targets)
    async with (
        Baresip("PCMU/8000/1", user="+41445550123") as caller,
        Baresip("PCMA/8000/1", user="555") as target,
        load_balancer(local_server, target.port, tls) as balancer,
    ):
        await client.number(number, agent_id, **balancer.trunk, sipTransferMethod="bridge")
        await caller.command("dial", f"sip:{number}@{balancer.target}")
        call_id = await local_server.answered(since)
        started = await client.v1("POST", f"calls/{call_id}/transfer", {"target": "Desk"})
        await local_server.log.event("transfer.connected", since=since)
        for peer, held_id in ((caller, call_id), (target, started["id"])):
            for command, event in (("hold", "call.held"), ("resume", "call.resumed")):
                await peer.command(command)
                await local_server.log.event(event, since=since, call_id=held_id, by="peer")
        for sender, receiver in ((caller, target), (target, caller)):
            await sender.command("sndcode", "5")
            assert (await receiver.event("CALL_DTMF_START"))["param"] == "5"
        leaves, stays = (caller, target) if leaver == "caller" else (target, caller)
        await leaves.command("hangup")
        await stays.event("CALL_CLOSED")
        ended = await local_server.ended(call_id)
        assert ended["endedReason"] == ("customer_ended" if leaver == "caller" else "transferred")
        ours_id = started["id"] if leaver == "caller" else call_id
        await local_server.ended(started["id"])
        trace = (await client.v1("GET", f"calls/{ours_id}/sip"))["messages"]
        (bye,) = [each for each in trace if each["summary"].startswith("BYE")]
        assert (bye["direction"], bye["to"]) == ("sent", f"127.0.0.1:{balancer.trunk['sipPort']}")
        assert balancer.route in bye["text"]
        assert [each["direction"] for each in trace if each["summary"].startswith("200 OK (BYE)")] == ["received"]


@pytest.mark.parametrize("leaver", ["caller", "target"])
async def test_a_refused_refer_is_followed_by_a_bridged_call_whose_keys_and_codecs_pass(
    local_server: LocalServer, leaver: str
) -> None:
    """REFER reaches the phone through Kamailio; SIP INFO and re-INVITEs of both phones reach the server."""
    local_server.numbers += 1
    number, since, client, port = str(local_server.numbers), local_server.log.mark(), local_server.client, free_port()
    targets = [{"name": "Desk", "description": "Berths", "number": "555", "mode": "cold"}]
    agent_id = await client.agent(systemPrompt="Yes.", transferTargets=targets)
    balanced = f"127.0.0.1:{port}"
    async with RawPhone(balanced) as pbx, LoadBalancer([local_server.target], pbx.sip.port, port):
        await client.number(number, agent_id, sipPort=port)
        async with calling(balanced, number) as caller:
            call_id = await local_server.answered(since)
            await client.v1("POST", f"calls/{call_id}/transfer", {"target": "Desk"})
            refer = await caller.phone.next_request("REFER")
            assert (len(refer.headers("Via")), balanced in refer.headers("Via")[0]) == (2, True)
            caller.phone.reply(refer, "405 Method Not Allowed")
            async with TargetCall(await RawCallee.wait_for_invite(pbx)) as target:
                await local_server.log.event("transfer.connected", since=since)
                await assert_they_hear_each_other(caller, target)
                await assert_keys_pass(caller, target)
                for each in (caller, target):
                    assert (await each.reinvite(each.offer("8 101", "rtpmap:8 PCMA/8000"))).status == 200
                    each.codec = PCMA
                await assert_they_hear_each_other(caller, target)
                leaves, stays = (caller, target) if leaver == "caller" else (target, caller)
                await leaves.hang_up()
                await stays.hung_up()
    ended = await local_server.ended(call_id)
    outcomes = [(each["sipStatus"], each["outcome"]) for each in ended["transferCalls"][0]["attempts"]]
    assert outcomes == [(405, "refused"), (200, "answered")]
    assert ended["endedReason"] == ("customer_ended" if leaver == "caller" else "transferred")


async def assert_keys_pass(caller: PhoneCall, target: TargetCall) -> None:
    """Keys by RFC 4733 and by SIP INFO reach the other phone, by RFC 4733."""
    for sender in (caller, target):
        sender.press("1")
        await sender.has_said()
    head = target.callee.request("INFO", headers=("Content-Type: application/dtmf-relay",))
    body = b"Signal=7\r\nDuration=160\r\n"
    target.phone.send(head.replace(b"Content-Length: 0", b"Content-Length: %d" % len(body)) + body)
    assert (await target.phone.final_response("INFO")).status == 200
    assert await caller.phone.info(caller.dialog, "dtmf-relay", b"Signal=9\r\nDuration=160\r\n") == 200
    for receiver, digits in ((caller, "17"), (target, "19")):
        async with asyncio.timeout(10):
            while receiver.digits() != digits:
                await receiver.hears(1)


def pbx_behind(balancer_port: int) -> Asterisk:
    """Asterisk with the trunk by address of its page, whose address is that of the load balancer."""
    pjsip = configuration("pjsip.conf", "by address").replace("0.0.0.0:5060", "127.0.0.1:{port}")
    pjsip = pjsip.replace("198.51.100.5:5060", f"127.0.0.1:{balancer_port}").replace("198.51.100.5", "127.0.0.1")
    extensions = configuration("extensions.conf", "by address") + PBX_EXTENSIONS
    return Asterisk({"pjsip.conf": pjsip, "extensions.conf": extensions})


@dataclass
class PbxCall:
    """A call of the PBX to an agent, through Kamailio."""

    call_id: str
    pbx: Asterisk
    balancer: LoadBalancer


@asynccontextmanager
async def transferred_call(
    local_server: LocalServer, mode: str, extension: str, modules: str = "", tls: TlsFiles | None = None
) -> AsyncIterator[PbxCall]:
    """A call whose transfer to this extension has begun."""
    client, since, port = local_server.client, local_server.log.mark(), free_port()
    targets = [{"name": "Desk", "description": "Berths", "number": extension, "mode": mode}]
    agent_id = await client.agent(systemPrompt="Yes.", transferTargets=targets)
    async with (
        pbx_behind(port) as pbx,
        load_balancer(local_server, pbx.port, tls, port, modules) as balancer,
    ):
        await client.number("700", agent_id, **balancer.trunk)
        await pbx.cli("channel originate Local/700@phones extension caller@tests")
        call_id = await local_server.answered(since)
        await client.v1("POST", f"calls/{call_id}/transfer", {"target": "Desk"})
        yield PbxCall(call_id, pbx, balancer)


@needs_root
@pytest.mark.parametrize(("mode", "extension"), [("cold", "555"), ("attended", "556")])
async def test_the_pbx_takes_a_transfer_by_refer(
    local_server: LocalServer, mode: str, extension: str, tls: TlsFiles | None
) -> None:
    """REFER, with Replaces for an attended transfer, and its NOTIFY pass through Kamailio in the dialog."""
    async with transferred_call(local_server, mode, extension, tls=tls) as call:
        ended = await local_server.ended(call.call_id)
        channels = await call.pbx.cli("core show channels concise")
    (transfer,) = ended["transferCalls"]
    assert (ended["endedReason"], transfer["transferStatus"]) == ("transferred", "completed"), transfer
    assert f"!{extension}!" in channels
    trace = (await local_server.client.v1("GET", f"calls/{call.call_id}/sip"))["messages"]
    (refer,) = [each for each in trace if each["summary"].startswith("REFER")]
    assert refer["to"] == f"127.0.0.1:{call.balancer.trunk['sipPort']}"
    assert call.balancer.route in refer["text"]
    assert ("Replaces=" in refer["text"]) == (mode == "attended")


@needs_root
async def test_a_call_that_the_pbx_does_not_find_by_its_hidden_id_is_connected(local_server: LocalServer) -> None:
    """With `mask_callid` Replaces has a Call-ID that the PBX does not know."""
    since = local_server.log.mark()
    async with transferred_call(local_server, "attended", "556", HIDDEN_CALL_IDS) as call:
        refused = await local_server.log.event("transfer.refer_ended", since=since)
        await local_server.log.event("transfer.connected", since=since)
        await call.pbx.cli("channel request hangup all")
        ended = await local_server.ended(call.call_id)
    assert (refused["outcome"], ended["transferStatus"]) == ("target_failed", "completed")


async def test_second_legs_reach_the_pbx_with_their_headers_and_end_when_it_does_not_respond(
    local_server: LocalServer,
) -> None:
    local_server.numbers += 1
    number, since, client = str(local_server.numbers), local_server.log.mark(), local_server.client
    targets = [{"name": "Desk", "description": "Berths", "number": "555", "mode": "cold"}]
    agent_id = await client.agent(systemPrompt="Yes.", transferTargets=targets)
    async with (
        Baresip("PCMU/8000/1", user="+41445550123") as caller,
        RawPhone(local_server.target) as pbx,
        LoadBalancer([local_server.target], pbx.sip.port) as balancer,
    ):
        fields = {"sipTransferMethod": "bridge", "sipTransferCallerId": "caller"}
        await client.number(number, agent_id, sipPort=balancer.port, **fields)
        await caller.command("dial", f"sip:{number}@{balancer.target}")
        call_id = await local_server.answered(since)
        await client.v1("POST", f"calls/{call_id}/transfer", {"target": "Desk"})
        invite = (await RawCallee.wait_for_invite(pbx)).invite
        await local_server.log.event("transfer.returned", since=since)
        await caller.command("hangup")
        (transfer,) = (await local_server.ended(call_id))["transferCalls"]
    assert [invite.header(name).partition("@")[0] for name in ("From", "P-Asserted-Identity", "Diversion")] == [
        "<sip:+41445550123", "<sip:+41445550123", f"<sip:{number}"
    ]  # fmt: skip
    assert invite.header("User-to-User") == f"{call_id.encode().hex()};encoding=hex"
    assert (transfer["transferStatus"], transfer["sipStatus"]) == ("no_answer", 408)


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
