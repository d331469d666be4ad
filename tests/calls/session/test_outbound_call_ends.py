"""Outbound calls that this server ends: by hangup, and by a drain."""

from __future__ import annotations

import asyncio
from pathlib import Path

from config.clock import utc_now
from storage.webhooks import deliveries
from tests.calls.call_service_harness import call_service, until
from tests.calls.outbound_calls import WEBHOOK, callee, ended, queue, status_and_reason, store, stored, wait_for_status


async def test_a_queued_call_that_is_hung_up_is_never_placed(tmp_path: Path) -> None:
    async with call_service(tmp_path, per_second=0.001) as harness:
        line = await harness.create_number()
        await queue(harness, line)
        await callee(harness)
        waiting = await queue(harness, line)
        assert await harness.service.hangup(waiting.id)
        end = await stored(harness, waiting)
        assert (status_and_reason(end), end.call_sid) == (("no_answer", "api_hangup"), None)
        harness.service.start_queued_calls()
        assert not await harness.service.hangup(waiting.id)
        assert harness.callees.dial_count == 1


async def test_a_stored_call_that_is_not_read_yet_can_be_hung_up(tmp_path: Path) -> None:
    async with call_service(tmp_path, per_second=0.001) as harness:
        line = await harness.create_number()
        await queue(harness, line)
        await callee(harness)
        call = await harness.database.write(lambda conn: store(conn, line, "+4917012"))
        assert await harness.service.hangup(call.id)
        assert status_and_reason(await stored(harness, call)) == ("no_answer", "api_hangup")


async def test_a_ringing_call_that_is_hung_up_is_cancelled(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        call = await queue(harness, await harness.create_number())
        there = await callee(harness)
        there.rings()
        assert await harness.service.hangup(call.id)
        assert status_and_reason(await stored(harness, call)) == ("no_answer", "api_hangup")
        assert there.sent == [-1]


async def test_a_call_that_is_hung_up_while_its_invite_is_sent_is_cancelled(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        harness.callees.gate.clear()
        call = await queue(harness, await harness.create_number())
        await until(lambda: harness.callees.dial_count)
        hanging_up = asyncio.create_task(harness.service.hangup(call.id))
        await until(lambda: harness.service.active_calls()[0]._lifecycle.is_ending)  # type: ignore[attr-defined]
        harness.callees.gate.set()
        assert await hanging_up
        assert (await callee(harness)).sent == [-1]
        assert status_and_reason(await stored(harness, call)) == ("no_answer", "api_hangup")


async def test_concurrent_hangups_see_the_same_end(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        call = await queue(harness, await harness.create_number())
        there = await callee(harness)
        there.answers()
        await until(lambda: there.leg.on_digit is not None)
        assert await asyncio.gather(*(harness.service.hangup(call.id) for _ in range(2))) == [True, True]
        assert status_and_reason(await stored(harness, call)) == ("completed", "api_hangup")


async def test_in_any_order_of_events_each_call_is_placed_once_and_ends_once(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        line = await harness.create_number()

        async def queue_and_hang_up(n: int) -> str:
            call = await queue(harness, line, f"+4917{n:04}")
            if n % 3:
                await asyncio.sleep(0.003 * (n % 5))
            await harness.service.hangup(call.id)
            harness.service.start_queued_calls()
            return call.id

        ids = await asyncio.gather(*(queue_and_hang_up(n) for n in range(40)))
        await harness.service.drain(0)
        ends = {call.id: status_and_reason(call) for call in await harness.all_calls()}
        assert ends == dict.fromkeys(ids, ("no_answer", "api_hangup"))
        dialled = [each.leg.facts.to_addr.user for each in harness.callees.dialled]
        assert len(dialled) == len(set(dialled))
        assert all(each.sent == [-1] for each in harness.callees.dialled)


async def test_a_drain_places_no_calls_and_lets_ringing_ones_go_on(tmp_path: Path) -> None:
    async with call_service(tmp_path, per_second=0.001) as harness:
        line = await harness.create_number(**WEBHOOK)
        ringing = await queue(harness, line)
        there = await callee(harness)
        there.rings()
        known = await queue(harness, line)
        await until(lambda: harness.service.active_call_count == 2)
        unknown = await harness.database.write(lambda conn: store(conn, line, "+4917013"))
        drain = asyncio.ensure_future(harness.service.drain(60))
        for call in (known, unknown):
            assert status_and_reason(await ended(harness, call)) == ("failed", "server_shutdown")
        assert not drain.done()
        there.answers()
        await wait_for_status(harness, ringing, "in_progress")
        there.ends()
        await drain
        assert status_and_reason(await stored(harness, ringing)) == ("completed", "customer_ended")
        assert len(await harness.database.read(lambda conn: deliveries.due_attempts(conn, utc_now()))) == 3


async def test_a_call_that_outlasts_the_drain_while_it_rings_fails(tmp_path: Path) -> None:
    async with call_service(tmp_path) as harness:
        call = await queue(harness, await harness.create_number())
        there = await callee(harness)
        there.rings()
        await harness.service.drain(0.01)
        assert status_and_reason(await stored(harness, call)) == ("failed", "server_shutdown")
        assert there.sent == [-1]
