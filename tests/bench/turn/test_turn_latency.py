"""What the turn's bench measures by: its callers, its scripted models, and what it reads off the wire."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from bench.capture.rtp_capture import mulaw_peak
from bench.turn.callers import ACTIVITY, GIVE_UP_MS, OVER_MS, PATIENCE_MS, TurnTakingCaller
from bench.turn.pipecat_bench import mulaw
from bench.turn.scripted_models import REALISTIC, WORDS, DelayedSttStream
from bench.turn.turn_latency import SCENES, SpeechSegment, misses, response_gaps, speech_segments, stop_times

SOUND = np.full(160, 5000, np.int16)
SILENCE = np.full(160, 8, np.int16)


def spoken_once(line_ms: float = 1000.0) -> TurnTakingCaller:
    """A caller that began at 0 and has spoken one line."""
    talker = TurnTakingCaller(0, 0.0)
    talker.says(0.0, line_ms)
    return talker


def test_a_caller_waits_for_the_end_of_the_answer_and_speaks_its_share_of_the_time() -> None:
    talker = spoken_once()
    talker.hears(1500.0, True)
    full = 1000.0 / ACTIVITY
    assert not talker.due(full - 1, over=False)
    assert talker.due(full + 1, over=False)
    talker.hears(full, True)
    assert not talker.due(full + PATIENCE_MS - 1, over=False)
    assert talker.due(full + PATIENCE_MS, over=False)


def test_a_caller_that_interrupts_waits_for_some_of_the_answer() -> None:
    talker = spoken_once()
    for now in range(2000, 2000 + OVER_MS, 20):
        talker.hears(float(now), True)
        assert not talker.due(float(now), over=True)
    assert talker.due(2000.0 + OVER_MS, over=True)


def test_a_caller_that_nobody_answers_goes_on_after_a_while() -> None:
    talker = spoken_once()
    assert not talker.due(1000.0 + GIVE_UP_MS - 1, over=False)
    assert talker.due(1000.0 + GIVE_UP_MS, over=False)


async def test_a_recognizer_that_was_asked_before_has_only_silence_left_to_decode() -> None:
    heard: list[str] = []
    stream, clock = DelayedSttStream(heard.append, REALISTIC), asyncio.get_running_loop().time
    stream.feed(SOUND)
    assert heard == [WORDS]
    began = clock()
    assert await stream.flush() == WORDS
    settled = clock()
    assert settled - began >= REALISTIC.text
    stream.feed(SILENCE)
    finishing = asyncio.ensure_future(stream.end_turn())
    await asyncio.sleep(REALISTIC.settled_text * 4)
    assert finishing.done()
    stream.feed(SOUND)
    began = clock()
    await stream.end_turn()
    assert clock() - began >= REALISTIC.text, "new sound is decoded anew"


def test_gaps_are_told_from_the_end_of_speech_to_the_next_answer_beyond_the_delay() -> None:
    caller = [SpeechSegment(0.0, 1.0), SpeechSegment(5.0, 6.0), SpeechSegment(9.0, 9.5)]
    agent = [SpeechSegment(1.14, 2.0), SpeechSegment(6.2, 7.0)]
    assert response_gaps(caller, agent, 100) == pytest.approx([40.0, 100.0])
    assert response_gaps(caller, agent[1:], 100) == pytest.approx([100.0]), "an answer that never came is none"


def test_a_stop_is_told_from_the_caller_s_first_sound_over_the_agent_to_the_agent_s_last() -> None:
    caller = [SpeechSegment(0.0, 1.0), SpeechSegment(3.0, 4.0)]
    agent = [SpeechSegment(1.1, 3.14), SpeechSegment(4.1, 9.0)]
    assert stop_times(caller, agent) == pytest.approx([140.0])


def test_short_silences_belong_to_the_speech() -> None:
    times, peaks = np.array([0.02 * tick for tick in range(100)]), np.zeros(100, np.int32)
    peaks[10:20] = peaks[30:40] = peaks[80:90] = 4000
    assert speech_segments(times, peaks) == [SpeechSegment(times[10], times[39]), SpeechSegment(times[80], times[89])]


def test_a_row_says_itself_that_it_misses_its_goal() -> None:
    row = {"what": SCENES[0].what, "calls": 100, "goal_ms": 60.0, "p95_ms": 60, "cpu_goal": 0.5}
    assert misses([{**row, "cpu_percent_per_call": 0.5}]) == []
    assert len(misses([{**row, "cpu_percent_per_call": 0.51}])) == 1
    assert len(misses([{**row, "cpu_percent_per_call": 0.51, "p95_ms": 61}])) == 2


@pytest.mark.parametrize("level", [0, 100, 5000, 32000])
def test_what_is_sent_to_the_peer_is_mu_law(level: int) -> None:
    for sign in (1, -1):
        assert mulaw_peak(mulaw(np.full(160, sign * level, np.int16))) == pytest.approx(level, rel=0.04, abs=8)
