"""Asserts that the packets of a live call stay evenly spaced, whatever else happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sipcore.dialogs.leg import Leg
from tests.sipcore.loopback_phone import Phone
from tests.sipcore.tones import loudest_hz, tone

BOUND_MS = 10.0
"""Of the 99th percentile of how far two packets' distance is from 20 ms."""
CALM_TICKS = 50


@asynccontextmanager
async def assert_even_audio(phone: Phone) -> AsyncIterator[None]:
    """While the block runs, a call goes on: its audio stays even, and is unchanged afterwards. Unevenness of a busy
    machine that is measured before the block is allowed for."""
    call = await phone.call()
    phone.pump.write(call.placed_media.slot, tone(8000, 700, 25))
    await phone.audio.ticks(10)
    phone.pump.stats(reset=True)
    await phone.audio.ticks(CALM_TICKS)
    calm = phone.pump.stats(reset=True).deviation_ms
    yield
    await phone.audio.ticks(10)
    attacked = phone.pump.stats(reset=True).deviation_ms
    track = phone.audio.follow(call.taken_media.slot)
    await phone.audio.ticks(15)
    assert not call.taken.ended.done()
    assert loudest_hz(track.received, 8000) == pytest.approx(700, abs=20)
    await call.end()
    assert attacked[1] < max(BOUND_MS, 3 * calm[1]), (calm, attacked)
    assert attacked[2] < 1000, "no packet is a second late"


@asynccontextmanager
async def reject_calls(phone: Phone) -> AsyncIterator[None]:
    """Inbound calls during the block are rejected, some of them after an answer."""

    async def turn_away(leg: Leg, answered: bool) -> None:
        if answered:
            answering = asyncio.create_task(leg.answer())
            await asyncio.wait((answering,), timeout=0.05)
            await leg.hangup()
            await asyncio.gather(answering, return_exceptions=True)
        else:
            await leg.reject(486)
        await leg.ended
        leg.release()

    tasks: set[asyncio.Task[None]] = set()
    queue, number = phone.incoming, 0

    async def watch() -> None:
        nonlocal number
        while True:
            number += 1
            tasks.add(asyncio.create_task(turn_away(await queue.get(), number % 10 == 0)))

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
