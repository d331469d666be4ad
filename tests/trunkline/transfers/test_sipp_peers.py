"""Bridged transfers with sipp as the caller or the target: early media, forked INVITEs, and missing or late offers and
answers. sipp sends the received RTP back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.peers.sipp import Sipp
from tests.sipcore.tones import loudest_hz, tone
from tests.trunkline.callees import TargetCall, trunk_phone
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import PhoneCall
from tests.trunkline.transferred_calls import TARGET, call_with_target, hears_music, share_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
ECHO_HZ = 1000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(
        tmp_path_factory.mktemp("server"), limits={"max_outbound_per_second": 50}
    ) as local_server:
        yield local_server


async def assert_hears_its_echo(call: PhoneCall) -> None:
    """sipp sends the phone's tone back."""
    call.say(tone(8000, ECHO_HZ, 2))
    await call.hears(50)
    assert loudest_hz(await call.hears(25), 8000) == pytest.approx(ECHO_HZ, abs=5)
    await call.has_said()


async def test_early_media_is_no_answer_and_a_busy_target_leads_back_to_the_agent(local_server: LocalServer) -> None:
    async with (
        Sipp("busy_after_early_media", local_server.target, call_ms=10000) as target,
        call_with_target(local_server, target.port, mode="cold") as call,
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


@pytest.mark.parametrize(("transport", "protocol"), [("u1", "udp"), ("t1", "tcp")])
async def test_the_second_of_two_early_dialogs_answers(
    local_server: LocalServer, transport: str, protocol: str
) -> None:
    async with Sipp("forked_callee", local_server.target, transport=transport) as target:
        fields = {"sipProtocol": protocol}
        async with call_with_target(local_server, target.port, mode="cold", number_fields=fields) as call:
            started = await call.transfer()
            await call.event("transfer.connected")
            await assert_hears_its_echo(call.caller)
            await call.caller.hang_up()
            await target.finished()
    ended, child = await call.stored(), await local_server.ended(started["id"])
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "completed")
    assert (child["status"], child["endedReason"]) == ("completed", "transferred")


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


@pytest.mark.parametrize("transport", ["u1", "t1"])
async def test_a_caller_with_a_late_offer_is_connected_and_hangs_up(local_server: LocalServer, transport: str) -> None:
    local_server.numbers += 1
    number, since, client = str(local_server.numbers), local_server.log.mark(), local_server.client
    targets = [{"name": "Desk", "description": "Berths", "number": TARGET, "mode": "cold"}]
    agent_id = await client.agent(systemPrompt="Yes.", transferTargets=targets)
    async with trunk_phone(local_server.target) as phone:
        await client.number(number, agent_id, sipPort=phone.port, sipTransferMethod="bridge")
        async with Sipp("late_offer", local_server.target, user=number, call_ms=20000, transport=transport) as caller:
            call_id = await local_server.answered(since)
            started = await client.v1("POST", f"calls/{call_id}/transfer", {"target": "Desk"})
            async with TargetCall(await phone.called()) as target:
                await local_server.log.event("transfer.connected", transfer_id=started["id"])
                await assert_hears_its_echo(target)
                await asyncio.gather(caller.finished(), target.hung_up())
    ended = await local_server.ended(call_id)
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "completed")
