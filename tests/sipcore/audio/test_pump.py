"""The pump and its queued audio, by its counters and the samples of its ticks; both legs are in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest
import pytest_asyncio

from media.audio_port import (
    FLAG_LIVE,
    FLAG_PAUSED,
    INFO_ARRIVAL_NS,
    INFO_COLUMNS,
    INFO_FLAGS,
    INFO_QUEUED,
    INFO_SENT,
    INFO_SLOT,
    TICK_MS,
    UNREAD_MS,
    Samples,
    row_of,
)
from sipcore.audio.pump import Pump
from tests.sipcore.loopback_phone import Call, Phone
from tests.sipcore.tones import tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

RATE = 8000
FRAME = 160
FADE = 40
"""5 ms."""


@pytest_asyncio.fixture(loop_scope="module")
async def call(phone: Phone) -> AsyncIterator[Call]:
    """A call of two ticks."""
    call = await phone.call()
    await phone.audio.ticks(2)
    yield call
    await call.end()


def steps(seconds: float) -> Samples:
    """Samples that equal their index: 1000, 1001, ... without a zero."""
    return (1000 + np.arange(int(seconds * RATE)) % 20000).astype(np.int16)


async def test_written_audio_is_sent_complete_and_in_order(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    track = phone.audio.follow(slot)
    written = steps(0.5)
    assert phone.pump.write(slot, written) == len(written)
    await phone.audio.ticks(30)
    at = int(np.flatnonzero(track.sent)[0]) - 1  # the ramp makes the first sample 0
    assert np.array_equal(track.sent[at + FADE : at + len(written)], written[FADE:])
    assert not track.sent[at + len(written) + FADE :].any()
    assert phone.pump.sent_position(slot) == phone.pump.written_position(slot)


async def test_flush_returns_the_sent_position_and_stops_the_audio(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    track = phone.audio.follow(slot)
    begin = phone.pump.written_position(slot)
    written = steps(2.0)
    phone.pump.write(slot, written)
    await phone.audio.ticks(17)
    sent = phone.pump.flush(slot) - begin
    await phone.audio.ticks(10)
    assert 0 < sent < len(written)
    at = int(np.flatnonzero(track.sent)[0]) - 1
    assert np.array_equal(track.sent[at + FADE : at + sent], written[FADE:sent])
    assert not track.sent[at + sent + FADE :].any()
    faded = written[sent : sent + FADE] * (1 - np.arange(FADE) / FADE)
    assert np.abs(track.sent[at + sent : at + sent + FADE] - faded).max() <= 1, "the next samples, fading out"
    assert phone.pump.sent_position(slot) == phone.pump.written_position(slot) == begin + len(written)


async def test_audio_written_after_a_flush_is_sent(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    phone.pump.write(slot, steps(1.0))
    await phone.audio.ticks(5)
    phone.pump.flush(slot)
    track = phone.audio.follow(slot)
    phone.pump.write(slot, np.full(800, 7000, np.int16))
    await phone.audio.ticks(10)
    assert int((track.sent == 7000).sum()) in range(800 - FADE, 800 + 2)


async def test_audio_replaced_in_the_same_tick_does_not_click(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    track = phone.audio.follow(slot)
    for level in (15000, -15000, 15000, -15000):
        phone.pump.flush(slot)
        phone.pump.write(slot, np.full(RATE, level, np.int16))
        await phone.audio.ticks(4)
    assert np.abs(np.diff(track.sent.astype(int))).max() <= 2 * 15000 / FADE + 20
    assert track.sent.min() == -15000


async def test_pause_and_resume_lose_no_sample(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    track = phone.audio.follow(slot)
    begin = phone.pump.sent_position(slot)
    written = steps(0.6)
    phone.pump.write(slot, written)
    await phone.audio.ticks(8)
    phone.pump.pause(slot, True)
    await phone.audio.ticks(2)
    stopped_at = phone.pump.sent_position(slot) - begin
    await phone.audio.ticks(6)
    assert phone.pump.sent_position(slot) - begin == stopped_at, "the clock does not advance"
    assert track.info[-1][INFO_FLAGS] & FLAG_PAUSED
    assert not track.sent[-4 * FRAME :].any()
    phone.pump.pause(slot, False)
    await phone.audio.ticks(30)
    assert phone.pump.sent_position(slot) - begin == len(written)
    rest = written[stopped_at:]
    end = int(np.flatnonzero(track.sent == rest[-1])[0]) + 1
    assert np.array_equal(track.sent[end - len(rest) + FADE : end], rest[FADE:]), "it continues at the paused sample"


def clicks(sound: Samples, hz: float) -> float:
    """The largest residue of a sine's difference equation. A linear fade of 5 ms leaves twice its step per sample, a
    hard edge far more."""
    x = sound.astype(float)
    return float(np.abs(x[2:] - 2 * np.cos(2 * np.pi * hz / RATE) * x[1:-1] + x[:-2]).max())


@pytest.mark.parametrize("hz", [300, 1000, 2500])
@pytest.mark.parametrize("stop", ["pause", "flush"])
async def test_stopped_speech_fades_out(phone: Phone, call: Call, stop: str, hz: int) -> None:
    slot, level = call.taken_media.slot, 10000
    track = phone.audio.follow(slot)
    for _ in range(4):  # wherever in its wave the tone is met
        phone.pump.write(slot, tone(RATE, hz, 0.5, level))
        await phone.audio.ticks(4)
        if stop == "pause":
            phone.pump.pause(slot, True)
            await phone.audio.ticks(3)
            phone.pump.pause(slot, False)
            await phone.audio.ticks(2)
        phone.pump.flush(slot)
        await phone.audio.ticks(3)
    assert np.abs(track.sent).max() > 0.99 * level
    assert not track.sent[-2 * FRAME :].any()
    assert clicks(track.sent, hz) <= 2 * level / FADE + 4


async def test_speech_stops_within_one_tick(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    phone.pump.write(slot, tone(RATE, 500, 2.0, 10000))
    await phone.audio.ticks(5)
    track = phone.audio.follow(slot)
    phone.pump.pause(slot, True)
    await phone.audio.ticks(3)
    sounding = np.flatnonzero(track.sent)
    assert len(sounding) <= FRAME + FADE, "the frame before the flush, and the fade"


async def test_flush_ends_a_pause(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    phone.pump.write(slot, steps(1.0))
    phone.pump.pause(slot, True)
    await phone.audio.ticks(2)
    phone.pump.flush(slot)
    phone.pump.write(slot, steps(0.1))
    await phone.audio.ticks(10)
    assert phone.pump.sent_position(slot) == phone.pump.written_position(slot)


async def test_under_runs_are_counted_only_while_more_is_to_come(phone: Phone, call: Call) -> None:
    slot, pump = call.taken_media.slot, phone.pump
    await phone.audio.ticks(5)
    assert pump.slot_stats(slot).under_runs == 0
    pump.expect_more(slot, True)
    await phone.audio.ticks(5)
    counted = pump.slot_stats(slot).under_runs
    assert counted in range(4, 8)
    pump.pause(slot, True)
    await phone.audio.ticks(1)
    paused = pump.slot_stats(slot).under_runs
    await phone.audio.ticks(5)
    assert pump.slot_stats(slot).under_runs == paused, "a pause is no under-run"
    pump.pause(slot, False)
    pump.expect_more(slot, False)
    await phone.audio.ticks(1)
    closed = pump.slot_stats(slot).under_runs
    await phone.audio.ticks(5)
    assert pump.slot_stats(slot).under_runs == closed


async def test_an_under_run_gets_comfort_noise_and_silence_is_silent(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    silent = phone.audio.follow(slot)
    await phone.audio.ticks(5)
    assert not silent.sent.any()
    phone.pump.expect_more(slot, True)
    await phone.audio.ticks(1)
    noisy = phone.audio.follow(slot)
    await phone.audio.ticks(10)
    assert np.abs(noisy.sent.astype(int)).max() <= 8
    assert 3 < noisy.sent.astype(float).std() < 6
    assert len(np.unique(noisy.sent)) > 10


@pytest.mark.parametrize("level", [20000, -20000, 32767])
async def test_edges_between_audio_and_silence_do_not_click(phone: Phone, call: Call, level: int) -> None:
    slot = call.taken_media.slot
    track = phone.audio.follow(slot)
    phone.pump.expect_more(slot, True)
    phone.pump.write(slot, np.full(10 * FRAME + 50, level, np.int16))
    await phone.audio.ticks(15)
    largest_step = np.abs(np.diff(track.sent.astype(int))).max()
    assert largest_step <= abs(level) / FADE + 20
    assert (track.sent == level).sum() > 9 * FRAME


async def test_unread_audio_is_dropped_after_1400_ms_oldest_first(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    track = phone.audio.follow(slot)
    await phone.audio.ticks(2)
    await phone.audio.ticks(80, read=False)
    phone.audio.read()
    assert track.counts[-1] == UNREAD_MS * FRAME // TICK_MS
    assert track.positions[-1] > track.positions[-2] + track.counts[-2], "the gap shows in the position"
    assert phone.pump.slot_stats(slot).over_runs > 0
    assert track.info[-1][INFO_SLOT] == slot


async def test_a_slot_with_less_audio_than_is_asked_for_keeps_it(phone: Phone, call: Call) -> None:
    """The other slot is read whole each time; the clock of the sent audio goes on in both."""
    slot, other = call.taken_media.slot, call.placed_media.slot
    phone.audio.least[row_of(slot)] = 5 * FRAME
    track, other_track = phone.audio.follow(slot), phone.audio.follow(other)
    await phone.audio.ticks(22)
    phone.audio.least[row_of(slot)] = 0
    phone.audio.read()
    assert len(track.counts) <= 5 and min(track.counts[:-1]) >= 5 * FRAME
    assert max(other_track.counts) < 5 * FRAME
    ends = np.array(track.positions) + np.array(track.counts)
    assert list(ends[:-1]) == track.positions[1:], "no sample is lost"


async def test_a_wait_for_ticks_ends_with_the_last_of_them_or_after_wake(phone: Phone) -> None:
    async def waited(wake: bool) -> int:
        """Ticks of a wait for 20, of which the last may be on its way."""
        await phone.audio.tick(read=False)
        before = phone.pump.stats().ticks
        waiting = asyncio.create_task(asyncio.to_thread(phone.pump.wait, 5000, 20))
        if wake:
            phone.pump.wake()
        assert await waiting
        return phone.pump.stats().ticks - before

    assert 20 <= await waited(wake=False) < 30
    assert await waited(wake=True) < 10
    assert await waited(wake=False) >= 20


async def test_positions_count_every_sample_since_the_slot_opened(phone: Phone, call: Call) -> None:
    track = phone.audio.follow(call.taken_media.slot)
    await phone.audio.ticks(20)
    ends = np.array(track.positions) + np.array(track.counts)
    assert list(ends[:-1]) == track.positions[1:]
    assert ends[-1] == phone.pump.slot_stats(call.taken_media.slot).frames_sent * FRAME


async def test_info_columns_have_queue_clock_arrival_and_state(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    track = phone.audio.follow(slot)
    await phone.audio.ticks(2)
    phone.pump.write(slot, steps(1.0))
    await phone.audio.ticks(10)
    before, after = track.info[-2], track.info[-1]
    assert after[INFO_QUEUED] + after[INFO_SENT] == phone.pump.written_position(slot)
    assert after[INFO_SENT] - before[INFO_SENT] == track.counts[-1]
    elapsed_ms = (after[INFO_ARRIVAL_NS] - before[INFO_ARRIVAL_NS]) / 1e6
    assert elapsed_ms == pytest.approx(track.counts[-1] / 8, abs=15)
    assert after[INFO_FLAGS] == FLAG_LIVE


async def test_ring_holds_30_s_and_reports_what_did_not_fit(phone: Phone, call: Call) -> None:
    slot = call.taken_media.slot
    assert phone.pump.write(slot, np.zeros(29 * RATE, np.int16)) == 29 * RATE
    fitted = phone.pump.write(slot, np.zeros(5 * RATE, np.int16))
    assert RATE <= fitted < 2 * RATE
    phone.pump.flush(slot)
    assert phone.pump.write(slot, np.zeros(30 * RATE, np.int16)) == 30 * RATE


def every_operation(pump: Pump, slot: int) -> list[Callable[[], object]]:
    return [
        lambda: pump.rate(slot),
        lambda: pump.write(slot, np.zeros(10, np.int16)),
        lambda: pump.expect_more(slot, True),
        lambda: pump.written_position(slot),
        lambda: pump.sent_position(slot),
        lambda: pump.flush(slot),
        lambda: pump.pause(slot, True),
        lambda: pump.set_background(slot, None, 0.0, 0.0),
        lambda: pump.slot_stats(slot),
        lambda: pump.release(slot),
    ]


async def test_handle_is_invalid_after_release_even_if_its_row_is_reused(phone: Phone) -> None:
    await phone.audio.ticks(2)  # the rows of the last call are free by then
    first = await phone.call()
    stale = first.taken_media.slot, first.placed_media.slot
    await first.end()
    await phone.audio.ticks(2)
    second = await phone.call()
    assert {row_of(slot) for slot in stale} == {row_of(second.taken_media.slot), row_of(second.placed_media.slot)}
    for slot in (*stale, -1, 1 << 40, 39):
        for operation in every_operation(phone.pump, slot):
            with pytest.raises(KeyError):
                operation()
    assert phone.pump.write(second.taken_media.slot, steps(0.1)) == RATE // 10
    await second.end()


async def test_slots_are_released_when_calls_end(phone: Phone) -> None:
    for _ in range(5):
        call = await phone.call()
        await phone.audio.ticks(1)
        await call.end()
    await phone.audio.ticks(3)
    assert phone.pump.stats().calls == 0
    assert phone.endpoint.live_legs == 0
    assert phone.audio.read() <= 6, "the lowest free row is used first"


async def test_a_slot_released_in_a_live_call_stays_closed(phone: Phone) -> None:
    call = await phone.call()
    slot = call.taken_media.slot
    call.taken.release()
    await phone.audio.ticks(3)
    with pytest.raises(KeyError):
        phone.pump.rate(slot)
    call.taken.release()
    await call.end()


async def test_read_rejects_arrays_that_are_too_small(phone: Phone, call: Call) -> None:
    rows = 1
    rx_audio = np.zeros((rows, 1000), np.int16)
    with pytest.raises(ValueError, match="fewer rows"):
        phone.pump.read(rx_audio, rx_audio.copy(), np.zeros(rows, np.int32), np.zeros((rows, INFO_COLUMNS), np.int64))
    reader = phone.audio
    with pytest.raises(ValueError, match="fewer rows"):
        phone.pump.read(*reader.arrays, least=reader.least[:1])


async def test_audio_does_not_wait_for_the_gil(phone: Phone, call: Call) -> None:
    """A thread holds the GIL all the time; every tick sends its frame, and queued audio never runs out."""
    slot = call.taken_media.slot
    phone.pump.write(slot, tone(RATE, 400, 10.0))
    phone.pump.expect_more(slot, True)
    stop = threading.Event()
    spinning = threading.Thread(target=spin, args=(stop,))
    spinning.start()
    before_ticks, before = phone.pump.stats().ticks, phone.pump.slot_stats(slot)
    try:
        while phone.pump.stats().ticks < before_ticks + 150:
            await phone.audio.tick()
    finally:
        after_ticks, after = phone.pump.stats().ticks, phone.pump.slot_stats(slot)
        stop.set()
        spinning.join()
    assert abs((after.frames_sent - before.frames_sent) - (after_ticks - before_ticks)) <= 1
    assert after.under_runs == 0
    phone.pump.expect_more(slot, False)


def spin(stop: threading.Event) -> None:
    count = 0
    while not stop.is_set():
        count += 1
