"""Ticks that come too late, reads and commands that fail, and slots that change hands."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from structlog.testing import capture_logs

from media.audio_port import TICK_MS, UNREAD_MS, Samples
from media.engine.call_audio import CallAudio
from media.engine.unheard_rows import READ_MS
from tests.fakes.fake_audio_port import ArrayPort
from tests.media.engine_harness import CollectedRecording, EngineHarness, recorded_call
from tests.media.speech import tone

LATE_MS = 1000
"""A tick may come so late without a loss."""


def unheard_call(harness: EngineHarness, sent: Samples) -> tuple[CallAudio, CollectedRecording]:
    """A call that is only recorded, from its first tick on."""
    call, _, recording = recorded_call(harness, sent)
    call.set_listening(False)
    harness.engine.tick()
    return call, recording


def everything(harness: EngineHarness, call: CallAudio, recording: CollectedRecording) -> Samples:
    """What the recording has at the call's end."""
    harness.engine.remove(call.slot)
    harness.engine.tick()
    assert recording.closed
    return np.concatenate([np.zeros(0, np.int16), *recording.received])


@pytest.mark.parametrize("unread_ms", [0, READ_MS // TICK_MS * TICK_MS])
@pytest.mark.parametrize("listens", [True, False])
def test_a_tick_that_is_a_second_late_loses_nothing(listens: bool, unread_ms: int) -> None:
    harness = EngineHarness()
    sent = tone(6000)
    call, _, recording = recorded_call(harness, sent)
    call.set_listening(listens)
    harness.run(READ_MS * 4 + unread_ms)
    harness.stall(LATE_MS)
    harness.run(READ_MS * 4)
    got = everything(harness, call, recording)
    assert np.array_equal(got, sent[: len(got)])
    assert len(got) == (READ_MS * 8 + unread_ms + LATE_MS) * 8
    assert harness.engine.stats.lost_seconds == 0


def test_what_a_later_tick_loses_is_counted_and_logged_once() -> None:
    harness = EngineHarness()
    pairs = [unheard_call(harness, tone(8000)) for _ in range(2)]
    harness.run(READ_MS * 4)
    with capture_logs() as logs:
        harness.stall(UNREAD_MS + 500)
        harness.run(1000)
    (line,) = [each for each in logs if each["event"] == "media.audio_lost"]
    assert line["calls"] == 2
    assert 500 <= line["longest_ms"] <= 500 + READ_MS
    assert harness.engine.stats.lost_seconds == pytest.approx(2 * line["longest_ms"] / 1000, abs=0.1)
    got = everything(harness, *pairs[0])
    lost = np.flatnonzero(got != tone(8000)[: len(got)])
    assert len(got) == (READ_MS * 4 + UNREAD_MS + 500 + 1000) * 8
    assert (lost[-1] - lost[0] + 1) / 8 == pytest.approx(line["longest_ms"], abs=1)
    assert not got[lost[0] : lost[-1] + 1].any(), "the recording has silence in the place of what is lost"


class FailingPort(ArrayPort):
    """`fails`: the next read raises."""

    fails = False

    def read(
        self,
        heard: Samples,
        said: Samples,
        counts: NDArray[np.int32],
        info: NDArray[np.int64],
        least: NDArray[np.int32],
    ) -> int:
        if self.fails:
            self.fails = False
            raise ValueError("a broken read")
        return super().read(heard, said, counts, info, least)


def test_commands_survive_a_read_that_fails() -> None:
    port = FailingPort()
    harness = EngineHarness(port=port)
    call, recording = unheard_call(harness, tone(4000))
    harness.run(1000)
    harness.engine.remove(call.slot)
    port.fails = True
    with pytest.raises(ValueError, match="a broken read"):
        harness.engine.tick()
    harness.engine.tick()
    assert recording.closed
    assert len(np.concatenate(recording.received)) == 1000 * 8


@pytest.mark.parametrize("is_removed", [True, False], ids=["removed", "not removed yet"])
@pytest.mark.parametrize("listens", [True, False])
def test_the_audio_of_the_slot_s_next_call_is_in_no_other_recording(listens: bool, is_removed: bool) -> None:
    harness = EngineHarness()
    sent = tone(4000)
    call, _, recording = recorded_call(harness, sent)
    call.set_listening(listens)
    harness.run(READ_MS * 4)
    if is_removed:
        harness.engine.remove(call.slot)
    harness.port.close(call.slot)
    harness.port.open(8000, np.full(8000, 77, np.int16))
    harness.stall(READ_MS * 2)
    harness.engine.tick()
    harness.engine.close()
    assert recording.closed
    got = np.concatenate(recording.received)
    assert np.array_equal(got, sent[: len(got)])
