"""Bridged transfers with sipp as the caller or the target: early media, forked INVITEs, and missing or late offers and
answers, hold and REFER, over UDP and TLS. sipp sends the received RTP back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sipcore.settings import TlsFiles
from tests.peers.certificate_authority import Authority
from tests.peers.ports import free_port
from tests.peers.sipp import Sipp
from tests.sipcore.tones import loudest_hz, tone
from tests.trunkline.callees import TargetCall, trunk_phone
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import PhoneCall
from tests.trunkline.transferred_calls import TARGET, call_with_target, hears_music, share_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
ECHO_HZ = 1000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The certificate authority that the server and sipp trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    files = authority.files("127.0.0.1")
    sip = {
        "tls_port": free_port(), "tls_cert": str(files.certificate), "tls_key": str(files.key),
        "tls_ca": str(authority.root), "srtp": "optional",
    }  # fmt: skip
    async with open_local_server(
        tmp_path_factory.mktemp("server"), sip=sip, limits={"max_outbound_per_second": 50}
    ) as local_server:
        yield local_server


class SippPeer:
    """Runs sipp against this server over `protocol`."""

    def __init__(self, local_server: LocalServer, protocol: str, tls: TlsFiles) -> None:
        self.protocol = protocol
        self._tls = tls if protocol == "tls" else None
        port = local_server.server.settings.sip.tls_port if protocol == "tls" else local_server.server.sip_port
        self._target = f"127.0.0.1:{port}"

    def run(self, scenario: str, **more: Any) -> Sipp:
        """One run of a scenario."""
        return Sipp(scenario, self._target, tls=self._tls, **more)

    @property
    def trunk(self) -> dict[str, Any]:
        """Fields of the phone number whose trunk it is."""
        return {"sipProtocol": self.protocol}


@pytest.fixture
def peer(request: pytest.FixtureRequest, local_server: LocalServer, authority: Authority) -> SippPeer:
    """sipp over the protocol of the test, UDP unless parametrized."""
    files = authority.files("127.0.0.1", file="sipp")
    return SippPeer(local_server, getattr(request, "param", "udp"), files)


def over(*protocols: str) -> pytest.MarkDecorator:
    """Run the test with sipp over each of these."""
    return pytest.mark.parametrize("peer", protocols, indirect=True)


async def assert_transport(local_server: LocalServer, call_id: str, protocol: str) -> None:
    """Every request of the call was sent and received over this protocol."""
    trace = (await local_server.client.v1("GET", f"calls/{call_id}/sip"))["messages"]
    vias = {each["text"].partition("Via: SIP/2.0/")[2].partition(" ")[0] for each in trace}
    assert vias == {protocol.upper()}


async def assert_hears_its_echo(call: PhoneCall) -> None:
    """sipp sends the phone's tone back."""
    call.say(tone(8000, ECHO_HZ, 2))
    await call.hears(50)
    assert loudest_hz(await call.hears(25), 8000) == pytest.approx(ECHO_HZ, abs=5)
    await call.has_said()


@over("udp", "tls")
async def test_early_media_is_no_answer_and_a_busy_target_leads_back_to_the_agent(
    local_server: LocalServer, peer: SippPeer
) -> None:
    async with (
        peer.run("busy_after_early_media", call_ms=7000) as target,
        call_with_target(local_server, target.port, mode="cold", number_fields=peer.trunk) as call,
    ):
        await call.transfer()
        call.caller.say(tone(8000, ECHO_HZ, 5))
        assert share_of(ECHO_HZ, await hears_music(call.caller)) < 0.1
        assert (await call.shown())["transferStatus"] == "ringing"
        await target.finished()
        await call.agent_goes_on()
        await call.caller.hang_up()
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "busy")
    assert ended["transferCalls"][0]["answeredAt"] is None


@over("udp", "tls")
async def test_the_second_of_two_early_dialogs_answers(local_server: LocalServer, peer: SippPeer) -> None:
    async with (
        peer.run("forked_callee") as target,
        call_with_target(local_server, target.port, mode="cold", number_fields=peer.trunk) as call,
    ):
        started = await call.transfer()
        await call.event("transfer.connected")
        await assert_hears_its_echo(call.caller)
        await call.caller.hang_up()
        await target.finished()
    ended, child = await call.stored(), await local_server.ended(started["id"])
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "completed")
    assert (child["status"], child["endedReason"]) == ("completed", "transferred")
    await assert_transport(local_server, started["id"], peer.protocol)


@over("udp", "tls")
async def test_a_hold_of_the_target_is_heard_by_the_caller(local_server: LocalServer, peer: SippPeer) -> None:
    async with (
        peer.run("holding_callee", call_ms=5000) as target,
        call_with_target(local_server, target.port, mode="cold", number_fields=peer.trunk) as call,
    ):
        started = await call.transfer()
        await call.event("transfer.connected")
        call.caller.say(tone(8000, ECHO_HZ, 12))
        await call.event("call.held", call_id=started["id"], by="peer")
        assert share_of(ECHO_HZ, await hears_music(call.caller)) < 0.1
        await call.event("call.resumed", call_id=started["id"], by="peer")
        await call.caller.hears(25)
        assert loudest_hz(await call.caller.hears(25), 8000) == pytest.approx(ECHO_HZ, abs=5)
        await call.caller.hang_up()
        await target.finished()
    assert (await call.stored())["endedReason"] == "customer_ended"
    await assert_transport(local_server, started["id"], peer.protocol)


async def test_a_target_whose_answer_has_no_sdp_leads_back_to_the_agent(local_server: LocalServer) -> None:
    async with (
        Sipp("answer_without_sdp", local_server.target) as target,
        call_with_target(local_server, target.port, mode="cold") as call,
    ):
        started = await call.transfer()
        await target.finished()
        await call.agent_goes_on()
        await call.caller.hang_up()
    ended, child = await call.stored(), await local_server.ended(started["id"])
    (transfer,) = ended["transferCalls"]
    assert (transfer["transferStatus"], transfer["sipStatus"]) == ("failed", 200)
    assert [each["outcome"] for each in transfer["attempts"]] == ["no_audio"]
    assert (child["status"], child["endedReason"]) == ("completed", "unreachable")


async def number_with_target(local_server: LocalServer, **number: Any) -> str:
    """A new number, whose agent has one target; returns the number."""
    local_server.numbers += 1
    targets = [{"name": "Desk", "description": "Berths", "number": TARGET, "mode": "cold"}]
    agent_id = await local_server.client.agent(systemPrompt="Yes.", transferTargets=targets)
    await local_server.client.number(str(local_server.numbers), agent_id, **number)
    return str(local_server.numbers)


@over("udp", "tls")
async def test_a_caller_with_a_late_offer_is_connected_and_hangs_up(local_server: LocalServer, peer: SippPeer) -> None:
    since = local_server.log.mark()
    async with trunk_phone(local_server.target) as phone:
        number = await number_with_target(local_server, sipPort=phone.port, sipTransferMethod="bridge")
        async with peer.run("late_offer", user=number, call_ms=12000) as caller:
            call_id = await local_server.answered(since)
            started = await local_server.client.v1("POST", f"calls/{call_id}/transfer", {"target": "Desk"})
            async with TargetCall(await phone.called()) as target:
                await local_server.log.event("transfer.connected", transfer_id=started["id"])
                await assert_hears_its_echo(target)
                await asyncio.gather(caller.finished(), target.hung_up())
    ended = await local_server.ended(call_id)
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "completed")
    await assert_transport(local_server, call_id, peer.protocol)


@over("udp", "tls")
async def test_a_caller_that_challenges_refer_takes_the_transfer(local_server: LocalServer, peer: SippPeer) -> None:
    since = local_server.log.mark()
    login = {"sipUsername": "ann", "sipPassword": "secret"}
    number = await number_with_target(local_server, sipTransferMethod="refer", **peer.trunk, **login)
    async with peer.run("referred_caller", user=number, keys={"final": "200 OK"}) as caller:
        call_id = await local_server.answered(since)
        await local_server.client.v1("POST", f"calls/{call_id}/transfer", {"target": "Desk"})
        await caller.finished()
    ended = await local_server.ended(call_id)
    assert (ended["endedReason"], ended["transferStatus"]) == ("transferred", "completed")
    await assert_transport(local_server, call_id, peer.protocol)


@over("udp", "tls")
async def test_a_caller_refers_the_agent_to_another_number_of_its_trunk(
    local_server: LocalServer, peer: SippPeer
) -> None:
    """Over TLS by a sips: URI."""
    since, scheme = local_server.log.mark(), "sips" if peer.protocol == "tls" else "sip"
    async with peer.run("forked_callee") as target:
        number = await number_with_target(local_server, sipPort=target.port, sipAllowRefer=True, **peer.trunk)
        keys = {"refer_to": f"{scheme}:{TARGET}@127.0.0.1"}
        async with peer.run("referring_caller", user=number, call_ms=1000, keys=keys) as caller:
            call_id = await local_server.answered(since)
            await caller.finished()
            await local_server.client.v1("POST", f"calls/{call_id}/hangup")
            await target.finished()
    assert (await local_server.ended(call_id))["endedReason"] == "api_hangup"
    await assert_transport(local_server, call_id, peer.protocol)
