"""Speech recognition of one of two connected parties."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from calls.conversation.speech_input import final_transcript, word_starts_ms
from calls.session.transfer.guarded_speech import GuardedSpeechSink, GuardedSpeechToText
from media.engine.call_audio import AudioFailure, CallAudio, CallEvent
from media.turn_taking.events import SpeechStarted, TurnDropped, TurnEnded
from models.protocols import SpeechToTextStream
from storage.calls.calls import Speaker


@dataclass(frozen=True)
class Utterance:
    """Words of a party. `speech_start_ms`: their beginning on the arrival clock; `ended` None: the end of the call cut
    them."""

    speaker: Speaker
    text: str
    speech_start_ms: float
    ended: TurnEnded | None
    word_starts_ms: Sequence[float] = ()
    """Empty if the recognizer does not know them."""


class PartyRecognizer:
    """`attach` listens to a party: the turns of turn taking cut its speech into utterances. `on_utterance` gets those
    with words, each as soon as it is recognized. `on_error` gets every error, on the event loop; errors do not end the
    audio of the call. What begins or ends while `is_heard` returns False is discarded: the other party does not hear
    it."""

    def __init__(
        self,
        speaker: Speaker,
        audio: CallAudio,
        stt: SpeechToTextStream,
        *,
        is_heard: Callable[[], bool],
        on_utterance: Callable[[Utterance], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self.recognizing: Final[set[asyncio.Task[None]]] = set()
        """The utterances that are being recognized."""
        self._speaker = speaker
        self._audio = audio
        self._is_heard = is_heard
        self._on_utterance = on_utterance
        self._on_error = on_error
        loop = asyncio.get_running_loop()

        def report(error: Exception) -> None:
            loop.call_soon_threadsafe(on_error, error)

        self._stt = GuardedSpeechToText(stt, report)
        self._sink = GuardedSpeechSink(stt, report)  # `detach` closes it before the stream
        self._speech_start_ms: float | None = None  # of the open utterance
        self._began_heard = False

    def attach(self) -> None:
        """Listen from now on."""
        audio = self._audio
        audio.set_listening(False)  # ends an open turn with the agent
        audio.listener, audio.speech_sink, audio.end_of_turn_sink = self, self._sink, None
        audio.set_listening(True, bridged=True)

    def detach(self) -> None:
        """Listen no longer. What was fed before is kept for `end_utterance`. Idempotent."""
        self._sink.close()
        self._audio.set_listening(False)
        self._audio.speech_sink = None

    def end_utterance(self) -> None:
        """Recognize what the party was saying, because the call ends."""
        if self._speech_start_ms is not None:
            self._recognize(None)

    def close(self) -> None:
        """Free the recognizer's stream; utterances that are being recognized are dropped. Idempotent."""
        self.detach()
        for task in self.recognizing:
            task.cancel()
        self._stt.close()

    def on_media_events(self, events: Sequence[CallEvent]) -> None:
        """Follow the turns of the party; for the audio engine."""
        for event in events:
            match event:
                case SpeechStarted(speech_start_ms=start_ms):
                    self._speech_start_ms, self._began_heard = start_ms, self._is_heard()
                case TurnDropped():
                    self._speech_start_ms = None
                case TurnEnded() if self._speech_start_ms is not None:
                    self._recognize(event)
                case AudioFailure(error=error):
                    self._on_error(error)
                case _:
                    pass

    def _recognize(self, ended: TurnEnded | None) -> None:
        """Begin to recognize the open utterance, before what is said next is fed."""
        assert self._speech_start_ms is not None
        heard = self._began_heard and self._is_heard()
        task = asyncio.create_task(self._report(self._speech_start_ms, ended, heard=heard))
        self._speech_start_ms = None
        self.recognizing.add(task)
        task.add_done_callback(self.recognizing.discard)

    async def _report(self, speech_start_ms: float, ended: TurnEnded | None, *, heard: bool) -> None:
        text = await final_transcript(self._stt)
        if text and heard:
            word_starts = word_starts_ms(self._stt, speech_start_ms)
            self._on_utterance(Utterance(self._speaker, text, speech_start_ms, ended, word_starts))
