"""The turn benchmark's callers, scripted models, and evaluation of captured packets."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from bench.capture.rtp_capture import mulaw_peak
from bench.turn.pipecat_latency import mulaw
from bench.turn.scripted_models import TYPICAL_DELAYS, WORDS, DelayedSttStream
from bench.turn.turn_latency import SCENARIOS, SpeechSegment, missed_goals, response_gaps, speech_segments, stop_times
from bench.turn.turn_load import (
    ACTIVITY,
    AGENT_SILENCE_MS,
    ANSWER_TIMEOUT_MS,
    INTERRUPT_AFTER_MS,
    TurnTakingCaller,
)

SOUND = np.full(160, 5000, np.int16)
SILENCE = np.full(160, 8, np.int16)


def caller_after_one_sentence(duration_ms: float = 1000.0) -> TurnTakingCaller:
    """A caller that began to speak at 0 and has spoken one sentence."""
    caller = TurnTakingCaller(0, 0.0)
    caller.start_sentence(0.0, duration_ms)
    return caller


def test_a_caller_waits_for_the_end_of_the_answer_and_speaks_its_share_of_the_time() -> None:
    caller = caller_after_one_sentence()
    caller.on_agent_audio(1500.0, True)
    turn_ms = 1000.0 / ACTIVITY
    assert not caller.should_speak(turn_ms - 1, interrupt=False)
    assert caller.should_speak(turn_ms + 1, interrupt=False)
    caller.on_agent_audio(turn_ms, True)
    assert not caller.should_speak(turn_ms + AGENT_SILENCE_MS - 1, interrupt=False)
    assert caller.should_speak(turn_ms + AGENT_SILENCE_MS, interrupt=False)


def test_a_caller_that_interrupts_waits_for_some_of_the_answer() -> None:
    caller = caller_after_one_sentence()
    for now in range(2000, 2000 + INTERRUPT_AFTER_MS, 20):
        caller.on_agent_audio(float(now), True)
        assert not caller.should_speak(float(now), interrupt=True)
    assert caller.should_speak(2000.0 + INTERRUPT_AFTER_MS, interrupt=True)


def test_a_caller_speaks_again_after_the_answer_timeout() -> None:
    caller = caller_after_one_sentence()
    assert not caller.should_speak(1000.0 + ANSWER_TIMEOUT_MS - 1, interrupt=False)
    assert caller.should_speak(1000.0 + ANSWER_TIMEOUT_MS, interrupt=False)


async def test_a_recognizer_takes_less_time_for_silence_after_a_flush() -> None:
    texts: list[str] = []
    stream, clock = DelayedSttStream(texts.append, TYPICAL_DELAYS), asyncio.get_running_loop().time
    stream.feed(SOUND)
    assert texts == [WORDS]
    began = clock()
    assert await stream.flush() == WORDS
    settled = clock()
    assert settled - began >= TYPICAL_DELAYS.text
    stream.feed(SILENCE)
    finishing = asyncio.ensure_future(stream.end_turn())
    await asyncio.sleep(TYPICAL_DELAYS.settled_text * 4)
    assert finishing.done()
    stream.feed(SOUND)
    began = clock()
    await stream.end_turn()
    assert clock() - began >= TYPICAL_DELAYS.text, "new sound is decoded anew"


def test_response_gaps_are_measured_from_the_end_of_speech_to_the_next_answer_beyond_the_delay() -> None:
    caller = [SpeechSegment(0.0, 1.0), SpeechSegment(5.0, 6.0), SpeechSegment(9.0, 9.5)]
    agent = [SpeechSegment(1.14, 2.0), SpeechSegment(6.2, 7.0)]
    assert response_gaps(caller, agent, 100) == pytest.approx([40.0, 100.0])
    assert response_gaps(caller, agent[1:], 100) == pytest.approx([100.0]), "unanswered speech has no gap"


def test_stop_times_are_measured_from_the_caller_s_first_sound_during_the_agent_s_speech_to_the_agent_s_last() -> None:
    caller = [SpeechSegment(0.0, 1.0), SpeechSegment(3.0, 4.0)]
    agent = [SpeechSegment(1.1, 3.14), SpeechSegment(4.1, 9.0)]
    assert stop_times(caller, agent) == pytest.approx([140.0])


def test_short_silences_belong_to_a_speech_segment() -> None:
    times, peaks = np.array([0.02 * tick for tick in range(100)]), np.zeros(100, np.int32)
    peaks[10:20] = peaks[30:40] = peaks[80:90] = 4000
    assert speech_segments(times, peaks) == [SpeechSegment(times[10], times[39]), SpeechSegment(times[80], times[89])]


def test_missed_goals_names_latency_and_cpu_goals() -> None:
    row = {"what": SCENARIOS[0].what, "calls": 100, "goal_ms": 60.0, "p95_ms": 60, "cpu_goal": 0.5}
    assert missed_goals([{**row, "cpu_percent_per_call": 0.5}]) == []
    assert len(missed_goals([{**row, "cpu_percent_per_call": 0.51}])) == 1
    assert len(missed_goals([{**row, "cpu_percent_per_call": 0.51, "p95_ms": 61}])) == 2


@pytest.mark.parametrize("level", [0, 100, 5000, 32000])
def test_audio_for_pipecat_is_mu_law(level: int) -> None:
    for sign in (1, -1):
        assert mulaw_peak(mulaw(np.full(160, sign * level, np.int16))) == pytest.approx(level, rel=0.04, abs=8)
