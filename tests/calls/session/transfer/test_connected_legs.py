"""How connected legs end, and holds of either, without SIP: no leg outlives its partner."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from calls.post_call.finalizer import CallFinalizer
from tests.calls.call_service_harness import call_service, until
from tests.calls.session.transfer.transfer_calls import bridged_pair, child_of, tool_call, transfer_of


async def test_a_caller_who_hangs_up_on_hold_ends_both(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone, target = await bridged_pair(harness)
        target.holds()
        assert harness.pump.bridges == []
        phone.hangs_up()
        parent = await harness.ended_call(phone)
        child = await child_of(harness, await transfer_of(harness, phone))
    assert (parent.ended_reason, target.sent[-1], child.status) == ("customer_ended", -1, "completed")


async def test_a_target_that_hangs_up_while_it_holds_ends_both(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone, target = await bridged_pair(harness)
        target.holds()
        target.ends()
        parent = await harness.ended_call(phone)
    assert (parent.ended_reason, phone.sent[-1]) == ("transferred", -1)


async def test_the_rtp_timeout_of_a_leg_that_holds_starts_when_it_resumes(tmp_path: Path) -> None:
    async with call_service(tmp_path, tool_call("Sales"), rtp_timeout_s=0.2) as harness:
        phone, target = await bridged_pair(harness)
        target.holds()
        harness.pump.silent_slots[target.slot] = time.monotonic_ns()
        loop = asyncio.get_running_loop()
        started = loop.time()
        await until(lambda: loop.time() - started > 0.8)
        assert not target.leg.ended.done()
        target.holds(on=False)
        assert harness.pump.bridges
        parent = await harness.ended_call(phone)
        child = await child_of(harness, await transfer_of(harness, phone))
    assert (parent.ended_reason, child.ended_reason) == ("transferred", "media_timeout")


async def test_the_caller_is_hung_up_before_the_end_of_the_targets_call_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with call_service(tmp_path, tool_call("Sales")) as harness:
        phone, target = await bridged_pair(harness)
        stored = asyncio.Event()
        finish = CallFinalizer.finish

        async def finish_later(self: CallFinalizer, *args: Any) -> None:
            await stored.wait()
            await finish(self, *args)

        monkeypatch.setattr(CallFinalizer, "finish", finish_later)
        target.ends()
        try:
            await until(lambda: phone.sent[-1] == -1)
        finally:
            stored.set()
        await harness.ended_call(phone)
