"""The caller hangs up while a REFER with Replaces is pending: the target's leg ends with the caller's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.trunkline.callees import TargetCall, TrunkPhone, trunk_phone
from tests.trunkline.server_in_process import LocalServer, open_local_server
from tests.trunkline.transferred_calls import call_with_target, notify

pytestmark = pytest.mark.asyncio(loop_scope="module")
WITHIN_S = 5.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def local_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalServer]:
    """The server of this module."""
    async with open_local_server(
        tmp_path_factory.mktemp("server"), limits={"max_outbound_per_second": 50}
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
                assert await notify(raw, call, "SIP/2.0 100 Trying", "active;expires=60") == 200
            hung_up_at = time.monotonic()
            await call.caller.hang_up()
            await target.hung_up(WITHIN_S)
            await asyncio.gather(local_server.ended(call.call_id), local_server.ended(started["id"]))
            assert time.monotonic() - hung_up_at < WITHIN_S
    ended, child = await call.stored(), await local_server.ended(started["id"])
    assert (ended["endedReason"], ended["transferStatus"], child["endedReason"]) == ends
