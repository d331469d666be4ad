"""The positions of a slot's audio advance with the clock, whatever its stream does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import numpy as np
import pytest
import pytest_asyncio

from media.audio_port import INFO_LIVE_END, INFO_ORIGIN_NS, INFO_POSITION, INFO_TICK_NS, TICK_MS, row_of
from sipcore.settings import EndpointSettings
from tests.sipcore.live_call import LiveCall
from tests.sipcore.loopback_phone import Phone, Track
from tests.sipcore.raw.raw_phone import RawPhone

pytestmark = pytest.mark.asyncio(loop_scope="module")
SETTINGS = EndpointSettings(codecs=("PCMU", "PCMA"), max_calls=4)
MAX_LATE_MS = 100
"""A late pump catches up."""


@pytest_asyncio.fixture(loop_scope="module")
async def raw(phone: Phone) -> AsyncIterator[RawPhone]:
    async with RawPhone(phone.target) as raw:
        yield raw


def lags_ms(track: Track) -> list[float]:
    """For each read, how far the slot's audio was behind the tick that delivered it."""
    ends = np.array(track.positions) + np.array(track.counts)
    info = np.array(track.info)
    lags: list[float] = ((info[:, INFO_TICK_NS] - info[:, INFO_ORIGIN_NS]) / 1e6 - ends / 8).tolist()
    return lags


@pytest.mark.parametrize("change", ["inactive", "sendonly", "recvonly", "PCMA", "ptime"])
async def test_a_slot_keeps_its_time_through_a_change_of_its_stream(phone: Phone, raw: RawPhone, change: str) -> None:
    call = await LiveCall.make(phone, raw)
    track = phone.audio.follow(call.media.slot)
    await phone.audio.ticks(5)
    offers = {"PCMA": raw.offer("8", "rtpmap:8 PCMA/8000"), "ptime": raw.offer("0", "ptime:60", "maxptime:60")}
    for offer in (offers.get(change, raw.offer("0", change)), raw.offer("0")) * 2:
        assert (await call.send_offer(offer)).status == 200
        await phone.audio.ticks(10)
    await call.end()
    lags = lags_ms(track)
    assert -1 <= min(lags) <= max(lags) <= MAX_LATE_MS
    assert lags[-1] == pytest.approx(lags[0], abs=TICK_MS)
    ends = np.array(track.positions) + np.array(track.counts)
    assert list(ends[:-1]) == track.positions[1:]


async def test_a_slot_whose_stream_has_ended_is_silent_and_says_where_its_live_audio_ends(
    phone: Phone, raw: RawPhone
) -> None:
    call = await LiveCall.make(phone, raw)
    live = phone.audio.follow(call.media.slot)
    await phone.audio.ticks(5)
    assert live.info[-1][INFO_LIVE_END] >= live.positions[-1] + live.counts[-1]
    await raw.bye(call.dialog)
    await asyncio.wait_for(call.leg.ended, 5)
    await phone.audio.ticks(2)
    ended = phone.audio.follow(call.media.slot)
    await phone.audio.ticks(10)
    call.leg.release()
    assert not ended.received.any() and not ended.sent.any()
    assert len({int(info[INFO_LIVE_END]) for info in ended.info}) == 1
    assert ended.info[0][INFO_LIVE_END] <= ended.positions[0]
    lags = lags_ms(ended)
    assert -1 <= min(lags) <= max(lags) <= MAX_LATE_MS


async def test_a_slot_whose_audio_is_not_read_for_long_has_gone_on(phone: Phone, raw: RawPhone) -> None:
    call = await LiveCall.make(phone, raw)
    await phone.audio.ticks(120, read=False)
    *_, counts, info = phone.audio.arrays
    phone.audio.read()
    row = row_of(call.media.slot)
    end_ms = (info[row, INFO_POSITION] + counts[row]) / 8 + info[row, INFO_ORIGIN_NS] / 1e6
    assert end_ms == pytest.approx(time.monotonic_ns() / 1e6, abs=MAX_LATE_MS)
    await call.end()
