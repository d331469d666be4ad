"""The agent on a loudspeaker: it must not interrupt itself, and must hear the caller through its own echo."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
from structlog.testing import capture_logs

from media.audio_port import TICK_MS, Samples
from media.echo.speex import FRAME_MS, AdaptiveFilter, SpeexLibrary
from media.engine.call_audio import AudioFailure, CallAudio
from media.recording import RecordingResult, RecordingWriter
from media.turn_taking.events import BargeIn, PlayoutPaused, SpeechStarted, TurnDropped, TurnEnded
from models.stt.pocketsphinx.speech_to_text import PocketsphinxSpeechToText
from tests.media.echo.echo_room import EchoPort, Room
from tests.media.engine_harness import NO_MODEL, EngineHarness, Listener, RecordingSpeechSink
from tests.media.speech import silence, speech
from tests.media.test_recording import recorded

LEVELS = (-10, -20, -30)
DELAYS = (50, 150, 300, 400)
MINIMUM_MS = 100
"""The default of minInterruptionDuration."""
SENTENCES = (
    "Good morning and thank you for calling the clinic on the hill.",
    "I can help you with appointments, prescriptions and questions about your bill.",
    "Our doctors are here from eight in the morning until six at night, Monday to Friday.",
    "If you would like to book a visit, please tell me your name and the day that suits you best.",
    "You can also ask me where we are, how to get here by bus, and what to bring with you.",
)


def monologue(rate: int, sentences: int = len(SENTENCES)) -> Samples:
    """About four seconds per sentence."""
    return np.concatenate(
        [piece for text in SENTENCES[:sentences] for piece in (speech(text, rate), silence(150, rate))]
    )


class EchoCalls:
    """Calls with echo paths on one engine."""

    def __init__(self, rows: int = 1) -> None:
        self.port = EchoPort(rows)
        self.studio = EngineHarness(port=self.port)
        self.start_ms = self.studio.start_ms

    def call(self, room: Room, caller: Samples | None = None) -> tuple[CallAudio, Listener, RecordingSpeechSink]:
        made = self.studio.call(silence(0) if caller is None else caller, rate=room.rate)
        self.port.rooms[made[0].slot] = room
        return made

    def run(self, ms: int) -> None:
        self.studio.run(ms)


def say(call: CallAudio, samples: Samples) -> None:
    call.playout.begin("text")
    call.playout.write(samples)
    call.playout.end()


def counted(listener: Listener) -> list[str]:
    """The caller's turns and interruptions by the events."""
    kinds = (SpeechStarted, PlayoutPaused, BargeIn, TurnEnded, TurnDropped)
    return [type(event).__name__ for event in listener.events if isinstance(event, kinds)]


@pytest.mark.parametrize("rate", [8000, 16000])
def test_the_agent_never_interrupts_itself(rate: int) -> None:
    lines = list(product(LEVELS, DELAYS if rate == 8000 else DELAYS[::3]))
    phones = EchoCalls(len(lines))
    calls = [phones.call(Room(rate, level, delay)) for level, delay in lines]
    words = monologue(rate)
    assert len(words) >= 20 * rate
    phones.run(500)
    for call, _, _ in calls:
        say(call, words)
    phones.run(len(words) * 1000 // rate + 1000)
    heard = {line: counted(listener) for line, (_, listener, _) in zip(lines, calls, strict=True)}
    assert heard == {line: [] for line in lines}
    assert all(not speech_sink.fed for _, _, speech_sink in calls)


def test_without_the_correlation_the_agent_would_interrupt_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The echo of these rooms is speech to the voice activity model: the test above would fail without the guard."""
    monkeypatch.setattr("media.echo.echo_guard.EchoGuard.is_echo_possible", lambda *_: False)
    phones = EchoCalls()
    call, listener, _ = phones.call(Room(8000, -20, 150))
    say(call, monologue(8000, 1))
    phones.run(3000)
    assert listener.of(PlayoutPaused)


@pytest.mark.parametrize("room", [Room(8000, -15, 250, noise=60.0), Room(8000, -10, 350, 6.0, 0.4, distortion=3.0)])
def test_noise_and_a_distorting_loudspeaker_do_not_interrupt_the_agent(room: Room) -> None:
    phones = EchoCalls()
    call, listener, _ = phones.call(room)
    phones.run(500)
    say(call, monologue(8000))
    phones.run(20_000)
    assert counted(listener) == []


@pytest.mark.parametrize("rate", [8000, 16000])
def test_a_caller_interrupts_through_the_echo(rate: int) -> None:
    lines = list(product(LEVELS, (50, 300), (1200, 4000), ("rms", "awb")))
    phones = EchoCalls(len(lines))
    calls = []
    for level, delay, lead, voice in lines:
        words = speech("can I speak to a person", rate, voice)
        calls.append(phones.call(Room(rate, level, delay), np.concatenate([silence(lead, rate), words])))
    for call, _, _ in calls:
        say(call, monologue(rate, 3))
    phones.run(5000)
    for (level, delay, lead, voice), (_, listener, _) in zip(lines, calls, strict=True):
        first = listener.of(PlayoutPaused)[0].at_ms - phones.start_ms - lead
        assert MINIMUM_MS - 60 <= first <= MINIMUM_MS + 150, (level, delay, lead, voice)


def test_without_echo_the_barge_in_is_not_delayed() -> None:
    phones = EchoCalls()
    caller = np.concatenate([silence(1000), speech("no thank you", voice="rms")])
    call, listener, speech_sink = phones.call(Room(8000, -200, 50), caller)
    say(call, monologue(8000, 1))
    phones.run(1800)
    assert 1100 <= listener.of(PlayoutPaused)[0].at_ms - phones.start_ms <= 1160
    assert speech_sink.fed


def recognized(sound: Samples) -> str:
    recognizer = PocketsphinxSpeechToText(threads=1, decoders=1)  # outside a loop: it reads its model from the disk

    async def ask() -> str:
        stream = recognizer.open(rate=8000, language="en", on_words=lambda _: None)
        stream.feed(sound)
        text = await stream.end_turn()
        stream.close()
        return text

    try:
        return asyncio.run(ask())
    finally:
        recognizer.close()


@pytest.mark.parametrize("level", [-10, -20])
def test_words_over_the_echo_are_recognized(level: int) -> None:
    """The agent is uninterruptible here: it speaks over the caller to the end."""
    words = speech("please give me the telephone number of the hospital", 8000, "rms")
    caller = np.concatenate([silence(3000), words, silence(1500)])
    heard = []
    for room in (Room(8000, -200, 150), Room(8000, level, 150)):
        phones = EchoCalls()
        call, _, speech_sink = phones.call(room, caller)
        call.set_uninterruptible(True)
        say(call, monologue(8000))
        phones.run(3000 + len(words) // 8 + 600)
        heard.append(set(recognized(speech_sink.sound).split()))
    alone, through = heard
    assert len(alone) >= 5
    assert len(alone & through) >= 0.7 * len(alone), (alone, through)


def test_audio_is_unchanged_while_the_agent_is_silent() -> None:
    phones = EchoCalls()
    answer = speech("what is your address", 8000, "rms")
    said = speech(SENTENCES[0], 8000)
    lead = len(said) // 8 + 1500
    call, listener, speech_sink = phones.call(Room(8000, -10, 150, noise=0.0), np.concatenate([silence(lead), answer]))
    say(call, said)
    phones.run(lead - 20)
    assert counted(listener) == []
    del phones.port.rooms[call.slot]  # what follows comes to us as it is
    phones.run(len(answer) // 8 + 1000)
    assert len(listener.of(TurnEnded)) == 1
    assert answer.tobytes() in speech_sink.sound.tobytes()


@pytest.mark.parametrize("text", ["can I speak to a person", "no thank you that is wrong"])
def test_neither_the_echo_nor_its_tail_moves_the_end_of_the_turn(text: str) -> None:
    lines = list(product((-10, -20), (150, 400), ("rms", "awb")))
    phones = EchoCalls(len(lines))
    calls = []
    for level, delay, voice in lines:
        caller = np.concatenate([silence(3000), speech(text, 8000, voice)])
        calls.append((*phones.call(Room(8000, level, delay), caller), len(caller) // 8))
    for call, _, _, _ in calls:
        say(call, monologue(8000, 3))
    phones.run(3300)
    for call, _, _, _ in calls:
        call.on_transcript()
    phones.run(3000)
    for line, (_, listener, _, end) in zip(lines, calls, strict=True):
        assert len(listener.of(BargeIn)) == 1, line
        (ended,) = listener.of(TurnEnded)
        assert ended.at_ms - phones.start_ms - end == pytest.approx(100, abs=40), line


def test_a_change_of_the_delay_starts_a_new_adaptation() -> None:
    phones = EchoCalls()
    call, listener, _ = phones.call(Room(8000, -10, 150))
    say(call, monologue(8000))
    with capture_logs() as logs:
        phones.run(6000)
        phones.port.rooms[call.slot].delay_ms = 300
        phones.run(14_000)
    found = [entry["lag_ms"] for entry in logs if entry["event"] == "echo.found"]
    assert found == [pytest.approx(150, abs=8), pytest.approx(300, abs=8)]
    assert not listener.of(PlayoutPaused)
    assert not listener.of(BargeIn)


def test_the_echo_in_frames_of_30_ms_is_cancelled_too() -> None:
    phones = EchoCalls()
    call, listener, _ = phones.call(Room(8000, -10, 150))
    say(call, monologue(8000, 2))
    for ms in [30, 0, 30, 15, 5] * 90:
        phones.port.step(ms)
        phones.studio.engine.tick()
        phones.studio.loop.run()
    assert counted(listener) == []


def test_the_recording_has_the_audio_as_received(tmp_path: Path) -> None:
    ends: SimpleQueue[RecordingResult] = SimpleQueue()
    writer = RecordingWriter()
    writer.start()
    port = EchoPort(1)
    harness = EngineHarness(port=port)
    path = tmp_path / "call.wav"
    slot = port.open(8000)
    port.rooms[slot] = Room(8000, -10, 150)
    recording = writer.open(path, rate=8000, call_id="c", on_closed=ends.put)
    call = harness.engine.add(slot, NO_MODEL, Listener(), recording)
    harness.engine.tick()
    came = []
    say(call, monologue(8000, 1))
    with capture_logs() as logs:
        for _ in range(3000 // TICK_MS):
            port.step()
            came.append(port.newest(slot))
            harness.engine.tick()
    harness.engine.remove(slot)
    harness.engine.tick()
    ends.get(timeout=10)
    writer.close()
    assert [entry["event"] for entry in logs if entry["event"].startswith("echo")] == ["echo.found"]
    assert np.array_equal(recorded(path)[1][:, 0], np.concatenate(came))


class FailingFilter:
    """Works for a second, then raises."""

    def __init__(self) -> None:
        self.frames = 0

    def cancel(self, heard: Samples, said: Samples) -> Samples:
        self.frames += 1
        if self.frames > 3 * 30 + 1000 // FRAME_MS:
            raise OSError("the library is gone")
        return heard

    def close(self) -> None:
        pass


def test_an_error_of_the_library_ends_no_call_and_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(self: SpeexLibrary, rate: int) -> AdaptiveFilter:
        return FailingFilter()

    monkeypatch.setattr(SpeexLibrary, "create_filter", failing)
    phones = EchoCalls(2)
    said, answer = monologue(8000, 2), speech("what is your address", 8000, "rms")
    caller = np.concatenate([silence(len(said) // 8 + 1500), answer])
    calls = [phones.call(Room(8000, -10, delay), caller) for delay in (50, 300)]
    for call, _, _ in calls:
        say(call, said)
    with capture_logs() as logs:
        phones.run(len(caller) // 8 + 1000)
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["echo.library_failed"]
    for _, listener, _ in calls:
        assert not listener.of(AudioFailure)
        assert len(listener.of(TurnEnded)) == 1


def test_without_the_library_calls_continue_with_their_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("media.echo.speex.SONAME", "libspeexdsp.so.none")
    with capture_logs() as logs:
        phones = EchoCalls()
    assert [entry["event"] for entry in logs] == ["echo.library_missing"]
    call, listener, _ = phones.call(Room(8000, -20, 150), np.concatenate([silence(4500), speech("hello there")]))
    say(call, monologue(8000, 1))
    phones.run(6500)
    assert not listener.of(PlayoutPaused)
    assert not listener.of(AudioFailure)
    assert len(listener.of(TurnEnded)) == 1
