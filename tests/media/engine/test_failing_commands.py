"""A command that fails ends its call alone, with a last event; other commands of the same tick, and other calls, go
on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from media.audio_port import TICK_MS, Samples
from media.engine.call_audio import AudioFailure, CallAudio, Command
from media.turn_taking.events import TurnEnded, TurnEvent
from media.turn_taking.turn_detector import TurnDetector
from tests.media.engine_harness import (
    NO_MODEL,
    CollectedRecording,
    EngineHarness,
    Listener,
    RecordingSpeechSink,
    recorded_call,
)
from tests.media.speech import silence, speech


class Fault(RuntimeError):
    """What the tests raise."""


def fails(*_: object, **__: object) -> Any:
    raise Fault("a fault")


class FailingTurnDetector(TurnDetector):
    """Fails whatever a command asks of it."""

    on_transcript = on_end_of_turn = set_uninterruptible = stop = fails


class FailingSink(RecordingSpeechSink):
    """Cannot be fed or reset."""

    feed = reset = fails


class FailingRecording(CollectedRecording):
    """Fails in the methods of these names."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            setattr(self, name, fails)


class FailingMonitor:
    """Fails at its first tick."""

    on_tick = fails


def detects(command: Callable[[CallAudio], object]) -> Callable[[EngineHarness, CallAudio], object]:
    """A command that the turn detector fails to execute."""

    def run(_: EngineHarness, call: CallAudio) -> None:
        call.turn_detector = FailingTurnDetector(NO_MODEL, TICK_MS)
        command(call)

    return run


def stop_listening(_: EngineHarness, call: CallAudio) -> None:
    call.speech_sink = FailingSink()
    call.set_listening(False)


def listen_again(harness: EngineHarness, call: CallAudio) -> None:
    call.set_listening(False)
    harness.engine.tick()
    call.new_turn_detector = fails
    call.set_listening(True)


def listen_to_a_party(_: EngineHarness, call: CallAudio) -> None:
    call.new_turn_detector = fails
    call.set_listening(False)
    call.set_listening(True, bridged=True)


def hold(_: EngineHarness, call: CallAudio) -> None:
    call.turn_detector = FailingTurnDetector(NO_MODEL, TICK_MS)
    call.set_held(True)


def resume(harness: EngineHarness, call: CallAudio) -> None:
    call.set_held(True)
    harness.engine.tick()
    call.new_turn_detector = fails
    call.set_held(False)


def watch(_: EngineHarness, call: CallAudio) -> None:
    call.monitor = FailingMonitor()


def stop_recording(_: EngineHarness, call: CallAudio) -> None:
    call.recording = FailingRecording("close")
    call.stop_recording()


def record_before_a_command(harness: EngineHarness, call: CallAudio) -> None:
    """What has come before the command is lost, and the recording cannot go on after it."""
    call.set_listening(False)
    harness.engine.tick()
    call.recording = FailingRecording("add_silence")
    harness.stall(2000)
    call.set_uninterruptible(True)


def command(_: EngineHarness, call: CallAudio) -> None:
    call._submit(call, fails)


def broken_events(_: EngineHarness, call: CallAudio) -> None:
    def no_events(_: CallAudio) -> Sequence[TurnEvent]:
        return None  # type: ignore[return-value]

    call._submit(call, no_events)


COMMANDS: dict[str, Callable[[EngineHarness, CallAudio], object]] = {
    "words": detects(CallAudio.on_transcript),
    "backchannels": detects(lambda call: call.on_transcript(backchannel=True)),
    "end of turn": detects(lambda call: call.on_end_of_turn(0.0, 0.5)),
    "uninterruptible": detects(lambda call: call.set_uninterruptible(True)),
    "interruptible": detects(lambda call: call.set_uninterruptible(False)),
    "stop listening": stop_listening,
    "listen again": listen_again,
    "listen to a party": listen_to_a_party,
    "hold": hold,
    "resume": resume,
    "monitor": watch,
    "stop recording": stop_recording,
    "read before a command": record_before_a_command,
    "any command": command,
    "no events": broken_events,
}


def note(ran: list[str], what: str) -> Command:
    """A command that tells that it runs."""

    def run(_: CallAudio) -> Sequence[TurnEvent]:
        ran.append(what)
        return ()

    return run


@pytest.fixture(scope="module")
def caller() -> Samples:
    return np.concatenate([silence(500), speech("what is your address"), silence(2500)])


def assert_goes_on(
    harness: EngineHarness, caller: Samples, call: CallAudio, listener: Listener, recording: CollectedRecording
) -> None:
    """The call has heard its caller's turn, and has recorded everything that was not lost for all calls."""
    assert len(listener.of(TurnEnded)) == 1
    assert not listener.of(AudioFailure)
    harness.engine.close()
    assert recording.closed
    sound = recording.sound
    assert len(sound) == len(harness.port.sent(call.slot))
    differs = sound != np.resize(np.concatenate([caller, silence(4000)]), len(sound))
    assert differs.sum() <= harness.engine.stats.lost_seconds * 8000
    assert not sound[differs].any()


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_command_that_fails_ends_its_call_alone(caller: Samples, kind: str, is_first: bool) -> None:
    harness = EngineHarness()
    if is_first:
        broken, events, _ = recorded_call(harness, caller)
        call, listener, recording = recorded_call(harness, caller)
    else:
        call, listener, recording = recorded_call(harness, caller)
        broken, events, _ = recorded_call(harness, caller)
    harness.run(400)
    ran: list[str] = []
    with capture_logs() as logs:
        call._submit(call, note(ran, "before"))
        COMMANDS[kind](harness, broken)
        call._submit(call, note(ran, "after"))
        harness.run(3000)
    assert ran == ["before", "after"]
    assert [each["slot"] for each in logs if each["event"] == "media.call_broken"] == [broken.slot]
    assert len(events.of(AudioFailure)) == 1 and isinstance(events.events[-1], AudioFailure)
    assert_goes_on(harness, caller, call, listener, recording)


@pytest.mark.parametrize("names", [["close"], ["append"], ["append", "close"]], ids=str)
def test_a_removal_that_fails_leaves_the_other_calls(caller: Samples, names: list[str]) -> None:
    harness = EngineHarness()
    broken, _, _ = recorded_call(harness, caller)
    call, listener, recording = recorded_call(harness, caller)
    removed, _, last = recorded_call(harness, caller)
    harness.run(100)
    broken.recording = FailingRecording(*names)
    with capture_logs() as logs:
        harness.engine.remove(broken.slot)
        harness.engine.remove(removed.slot)
        harness.run(3300)
    assert last.closed
    assert {each["slot"] for each in logs if each["event"] == "media.call_broken"} == {broken.slot}
    assert_goes_on(harness, caller, call, listener, recording)


@pytest.mark.parametrize("replaces", [True, False])
def test_a_call_that_cannot_begin_leaves_the_other_calls(caller: Samples, replaces: bool) -> None:
    """`replaces`: the slot's last call has not been removed, and cannot be."""
    harness = EngineHarness()
    call, listener, recording = recorded_call(harness, caller)
    slot = harness.port.open(8000, caller)
    if replaces:
        harness.engine.add(slot, NO_MODEL, Listener(), FailingRecording("append", "close"))
        harness.run(40)
    events = Listener()
    harness.engine.add(slot, NO_MODEL, events, FailingRecording("begin"))
    harness.run(3400)
    assert [type(each) for each in events.events] == [AudioFailure]
    assert_goes_on(harness, caller, call, listener, recording)


def test_the_slot_s_next_call_survives_the_failure_of_the_last_one(caller: Samples) -> None:
    harness = EngineHarness()
    last, events, _ = recorded_call(harness, silence(1000))
    events.react = fails
    last._submit(last, lambda _: [TurnEnded(0.0, 0.0, 0.0, "delay")])
    harness.engine.tick()
    harness.engine.remove(last.slot)
    harness.port.close(last.slot)
    call, listener, recording = recorded_call(harness, caller)
    harness.run(3400)
    assert events.of(TurnEnded), "the listener of the last call has failed"
    assert_goes_on(harness, caller, call, listener, recording)
