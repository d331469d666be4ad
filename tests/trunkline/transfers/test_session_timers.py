"""Session timers (RFC 4028) of connected legs: the server refreshes both, and its refresh crosses a hold of the peer
(RFC 3261, 14)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.sipcore.raw.raw_phone import Message, RawPhone, parse
from tests.trunkline.callees import TargetCall, trunk_phone
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.sip_phone import PhoneCall
from tests.trunkline.transferred_calls import TARGET, assert_nothing_is_left, assert_they_hear_each_other

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]
REFRESH_WITHIN_S = 60.0
TIMER_OF = {
    "caller": ("Supported: timer", "Session-Expires: 90;refresher=uas"),
    "target": ("Require: timer", "Session-Expires: 90;refresher=uac"),
}
RETRY_S = {"caller": (0.0, 2.0), "target": (2.1, 4.0)}
"""The times of RFC 3261, 14.1: the server owns the Call-ID of the target's leg."""
LATE_S = 1.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(tmp_path_factory.mktemp("server"), sip={"session_timer_s": 90}) as local_server:
        yield local_server


async def next_refresh(call: PhoneCall, method: str, last_cseq: str = "") -> Message:
    """The server's next refresh, which is no retransmission of that with `last_cseq`."""
    async with asyncio.timeout(REFRESH_WITHIN_S):
        while True:
            message = parse(await call.phone.sip.received.get())
            if message.first_line.startswith(f"{method} ") and message.header("CSeq") != last_cseq:
                return message


async def holds_while_the_server_refreshes(
    local_server: LocalServer, call: PhoneCall, call_id: str, method: str, leg: str
) -> None:
    """The peer's hold crosses the server's refresh. Both get 491 if both have an offer. Both try again, and the hold
    stays."""
    since, hold = local_server.log.mark(), call.offer("0 101", "sendonly")
    refresh = await next_refresh(call, method)
    assert refresh.header("Session-Expires").startswith("90;refresher=")
    answer = await call.reinvite(hold)
    call.phone.reply(refresh, "491 Request Pending")
    refused_at = time.monotonic()
    if method == "INVITE":
        assert answer.status == 491
    while answer.status == 491:
        answer = await call.reinvite(hold)
    assert answer.status == 200
    await local_server.log.event("call.held", since=since, call_id=call_id, by="peer")
    again = await next_refresh(call, method, refresh.header("CSeq"))
    earliest_s, latest_s = RETRY_S[leg]
    assert earliest_s <= time.monotonic() - refused_at < latest_s + LATE_S
    body = hold if again.body else ""
    call.phone.reply(again, "200 OK", "Require: timer", "Session-Expires: 90;refresher=uac", body=body)
    if method == "INVITE":
        await call.phone.next_request("ACK")
    assert not local_server.log.all("call.resumed", since, call_id=call_id)
    assert (await call.reinvite(call.offer())).status == 200
    await local_server.log.event("call.resumed", since=since, call_id=call_id, by="peer")


async def transfer_with_crossing_requests(local_server: LocalServer, method: str) -> None:
    """Both legs of a connected transfer are refreshed by this method, and both peers hold at that moment."""
    local_server.numbers += 1
    number, client = str(local_server.numbers), local_server.client
    allow = ("Allow: INVITE, ACK, BYE, UPDATE",) if method == "UPDATE" else ()
    targets = [{"name": "Desk", "description": "Berths", "number": TARGET, "mode": "cold"}]
    agent_id = await client.agent(systemPrompt="Yes.", transferTargets=targets)
    async with RawPhone(local_server.target) as raw, trunk_phone(local_server.target) as phone:
        await client.number(number, agent_id, sipPort=phone.port, sipTransferMethod="bridge")
        caller = PhoneCall(raw, number)
        caller.headers = TIMER_OF["caller"] + allow
        async with caller:
            call_id = (await local_server.log.event("call.incoming", number=number))["call_id"]
            await local_server.log.event("call.answered", call_id=call_id)
            child_id = (await client.v1("POST", f"calls/{call_id}/transfer", {"target": "Desk"}))["id"]
            target = TargetCall(await phone.called())
            target.headers = TIMER_OF["target"] + allow
            async with target:
                await local_server.log.event("transfer.connected", transfer_id=child_id)
                await asyncio.gather(
                    holds_while_the_server_refreshes(local_server, caller, call_id, method, "caller"),
                    holds_while_the_server_refreshes(local_server, target, child_id, method, "target"),
                )
                await assert_they_hear_each_other(caller, target)
                await caller.hang_up()
                await target.hung_up()
    ended = await local_server.ended(call_id)
    assert (ended["endedReason"], ended["transferStatus"]) == ("customer_ended", "completed")


async def test_refreshes_of_both_legs_cross_a_hold_by_either_peer(local_server: LocalServer) -> None:
    since = local_server.log.mark()
    await asyncio.gather(*(transfer_with_crossing_requests(local_server, method) for method in ("INVITE", "UPDATE")))
    await assert_nothing_is_left(local_server, since)
