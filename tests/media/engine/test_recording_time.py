"""Sample n of a recording is what was received n samples after its time 0, whatever was lost or left out before."""

from __future__ import annotations

import numpy as np
import pytest

from media.audio_port import TICK_MS, UNREAD_MS, Samples
from media.engine.call_audio import CallAudio
from tests.media.engine_harness import NO_MODEL, CollectedRecording, EngineHarness, Listener, recorded_call

CALLER: Samples = (1 + np.arange(80 * 8000) % 15000).astype(np.int16)
"""Each sample tells its place."""


def recorded(harness: EngineHarness, call: CallAudio, recording: CollectedRecording) -> Samples:
    """What the recording has at the call's end, in which nothing is out of its place."""
    harness.engine.remove(call.slot)
    harness.engine.tick()
    assert recording.closed
    sound = recording.sound
    misplaced = np.flatnonzero((sound != 0) & (sound != CALLER[: len(sound)]))
    assert not len(misplaced), f"from {misplaced[0] / 8} ms on"
    return sound


def silent_ms(sound: Samples) -> float:
    return float((sound == 0).sum()) / 8


@pytest.mark.parametrize("listens", [True, False])
def test_lost_audio_is_silence_of_its_length(listens: bool) -> None:
    harness = EngineHarness()
    call, _, recording = recorded_call(harness, CALLER)
    call.set_listening(listens)
    for late_ms in (UNREAD_MS + 2000, UNREAD_MS + TICK_MS, UNREAD_MS + 20_000):
        harness.run(1380)
        harness.stall(late_ms)
        harness.run(740)
    sound = recorded(harness, call, recording)
    assert len(sound) == len(harness.port.sent(call.slot))
    assert silent_ms(sound) == pytest.approx(harness.engine.stats.lost_seconds * 1000, abs=1)
    assert silent_ms(sound) >= 22_000


@pytest.mark.parametrize("without_stream_ms", [TICK_MS, 400, 1500, 30_000])
@pytest.mark.parametrize("listens", [True, False])
def test_time_without_a_stream_is_silence(listens: bool, without_stream_ms: int) -> None:
    harness = EngineHarness()
    call, _, recording = recorded_call(harness, CALLER)
    call.set_listening(listens)
    for run_ms in (1140, 900):
        harness.run(run_ms)
        harness.port.attach_stream(call.slot, False)
        harness.run(without_stream_ms)
        harness.port.attach_stream(call.slot, True)
    harness.run(700)
    sound = recorded(harness, call, recording)
    assert len(sound) == len(harness.port.sent(call.slot))
    assert silent_ms(sound) == 2 * without_stream_ms


def test_audio_lost_around_a_pause_of_the_stream_is_silence() -> None:
    harness = EngineHarness()
    call, _, recording = recorded_call(harness, CALLER)
    harness.run(700)
    harness.stall(2000)
    harness.port.attach_stream(call.slot, False)
    harness.stall(UNREAD_MS + 3000)
    harness.port.attach_stream(call.slot, True)
    harness.stall(UNREAD_MS - 500)
    harness.run(340)
    sound = recorded(harness, call, recording)
    assert len(sound) == len(harness.port.sent(call.slot))
    assert silent_ms(sound) == 5000 + UNREAD_MS


def test_a_hold_by_our_side_is_recorded() -> None:
    harness = EngineHarness()
    call, _, recording = recorded_call(harness, CALLER)
    for on in (True, False) * 3:
        harness.run(900)
        call.set_held(on)
    sound = recorded(harness, call, recording)
    assert np.array_equal(sound, CALLER[: 5400 * 8])


@pytest.mark.parametrize("listens", [True, False])
def test_a_recording_ends_with_its_last_audio(listens: bool) -> None:
    harness = EngineHarness()
    call, _, recording = recorded_call(harness, CALLER)
    call.set_listening(listens)
    harness.run(1140)
    harness.port.attach_stream(call.slot, False)
    harness.run(3000)
    assert np.array_equal(recorded(harness, call, recording), CALLER[: 1140 * 8])


@pytest.mark.parametrize("seconds", [0, 3])
def test_a_recording_begins_at_its_time_0_whenever_the_call_comes_to_the_engine(seconds: int) -> None:
    harness = EngineHarness()
    slot, recording = harness.port.open(8000, CALLER), CollectedRecording(harness.start_ms + 500)
    harness.stall(500 + seconds * 1000)
    call = harness.engine.add(slot, NO_MODEL, Listener(), recording)
    harness.stall(60)
    harness.engine.tick()
    harness.run(1000)
    harness.engine.remove(call.slot)
    harness.engine.tick()
    begin = (seconds * 1000 + 60) * 8
    assert not recording.sound[:begin].any()
    assert np.array_equal(recording.sound[begin:], CALLER[begin + 500 * 8 :][: 1000 * 8])


def test_the_slot_s_next_call_has_a_time_0_of_its_own() -> None:
    harness = EngineHarness()
    call, _, recording = recorded_call(harness, CALLER, harness.start_ms)
    harness.run(1500)
    later = CollectedRecording(harness.port.now_ms - 240)
    again = harness.engine.add(call.slot, NO_MODEL, Listener(), later)
    harness.run(800)
    harness.engine.remove(again.slot)
    harness.engine.tick()
    assert recording.closed
    assert np.array_equal(recording.sound, CALLER[: 1500 * 8])
    begin = (240 + TICK_MS) * 8
    assert not later.sound[:begin].any()
    assert np.array_equal(later.sound[begin:], CALLER[(1500 + TICK_MS) * 8 : 2300 * 8])
