"""A REFER that the peer has accepted and of which it reports no end: the next method follows, or the caller is back
with the agent. A caller who hangs up while a REFER with Replaces is pending ends the target's leg, too."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.trunkline.callees import TargetCall, TrunkPhone, trunk_phone
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.transferred_calls import (
    TransferredCall,
    assert_they_hear_each_other,
    call_with_target,
    notify,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
WITHIN_S = 5.0
REFER_TIMEOUT_S = 6
"""Longer than a test takes to end a call while a REFER is pending."""
TRYING = "SIP/2.0 100 Trying"
ACTIVE = "active;expires=60"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(
        tmp_path_factory.mktemp("server"),
        sip={"refer_timeout_s": REFER_TIMEOUT_S},
        limits={"max_outbound_per_second": 50},
    ) as local_server:
        yield local_server


@pytest_asyncio.fixture(loop_scope="module")
async def phone(local_server: LocalServer) -> AsyncIterator[TrunkPhone]:
    """The target's phone."""
    async with trunk_phone(local_server.target) as phone:
        yield phone


@pytest.mark.parametrize(
    ("response", "trying", "ends"),
    [
        ("202 Accepted", True, ("transferred", "completed", "transferred")),
        ("", False, ("customer_ended", "cancelled", "agent_ended")),
    ],
)
async def test_the_callers_bye_ends_both_legs(
    local_server: LocalServer, phone: TrunkPhone, response: str, trying: bool, ends: tuple[str, str, str]
) -> None:
    async with call_with_target(local_server, phone.port, mode="attended", method="auto") as call:
        started = await call.transfer()
        async with TargetCall(await phone.called()) as target:
            await call.event("turn.agent", call_id=started["id"])
            target.press("1")
            raw = call.caller.phone
            request = await raw.next_request("REFER")
            assert "Replaces=" in request.header("Refer-To")
            if response:
                raw.reply(request, response)
            if trying:
                assert await notify(raw, call, TRYING, ACTIVE) == 200
            hung_up_at = time.monotonic()
            await call.caller.hang_up()
            await target.hung_up(WITHIN_S)
            await asyncio.gather(local_server.ended(call.call_id), local_server.ended(started["id"]))
            assert time.monotonic() - hung_up_at < WITHIN_S
    ended, child = await call.stored(), await local_server.ended(started["id"])
    assert (ended["endedReason"], ended["transferStatus"], child["endedReason"]) == ends


async def accept_refer(call: TransferredCall) -> None:
    """Respond to the REFER with 202, and report that the target is tried, and no more."""
    raw = call.caller.phone
    raw.reply(await raw.next_request("REFER"), "202 Accepted")
    assert await notify(raw, call, TRYING, ACTIVE) == 200


async def report_late(call: TransferredCall) -> None:
    """A final NOTIFY that comes after the timeout ends nothing: that transfer has gone on without it."""
    late = await notify(call.caller.phone, call, "SIP/2.0 486 Busy Here", "terminated;reason=noresource")
    assert late in (200, 481)


@pytest.mark.parametrize("mode", ["cold", "attended"])
async def test_a_bridge_follows_on_a_refer_without_an_end(
    local_server: LocalServer, phone: TrunkPhone, mode: str
) -> None:
    async with call_with_target(local_server, phone.port, mode=mode, method="auto") as call:
        started = await call.transfer()
        if mode == "cold":
            await accept_refer(call)
        async with TargetCall(await phone.called()) as target:
            if mode == "attended":
                await call.event("turn.agent", call_id=started["id"])
                target.press("1")
                await accept_refer(call)
            await call.event("transfer.connected")
            await report_late(call)
            await assert_they_hear_each_other(call.caller, target)
            await target.hang_up()
            await call.caller.hung_up(WITHIN_S)
    ended, child = await call.stored(), await local_server.ended(started["id"])
    assert (ended["endedReason"], ended["transferStatus"]) == ("transferred", "completed")
    assert child["endedReason"] == "customer_ended"
    attempts = {(each["sipStatus"], each["outcome"]) for each in ended["transferCalls"][0]["attempts"]}
    assert attempts == {(100, "no_response"), (200, "answered")}


async def test_the_agent_goes_on_after_a_refer_without_an_end_if_no_other_method_is_permitted(
    local_server: LocalServer, phone: TrunkPhone
) -> None:
    async with call_with_target(local_server, phone.port, mode="cold", method="refer") as call:
        await call.transfer()
        await accept_refer(call)
        await call.event("transfer.returned")
        await report_late(call)
        await call.agent_goes_on()
        shown = await call.shown()
        assert (shown["transferStatus"], shown["sipStatus"]) == ("failed", 100)
        await call.caller.hang_up()
    ended = await call.stored()
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "failed")
    assert phone.phone.sip.received.empty(), "the target is not called"
