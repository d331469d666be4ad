"""The audio of one call, as the audio engine and the conversation share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from media.audio_port import Samples
from media.playout import Playout, Utterance
from media.recording import Recording
from media.turns.events import TurnEvent
from media.turns.turn_detector import TurnDetector


class EndOfTurnSink(Protocol):
    """The end-of-turn detection of a call. Called from the tick thread; must return at once."""

    def feed(self, samples: Samples) -> None:
        """The next mono int16 samples of the turn, at the slot's rate: to keep, not to change."""

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Ask whether the turn is over. `answer` is called once, at once or later, from any thread, with a probability
        0..1, or None when there is nothing to judge by."""

    def reset(self) -> None:
        """The turn is over: forget what was fed."""


class SpeechSink(Protocol):
    """The speech recognition of a call, fed while a turn is open. Called from the tick thread; must return at once."""

    def feed(self, samples: Samples) -> None:
        """The next mono int16 samples of the turn, at the slot's rate: to keep, not to change."""

    def reset(self) -> None:
        """Forget what was fed since the last turn's end."""


@dataclass(frozen=True, slots=True)
class UtterancePlayed:
    """An utterance has been played to its end (one that was flushed never is)."""

    at_ms: float
    utterance: Utterance


@dataclass(frozen=True, slots=True)
class DtmfDetected:
    """In-band DTMF in the caller's audio: 0-9, *, #, A-D."""

    at_ms: float
    digit: str


@dataclass(frozen=True, slots=True)
class AudioFailure:
    """Code of this call raised in the tick thread; the engine has removed the call. The last event of a call."""

    at_ms: float
    error: Exception


CallEvent = TurnEvent | UtterancePlayed | DtmfDetected | AudioFailure


class CallEventListener(Protocol):
    """The conversation's side. Called on the event loop, once for all events of a call in a tick."""

    def media_events(self, events: Sequence[CallEvent]) -> None:
        """Take the events, in the order in which they happened."""


Command = Callable[["CallAudio"], Sequence[TurnEvent]]
"""Work for the tick thread on behalf of a call."""


class CallAudio:
    """A call in the engine. The conversation sets `speech_sink` and `end_of_turn_sink`, and uses `playout`,
    `on_transcript` and `set_uninterruptible`; any thread may. What it asks of the tick thread takes effect at the next
    tick."""

    def __init__(
        self,
        slot: int,
        rate: int,
        turn_detector: TurnDetector,
        playout: Playout,
        listener: CallEventListener,
        recording: Recording | None,
        order: Callable[[CallAudio, Command], None],
    ) -> None:
        self.slot = slot
        self.rate = rate
        self.turn_detector = turn_detector
        """Belongs to the tick thread."""
        self.playout = playout
        self.listener = listener
        self.recording = recording
        self.speech_sink: SpeechSink | None = None
        self.end_of_turn_sink: EndOfTurnSink | None = None
        self._submit = order

    @property
    def caller_speaking(self) -> bool:
        """True if the caller speaks at this moment, whether or not it takes a turn."""
        return self.turn_detector.caller_speaking

    def on_transcript(self, backchannel: bool = False) -> None:
        """The recognizer has words for the speech that is open; `backchannel`: they only say that the caller listens
        ("mm-hmm")."""
        self._submit(self, _backchannel if backchannel else _transcript)

    def on_end_of_turn(self, asked_ms: float, p: float | None) -> None:
        """The end-of-turn model's answer to the query of that moment."""
        self._submit(self, lambda call: call.turn_detector.on_end_of_turn(float("-inf"), p, asked_ms))

    def set_uninterruptible(self, on: bool) -> None:
        """What plays from now on cannot be interrupted (or can again)."""
        self._submit(self, _uninterruptible if on else _interruptible)


def _transcript(call: CallAudio) -> Sequence[TurnEvent]:
    return call.turn_detector.on_transcript(float("-inf"))


def _backchannel(call: CallAudio) -> Sequence[TurnEvent]:
    return call.turn_detector.on_transcript(float("-inf"), backchannel=True)


def _uninterruptible(call: CallAudio) -> Sequence[TurnEvent]:
    return call.turn_detector.set_uninterruptible(True)


def _interruptible(call: CallAudio) -> Sequence[TurnEvent]:
    return call.turn_detector.set_uninterruptible(False)
