"""The audio of one call: the interface between the audio engine and the conversation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from media.audio_port import Samples
from media.playout import Playout, Utterance
from media.recording import Recording
from media.turn_taking.events import TurnEvent
from media.turn_taking.turn_detector import TurnDetector


class EndOfTurnSink(Protocol):
    """End-of-turn detection of a call. Called from the tick thread; must return at once."""

    def feed(self, samples: Samples) -> None:
        """The next mono int16 samples of the turn, at the slot's rate. The sink may keep the array, but not change
        it."""

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Ask whether the turn is over. `answer` is called once, at once or later, from any thread, with a probability
        0..1, or None without enough audio or text."""

    def reset(self) -> None:
        """The turn is over: discard what was fed."""


class SpeechSink(Protocol):
    """Speech recognition of a call, fed while a turn is open. Called from the tick thread; must return at once."""

    def feed(self, samples: Samples) -> None:
        """The next mono int16 samples of the turn, at the slot's rate. The sink may keep the array, but not change
        it."""

    def reset(self) -> None:
        """Discard what was fed since the last turn's end."""


class AudioMonitor(Protocol):
    """Gets all audio that is received in a call. Called from the tick thread; must return at once."""

    def on_tick(self, now_ms: float, samples: Samples, end_ms: float) -> None:
        """At every tick: the present, the mono int16 samples received since the last tick at the slot's rate (before
        echo cancellation, may be none), and the arrival of their end. Both times are on the clock of `at_ms`."""


class AudioTap(Protocol):
    """Gets a copy of both sides of a call. Called from the tick thread; must return at once."""

    def on_audio(self, rx_audio: Samples, tx_audio: Samples) -> None:
        """The mono int16 samples received (before echo cancellation) and sent since the last tick, equally many, at the
        slot's rate. The tap may keep the arrays, but not change them."""

    def on_end(self) -> None:
        """The call has no audio any more. May be called more than once, from any thread."""


@dataclass(frozen=True, slots=True)
class UtterancePlayed:
    """An utterance has been played to its end (a flushed one never is)."""

    at_ms: float
    utterance: Utterance


@dataclass(frozen=True, slots=True)
class DtmfDetected:
    """In-band DTMF in the caller's audio: 0-9, *, #, A-D."""

    at_ms: float
    digit: str


@dataclass(frozen=True, slots=True)
class AudioFailure:
    """An error of this call in the tick thread; the engine has removed the call. The last event of a call."""

    at_ms: float
    error: Exception


CallEvent = TurnEvent | UtterancePlayed | DtmfDetected | AudioFailure


class CallEventListener(Protocol):
    """The receiver of a call's events. Called on the event loop, once for all events of a call in a tick."""

    def on_media_events(self, events: Sequence[CallEvent]) -> None:
        """Handle the events, in the order in which they happened."""


Command = Callable[["CallAudio"], Sequence[TurnEvent]]
"""Work of a call for the tick thread."""


class CallAudio:
    """A call in the engine. The conversation sets `speech_sink`, `end_of_turn_sink` and `monitor` at any time, and uses
    `playout`, `on_transcript`, `set_uninterruptible`, `set_listening` and `set_held` from any thread; commands take
    effect at the next tick."""

    def __init__(
        self,
        slot: int,
        rate: int,
        new_turn_detector: Callable[[bool], TurnDetector],
        playout: Playout,
        listener: CallEventListener,
        recording: Recording | None,
        submit: Callable[[CallAudio, Command], None],
        set_listening: Callable[[CallAudio, bool, bool], None],
        set_held: Callable[[CallAudio, bool], None],
    ) -> None:
        self.slot = slot
        self.rate = rate
        self.new_turn_detector = new_turn_detector
        """Takes whether the caller is bridged, that is, connected with another party."""
        self.turn_detector = new_turn_detector(False)
        """Belongs to the tick thread."""
        self.listening = True
        """Voice activity and turns are detected. Belongs to the tick thread, as do the next three."""
        self.shall_listen = True
        """The latest `set_listening`; it has no effect while the call is held."""
        self.bridged = False
        self.held = False
        self.playout = playout
        self.listener = listener
        self.recording = recording
        self.speech_sink: SpeechSink | None = None
        self.end_of_turn_sink: EndOfTurnSink | None = None
        self._monitor: AudioMonitor | None = None
        self.taps: tuple[AudioTap, ...] = ()
        """Those who listen in. Changed on the event loop."""
        self.is_over = False
        """The engine has removed the call."""
        self._submit = submit
        self._set_listening = set_listening
        self._set_held = set_held

    @property
    def monitor(self) -> AudioMonitor | None:
        """Gets all received audio from the next tick on."""
        return self._monitor

    @monitor.setter
    def monitor(self, monitor: AudioMonitor | None) -> None:
        self._monitor = monitor
        self._submit(self, _nothing)  # a call in which nobody listens is not read in each tick

    def add_tap(self, tap: AudioTap) -> None:
        """Give the tap all audio from the next tick on, until the call is removed."""
        self.taps = (*self.taps, tap)
        self._submit(self, _nothing)
        if self.is_over:
            tap.on_end()

    def remove_tap(self, tap: AudioTap) -> None:
        """Give the tap nothing any more. Idempotent."""
        self.taps = tuple(each for each in self.taps if each is not tap)
        self._submit(self, _nothing)

    def end_taps(self) -> None:
        """The engine has removed the call."""
        self.is_over = True
        for tap in self.taps:
            tap.on_end()

    @property
    def caller_speaking(self) -> bool:
        """True if the caller speaks at this moment, whether or not the speech takes a turn."""
        return self.turn_detector.caller_speaking

    def on_transcript(self, backchannel: bool = False) -> None:
        """The recognizer has words for the open speech; `backchannel`: backchannels alone ("mm-hmm")."""
        self._submit(self, _backchannel if backchannel else _transcript)

    def on_end_of_turn(self, asked_ms: float, p: float | None) -> None:
        """The end-of-turn model's answer to the query of `asked_ms`."""
        self._submit(self, lambda call: call.turn_detector.on_end_of_turn(float("-inf"), p, asked_ms))

    def set_uninterruptible(self, on: bool) -> None:
        """Set whether playout from now on cannot be interrupted."""
        self._submit(self, _uninterruptible if on else _interruptible)

    def stop_recording(self) -> None:
        """Close the recording; the call goes on without."""
        self._submit(self, _stop_recording)

    def set_listening(self, on: bool, *, bridged: bool = False) -> None:
        """Detect voice activity, turns and DTMF tones, as from the start, or only record and play: the caller talks
        with another party. An open turn is dropped; what was said meanwhile is never heard by the sinks. `bridged`: the
        voice of another party is sent, which is never interrupted, and whose echo is not the caller's speech; silence
        alone ends turns (`TurnSettings.of_connected_parties`)."""
        self._set_listening(self, on, bridged)

    def set_held(self, on: bool) -> None:
        """Begin or end a hold by our side. Meanwhile the agent's speech waits where it was, and nothing is heard: an
        open turn ends with what was said before."""
        self.playout.hold(on)
        self._set_held(self, on)


def _nothing(call: CallAudio) -> Sequence[TurnEvent]:
    return ()


def _stop_recording(call: CallAudio) -> Sequence[TurnEvent]:
    recording, call.recording = call.recording, None
    if recording is not None:
        recording.close()
    return ()


def _transcript(call: CallAudio) -> Sequence[TurnEvent]:
    return call.turn_detector.on_transcript(float("-inf"))


def _backchannel(call: CallAudio) -> Sequence[TurnEvent]:
    return call.turn_detector.on_transcript(float("-inf"), backchannel=True)


def _uninterruptible(call: CallAudio) -> Sequence[TurnEvent]:
    return call.turn_detector.set_uninterruptible(True)


def _interruptible(call: CallAudio) -> Sequence[TurnEvent]:
    return call.turn_detector.set_uninterruptible(False)
