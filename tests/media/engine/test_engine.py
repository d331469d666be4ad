"""The audio engine on real speech, with a virtual clock and a port on arrays."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from media.audio_port import TICK_MS, Samples
from media.engine.call_audio import AudioFailure, CallAudio, CallEvent, UtterancePlayed
from media.engine.engine import AudioEngine
from media.turn_taking.events import (
    AgentStarted,
    AgentStopped,
    BargeIn,
    PlayoutPaused,
    PlayoutResumed,
    SpeechStarted,
    TurnDropped,
    TurnEnded,
)
from media.turn_taking.settings import TurnSettings
from tests.fakes.fake_audio_port import ArrayPort
from tests.media.engine_harness import (
    NO_MODEL,
    AnsweringEndOfTurnSink,
    EngineHarness,
    FailingSpeechSink,
    Listener,
    RecordingSpeechSink,
    WaitingEndOfTurnSink,
)
from tests.media.speech import silence, speech, tone


def response_gap(text: str, *, lead_ms: int, rate: int = 8000, jitter_ms: int = 0, noise: int = 0) -> float:
    """ms from the last speech sample on the wire to the agent's first, beyond the delay of 100 ms. The agent responds
    with a tone in the tick of the event."""
    harness = EngineHarness()
    words = speech(text, rate)
    caller = np.concatenate([silence(lead_ms, rate), words, silence(1000, rate)])
    if noise:
        caller = caller + np.random.default_rng(7).normal(0, noise, len(caller)).astype(np.int16)
    call, listener, _ = harness.call(caller, rate=rate, jitter_ms=jitter_ms)

    def answer(event: CallEvent) -> None:
        if isinstance(event, TurnEnded):
            call.playout.begin("tone")
            call.playout.write(tone(100, rate))
            call.playout.end()

    listener.react = answer
    harness.run(lead_ms + len(words) * 1000 // rate + 600)
    first = int(np.flatnonzero(harness.port.sent(call.slot))[0]) * 1000 / rate
    assert len(listener.of(TurnEnded)) == 1
    # `first` is where the sound begins in the frame's stream; the frame leaves at that frame's tick.
    end = lead_ms + len(words) * 1000 / rate
    return first + TICK_MS - first % TICK_MS - end - 100


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("text", ["hello there", "yes", "what is your address", "no thank you"])
def test_the_response_is_sent_at_most_40_ms_after_the_endpoint_delay(text: str, rate: int) -> None:
    gaps = [response_gap(text, lead_ms=lead, rate=rate) for lead in (500, 507, 513)]
    assert all(-10 <= gap <= 40 for gap in gaps), gaps


@pytest.mark.parametrize("jitter_ms", [20, 40])
def test_the_jitter_buffer_does_not_delay_the_response(jitter_ms: int) -> None:
    gaps = [response_gap("hello there", lead_ms=lead, jitter_ms=jitter_ms) for lead in (500, 507, 513)]
    assert all(-10 <= gap <= 40 for gap in gaps), gaps


def test_line_noise_does_not_delay_the_response() -> None:
    gaps = [response_gap("what is your address", lead_ms=lead, noise=40) for lead in (1500, 1507, 1513)]
    assert all(-10 <= gap <= 40 for gap in gaps), gaps


def test_gaps_inside_a_sentence_do_not_end_the_turn() -> None:
    harness = EngineHarness()
    sentence = speech("I would like to book a table for two people tomorrow night")
    _, listener, _ = harness.call(np.concatenate([silence(500), sentence, silence(1000)]))
    harness.run(500 + len(sentence) // 8 + 900)
    assert len(listener.of(SpeechStarted)) == len(listener.of(TurnEnded)) == 1


@pytest.mark.parametrize("amplitude", [0, 40, 400])
def test_noise_alone_takes_no_turn(amplitude: int) -> None:
    harness = EngineHarness()
    noise = np.random.default_rng(5).normal(0, amplitude, 8000 * 5).astype(np.int16)
    _, listener, _ = harness.call(noise)
    harness.run(5000)
    assert listener.of(TurnEnded) == []


def test_the_speech_sink_gets_the_turn_with_300_ms_of_preroll_and_nothing_else() -> None:
    harness = EngineHarness()
    words = speech("what is your address")
    caller = np.concatenate([silence(1500), words, silence(1500)])
    _, listener, speech_sink = harness.call(caller)
    harness.run(3400)
    (ended,) = listener.of(TurnEnded)
    begin = caller.tobytes().find(np.trim_zeros(speech_sink.sound, "b").tobytes()) // 2
    assert begin / 8 == pytest.approx(ended.speech_start_ms - harness.start_ms - 300, abs=TICK_MS)
    assert 0 < len(speech_sink.sound) - (1500 * 8 + len(words) - begin) < 150 * 8
    assert speech_sink.discarded == 0


def test_the_speech_sink_is_reset_when_speech_is_dropped() -> None:
    harness = EngineHarness()
    settings = TurnSettings(ultravad_eot_threshold=None, min_turn_duration=2000)
    _, listener, speech_sink = harness.call(np.concatenate([silence(500), speech("yes"), silence(500)]), settings)
    harness.run(1500)
    assert [event.reason for event in listener.of(TurnDropped)] == ["short"]
    assert speech_sink.discarded == 1


def talking_agent(
    harness: EngineHarness, caller: Samples, settings: TurnSettings = NO_MODEL
) -> tuple[CallAudio, Listener]:
    call, listener, _ = harness.call(caller, settings)
    call.playout.begin("a long tone")
    call.playout.write(tone(8000))
    call.playout.end()
    return call, listener


def test_barge_in_silences_the_wire_within_60_ms_of_the_minimum() -> None:
    harness = EngineHarness()
    words = speech("hold on please wait a moment")
    call, listener = talking_agent(harness, np.concatenate([silence(1000), words, silence(1000)]))
    harness.run(1600)
    assert len(listener.of(PlayoutPaused)) == 1
    silent_from = (int(np.flatnonzero(harness.port.sent(call.slot))[-1]) + 1) / 8
    assert 1100 <= silent_from <= 1160


def test_a_barge_in_flushes_playout_and_reports_the_played_samples() -> None:
    harness = EngineHarness()
    call, listener, _ = harness.call(np.concatenate([silence(1000), speech("hold on please"), silence(1000)]))
    utterance = call.playout.begin("a long tone")
    call.playout.write(tone(8000))
    harness.run(1300)
    assert listener.of(PlayoutPaused)
    call.on_transcript()
    harness.run(200)
    assert listener.of(BargeIn)
    heard = call.playout.played(utterance)
    assert heard == len(np.trim_zeros(harness.port.sent(call.slot), "b"))
    assert not call.playout.write(tone(100))
    harness.run(1500)
    assert call.playout.played(utterance) == heard
    assert len(listener.of(TurnEnded)) == 1


def test_a_sound_without_words_only_pauses_the_agent() -> None:
    harness = EngineHarness()
    call, listener = talking_agent(harness, np.concatenate([silence(1000), speech("hmm"), silence(9000)]))
    harness.run(10_000)
    assert len(listener.of(PlayoutPaused)) == len(listener.of(PlayoutResumed)) == 1
    sent = harness.port.sent(call.slot)
    assert np.count_nonzero(sent) == np.count_nonzero(tone(8000))
    assert len(listener.of(AgentStopped)) == 1


def test_an_uninterruptible_message_is_played_to_its_end() -> None:
    harness = EngineHarness()
    call, listener = talking_agent(harness, np.concatenate([silence(1000), speech("hold on please wait a moment")]))
    call.set_uninterruptible(True)
    harness.run(9000)
    assert not listener.of(PlayoutPaused)
    assert np.count_nonzero(harness.port.sent(call.slot)[: 8 * 8100]) == np.count_nonzero(tone(8000))


def test_the_agent_counts_as_audible_from_its_first_sound_to_its_last() -> None:
    harness = EngineHarness()
    call, listener, _ = harness.call(silence(100))
    first = call.playout.begin("one")
    call.playout.expect_more(True)
    call.playout.write(tone(100))
    call.playout.end()
    harness.run(300)  # an under-run in the middle of the answer
    second = call.playout.begin("two")
    call.playout.expect_more(False)
    call.playout.write(tone(100))
    call.playout.end()
    harness.run(300)
    assert [type(event) for event in listener.events] == [AgentStarted, UtterancePlayed, UtterancePlayed, AgentStopped]
    assert [event.utterance for event in listener.of(UtterancePlayed)] == [first, second]


def test_the_end_of_turn_model_is_asked_in_the_tick() -> None:
    harness = EngineHarness()
    call, listener, _ = harness.call(np.concatenate([silence(500), speech("yes"), silence(3000)]), TurnSettings())
    answers = iter([None, 0.0, 0.9])
    call.end_of_turn_sink = AnsweringEndOfTurnSink(answers)
    harness.run(2500)
    (ended,) = listener.of(TurnEnded)
    assert ended.reason == "model"
    assert ended.at_ms - ended.speech_end_ms == pytest.approx(500, abs=TICK_MS)


def test_an_answer_from_another_thread_counts_at_the_next_tick() -> None:
    harness = EngineHarness()
    call, listener, _ = harness.call(np.concatenate([silence(500), speech("yes"), silence(3000)]), TurnSettings())
    end_of_turn_sink = call.end_of_turn_sink = WaitingEndOfTurnSink(answers_at_the_end=False)
    harness.run(2000)
    assert listener.of(TurnEnded) == []
    answering = threading.Thread(target=end_of_turn_sink.waiting[-1], args=(0.9,))
    answering.start()
    answering.join()
    harness.run(TICK_MS)
    assert [ended.reason for ended in listener.of(TurnEnded)] == ["model"]
    assert end_of_turn_sink.discarded == 1


def test_a_late_answer_leaves_the_queries_of_the_next_turn_pending() -> None:
    """The end-of-turn sink answers on the tick thread when it is reset at the end of the turn."""
    harness = EngineHarness()
    words, more = speech("yes please", voice="rms"), speech("no", voice="rms")
    caller = np.concatenate([silence(500), words, silence(450), more, silence(2000)])
    settings = TurnSettings(turn_endpoint_delay=100, fallback_silence_ms=300, speculative_silence_ms=None)
    call, listener, _ = harness.call(caller, settings)
    call.end_of_turn_sink = WaitingEndOfTurnSink(answers_at_the_end=True)
    harness.run(len(caller) // 8)
    first, second = listener.of(TurnEnded)
    assert (first.reason, second.reason) == ("fallback", "model")
    assert second.at_ms - second.speech_end_ms == pytest.approx(100, abs=2 * TICK_MS)


def test_the_end_of_turn_sink_gets_the_audio_of_the_speech_sink() -> None:
    harness = EngineHarness()
    call, _, _ = harness.call(np.concatenate([silence(500), speech("yes"), silence(1000)]), TurnSettings())
    end_of_turn_sink = call.end_of_turn_sink = AnsweringEndOfTurnSink(iter([1.0]))
    speech_sink = call.speech_sink = RecordingSpeechSink()
    harness.run(1800)
    assert len(end_of_turn_sink.fed) > 5 and np.array_equal(np.concatenate(end_of_turn_sink.fed), speech_sink.sound)


def test_a_speech_sink_that_raises_ends_its_own_call_alone() -> None:
    harness = EngineHarness()
    caller = np.concatenate([silence(500), speech("hello there"), silence(1000)])
    broken, broken_listener, _ = harness.call(caller)
    broken.speech_sink = FailingSpeechSink()
    _, listener, _ = harness.call(caller)
    harness.run(2000)
    assert [str(event.error) for event in broken_listener.of(AudioFailure)] == ["the recognizer is gone"]
    assert isinstance(broken_listener.events[-1], AudioFailure)
    assert len(listener.of(TurnEnded)) == 1


def test_a_listener_that_raises_ends_its_own_call_alone() -> None:
    harness = EngineHarness()
    caller = np.concatenate([silence(500), speech("hello there"), silence(1000)])
    _, failing, _ = harness.call(caller)

    def fail(event: CallEvent) -> None:
        if isinstance(event, SpeechStarted):
            raise RuntimeError("the conversation is gone")

    failing.react = fail
    _, listener, _ = harness.call(caller)
    harness.run(2000)
    assert [str(event.error) for event in failing.of(AudioFailure)] == ["the conversation is gone"]
    assert failing.of(TurnEnded) == []
    assert len(listener.of(TurnEnded)) == 1


def test_a_stalled_tick_catches_up_with_all_audio() -> None:
    harness = EngineHarness()
    words = speech("what is your address")
    caller = np.concatenate([silence(500), words, silence(2000)])
    _, listener, speech_sink = harness.call(caller)
    harness.run(600)
    harness.stall(380)
    harness.run(1200)
    (ended,) = listener.of(TurnEnded)
    true_end = harness.start_ms + 500 + len(words) / 8
    assert ended.speech_end_ms == pytest.approx(true_end, abs=40)
    assert np.trim_zeros(speech_sink.sound).tobytes() in caller.tobytes()


def test_a_reused_slot_gives_the_new_call_no_audio_of_the_old() -> None:
    harness = EngineHarness(rows=1)
    first, first_listener, _ = harness.call(np.concatenate([silence(300), speech("hello there")]))
    harness.run(600)
    harness.engine.remove(first.slot)
    harness.port.close(first.slot)
    second, listener, _ = harness.call(silence(100))
    assert second.slot != first.slot
    harness.run(2000)
    assert listener.events == []
    assert first_listener.of(TurnEnded) == []
    assert harness.engine.stats.calls == 1


def test_the_played_samples_are_known_after_the_call_left() -> None:
    harness = EngineHarness()
    call, _, _ = harness.call(silence(100))
    utterance = call.playout.begin("goodbye")
    call.playout.write(tone(1000))
    call.playout.end()
    harness.run(200)
    harness.engine.remove(call.slot)
    harness.port.close(call.slot)
    assert call.playout.played(utterance) == 200 * 8
    assert not call.playout.write(tone(100))


def test_a_rate_without_a_voice_activity_model_is_refused() -> None:
    harness = EngineHarness()
    with pytest.raises(ValueError, match="48000"):
        harness.engine.add(harness.port.open(48000), NO_MODEL, Listener())


def test_utterances_begun_before_the_barge_in_is_dispatched_are_not_sent() -> None:
    harness = EngineHarness()
    call, listener = talking_agent(harness, np.concatenate([silence(1000), speech("hold on please"), silence(1000)]))
    harness.run(1300)
    call.on_transcript()
    for _ in range(200 // TICK_MS):
        harness.port.step()
        harness.engine.tick()  # the event waits in the loop
    stale = call.playout.begin("the next sentence")
    assert stale.flushed and not call.playout.write(tone(500))
    harness.loop.run()
    assert listener.of(BargeIn)
    harness.run(1000)  # the caller's turn is over
    fresh = call.playout.begin("the new answer")
    assert call.playout.write(tone(100))
    harness.run(200)
    assert (call.playout.played(stale), call.playout.played(fresh)) == (0, 800)


def test_the_tick_thread_runs_until_it_is_closed() -> None:
    heard = threading.Event()
    port = ArrayPort()
    engine = AudioEngine(port, lambda work: work())
    listener = Listener()
    listener.react = lambda event: heard.set() if isinstance(event, TurnEnded) else None
    slot = port.open(8000, np.concatenate([silence(500), speech("yes"), silence(500)]))
    engine.add(slot, NO_MODEL, listener)
    engine.start()
    assert heard.wait(30)
    engine.close()
    ticks = engine.stats.ticks
    assert ticks > 0
    assert not any(thread.name == "media-tick" for thread in threading.enumerate())


def test_audio_in_frames_of_30_ms_is_processed_too() -> None:
    """A codec with frames of 30 ms delivers one or two of them per tick."""
    harness = EngineHarness()
    words = speech("what is your address")
    _, listener, speech_sink = harness.call(np.concatenate([silence(510), words, silence(1500)]))
    for ms in [30, 0, 30, 15, 5] * 30:
        harness.port.step(ms)
        harness.engine.tick()
        harness.loop.run()
    (ended,) = listener.of(TurnEnded)
    assert ended.speech_end_ms - harness.start_ms == pytest.approx(510 + len(words) / 8, abs=25)
    assert words.tobytes() in speech_sink.sound.tobytes()
