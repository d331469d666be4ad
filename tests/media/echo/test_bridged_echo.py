"""A caller who talks with another party: that voice may come back as an echo, and is not the caller's speech."""

from __future__ import annotations

import numpy as np
import pytest

from media.audio_port import TICK_MS, Samples
from media.engine.call_audio import CallAudio
from media.turn_taking.events import AgentStarted, BargeIn, PlayoutPaused, TurnEnded
from tests.fakes.fake_audio_port import ArrayPort
from tests.media.echo.echo_room import EchoPort, Room
from tests.media.engine_harness import EngineHarness, Listener
from tests.media.speech import silence, speech

OTHER_PARTY = "Our doctors are here from eight in the morning until six at night, Monday to Friday."


class BridgedPort(EchoPort):
    """A port whose callers hear `voices`, each by its slot."""

    def __init__(self) -> None:
        super().__init__(1)
        self.voices: dict[int, Samples] = {}

    def step(self, ms: int = TICK_MS) -> None:
        ArrayPort.step(self, ms)
        for slot, voice in self.voices.items():
            line, room = self._slots[slot], self.rooms[slot]
            count = len(line.said[-1])
            line.said[-1] = np.resize(voice[line.position - count :], count).astype(np.int16)
            line.heard[-1] = room.receive(line.said[-1], line.heard[-1])


def bridged_call(room: Room, *, voice: Samples, caller: Samples, bridged: bool) -> tuple[EngineHarness, Listener]:
    """A call whose caller hears the `voice` of another party and says `caller`."""
    port = BridgedPort()
    harness = EngineHarness(port=port)
    call: CallAudio
    call, listener, _ = harness.call(caller, rate=room.rate)
    port.rooms[call.slot], port.voices[call.slot] = room, np.concatenate([voice, silence(60_000, room.rate)])
    call.set_listening(False)
    call.set_listening(True, bridged=bridged)
    return harness, listener


def talk(room: Room, *, bridged: bool) -> tuple[int, int]:
    """The other party speaks, then the caller. Returns the numbers of the caller's turns before and after that."""
    voice = np.concatenate([silence(500), speech(OTHER_PARTY), speech(OTHER_PARTY, voice="rms")])
    voice_ms = len(voice) // 8
    caller = np.concatenate([silence(voice_ms + 1500), speech("thank you very much"), silence(3000)])
    harness, listener = bridged_call(room, voice=voice, caller=caller, bridged=bridged)
    harness.run(voice_ms + 1500)
    before = len(listener.of(TurnEnded))
    harness.run(4000)
    for kind in (AgentStarted, PlayoutPaused, BargeIn):
        assert listener.of(kind) == []
    return before, len(listener.of(TurnEnded)) - before


@pytest.mark.parametrize(("level", "delay"), [(-20, 60), (-20, 250), (-30, 120)])
def test_only_the_callers_own_words_are_its_turns(level: int, delay: int) -> None:
    assert talk(Room(8000, level, delay), bridged=True) == (0, 1)


def test_without_the_guard_the_other_partys_words_would_be_the_callers() -> None:
    before, after = talk(Room(8000, -20, 120), bridged=False)
    assert before > 0
    assert after == 1


def test_a_caller_without_an_echo_is_heard_while_the_other_party_speaks() -> None:
    voice = np.concatenate([silence(500), speech(OTHER_PARTY)])
    caller = np.concatenate([silence(1500), speech("can i speak to a person", voice="rms"), silence(4000)])
    harness, listener = bridged_call(Room(8000, -200, 50), voice=voice, caller=caller, bridged=True)
    harness.run(6000)
    (turn,) = listener.of(TurnEnded)
    assert turn.speech_start_ms - harness.start_ms == pytest.approx(1500, abs=100)
