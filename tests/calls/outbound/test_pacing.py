"""Pacing: rate and order in which queued calls are placed."""

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


def test_starts_are_spaced_evenly_without_bursts_after_an_idle_time() -> None:
    rate_limit, starts, now = CallRateLimit(per_second=4), [], 100.0
    for _ in range(9):
        now += rate_limit.wait_s(now)
        rate_limit.record_start(now)
        starts.append(now - 100)
    assert starts == [0.25 * n for n in range(9)]
    now += 60
    assert rate_limit.wait_s(now) == 0
    rate_limit.record_start(now)
    assert rate_limit.wait_s(now) == pytest.approx(0.25)


def test_a_timer_that_fires_too_early_does_not_raise_the_rate() -> None:
    rate_limit = CallRateLimit(per_second=10)
    rate_limit.record_start(0.0)
    rate_limit.record_start(0.099)
    assert rate_limit.wait_s(0.099) == pytest.approx(0.101)


async def test_starts_are_in_order_and_a_cancelled_one_delays_no_other() -> None:
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


async def test_calls_are_placed_in_the_order_of_queueing_at_the_rate_of_the_settings(tmp_path: Path) -> None:
    async with call_service(tmp_path, per_second=20) as harness:
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
        assert times[-1] - times[0] >= 4 * 0.05, "five gaps, shortened by a late first check"
