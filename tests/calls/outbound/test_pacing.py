"""The rate and the order in which queued calls are placed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calls.outbound.pacing import CallPacer, CallRateLimit
from config.clock import utc_now
from tests.calls.call_service_harness import call_service, until
from tests.calls.outbound_calls import callee, queue


def test_starts_are_spread_evenly_and_an_idle_time_saves_nothing_up() -> None:
    pace, starts, now = CallRateLimit(per_second=4), [], 100.0
    for _ in range(9):
        now += pace.wait_s(now)
        pace.started(now)
        starts.append(now - 100)
    assert starts == [0.25 * n for n in range(9)]
    now += 60
    assert pace.wait_s(now) == 0
    pace.started(now)
    assert pace.wait_s(now) == pytest.approx(0.25)


def test_a_timer_that_fires_too_early_does_not_quicken_the_pace() -> None:
    pace = CallRateLimit(per_second=10)
    pace.started(0.0)
    pace.started(0.099)
    assert pace.wait_s(0.099) == pytest.approx(0.101)


async def test_starts_are_in_order_and_one_that_is_given_up_delays_no_other() -> None:
    now = 0.0
    turns, order = CallPacer(per_second=20, clock_s=lambda: now), []

    async def take(name: str) -> None:
        await turns.wait()
        order.append(name)

    await take("first")
    given_up, second, third = (asyncio.create_task(take(name)) for name in ("given up", "second", "third"))
    await asyncio.sleep(0)
    now = 0.05
    given_up.cancel()
    await second
    assert order == ["first", "second"]
    third.cancel()


async def test_calls_are_placed_in_the_order_of_their_queueing_at_the_pace_of_the_settings(tmp_path: Path) -> None:
    async with call_service(tmp_path, per_second=50) as harness:
        line = await harness.create_number()
        times: list[float] = []
        dial = harness.callees.dial

        async def timed(*args: Any, **kwargs: Any) -> Any:
            times.append(asyncio.get_running_loop().time())
            return await dial(*args, **kwargs)

        harness.service._dialer = replace(harness.service._dialer, dial=timed)  # type: ignore[type-var]
        for last in range(6):
            call = await queue(harness, line, f"+491701{last}")
            await until(lambda: utc_now() > call.created_at)  # noqa: B023 - two in one millisecond have no order
        await callee(harness, 5)
        assert [each.leg.facts.to_addr.user for each in harness.callees.dialled] == [f"+491701{n}" for n in range(6)]
        assert times[-1] - times[0] >= 4 * 0.02, "five gaps, of which a late first look may take some"
