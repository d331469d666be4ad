"""Speech recognition of a party without errors: a fault of the recognizer ends recognition alone, not the call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from calls.session.conversation_runner import SpeechStreams
from config.errors import ModelError
from media.audio_port import Samples
from media.engine.call_audio import EndOfTurnSink, SpeechSink
from models.protocols import EndOfTurnStream, SpeechToTextStream, TimesWords

TEXT_TIMEOUT_S: Final = 5.0
"""A recognizer that takes longer for the words of a turn has failed, seconds."""

OnError = Callable[[Exception], object]

log = structlog.get_logger()


def log_recognizer_error(call_id: str, error: Exception) -> None:
    """Log that the words of a transfer's target are no longer recognized. Any thread."""
    log.warning("transfer.target_not_recognized", call_id=call_id, error=repr(error), exc_info=error)


class GuardedSpeechSink:
    """A `SpeechSink` that passes errors on, which would else end the audio of its call: its recording. After an error,
    and after `close`, it does nothing. Tick thread, except `close`."""

    def __init__(self, sink: SpeechSink, on_error: OnError) -> None:
        self._sink = sink
        self._on_error = on_error
        self._open = True

    def feed(self, samples: Samples) -> None:
        """The next samples of the utterance."""
        self._guard(lambda: self._sink.feed(samples))

    def reset(self) -> None:
        """Discard what was fed."""
        self._guard(self._sink.reset)

    def close(self) -> None:
        """Nothing is passed to the sink any more, and nothing is discarded."""
        self._open = False

    def _guard(self, work: Callable[[], None]) -> bool:
        """Returns True if the work was done."""
        if self._open:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - whatever the model raises
                self._fail(error)
        return self._open

    def _fail(self, error: Exception) -> None:
        if self._open:
            self._open = False
            self._on_error(error)

    def _free(self, close: Callable[[], None]) -> None:
        try:
            close()
        except Exception as error:  # noqa: BLE001 - whatever the model raises
            self._on_error(error)


class GuardedEndOfTurnSink(GuardedSpeechSink):
    """The same for an `EndOfTurnSink`."""

    def __init__(self, sink: EndOfTurnSink, on_error: OnError) -> None:
        super().__init__(sink, on_error)
        self._end_of_turn = sink

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Ask whether the utterance is over."""
        if not self._guard(lambda: self._end_of_turn.ask(answer)):
            answer(None)


class GuardedSpeechToText(GuardedSpeechSink):
    """A `SpeechToTextStream` that recognizes nothing after its first error."""

    def __init__(self, stream: SpeechToTextStream, on_error: OnError) -> None:
        super().__init__(stream, on_error)
        self._stream = stream

    def partial(self) -> str:
        """See `SpeechToTextStream`."""
        if self._open:
            try:
                return self._stream.partial()
            except Exception as error:  # noqa: BLE001 - whatever the model raises
                self._fail(error)
        return ""

    async def flush(self) -> str:
        """See `SpeechToTextStream`."""
        return await self._text(self._stream.flush)

    async def end_turn(self) -> str:
        """See `SpeechToTextStream`."""
        return await self._text(self._stream.end_turn)

    def word_starts_s(self) -> Sequence[float]:
        """See `TimesWords`."""
        return self._stream.word_starts_s() if isinstance(self._stream, TimesWords) else ()

    def close(self) -> None:
        """See `SpeechToTextStream`."""
        super().close()
        self._free(self._stream.close)

    async def _text(self, recognize: Callable[[], Awaitable[str]]) -> str:
        if not self._open:
            return ""
        timeout = asyncio.timeout(TEXT_TIMEOUT_S)
        try:
            async with timeout:
                return await recognize()
        except Exception as error:  # noqa: BLE001 - whatever the model raises
            if isinstance(error, TimeoutError) and timeout.expired():
                error = ModelError(f"the recognizer has returned no words after {TEXT_TIMEOUT_S:.0f} s")
            self._fail(error)
        return ""


class _GuardedEndOfTurn(GuardedEndOfTurnSink):
    """The same for an `EndOfTurnStream`."""

    def __init__(self, stream: EndOfTurnStream, on_error: OnError) -> None:
        super().__init__(stream, on_error)
        self._stream = stream

    def close(self) -> None:
        """See `EndOfTurnStream`."""
        super().close()
        self._free(self._stream.close)


class _NoSpeech:
    """Streams in the place of those that could not be opened."""

    def feed(self, samples: Samples) -> None:
        """Ignored."""

    def partial(self) -> str:
        """No words."""
        return ""

    async def flush(self) -> str:
        """No words."""
        return ""

    async def end_turn(self) -> str:
        """No words."""
        return ""

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Not known."""
        answer(None)

    def reset(self) -> None:
        """Nothing was kept."""

    def close(self) -> None:
        """Nothing is to be freed."""


def open_guarded_streams(
    open_streams: Callable[[], SpeechStreams], on_error: OnError, on_no_words: Callable[[], object] = lambda: None
) -> SpeechStreams:
    """Returns streams that raise nothing and have no words after the first error of the recognizer: when it could not
    be opened, when it raises, and when the words of a turn take longer than `TEXT_TIMEOUT_S`. `on_error` gets it, and
    those of `close`, on any thread; `on_no_words` follows. Errors of the end-of-turn model, which leave the words, are
    passed to `on_error` alone."""
    try:
        streams = open_streams()
    except Exception as error:  # noqa: BLE001 - whatever the model raises
        on_error(error)
        on_no_words()
        return SpeechStreams(_NoSpeech(), _NoSpeech())

    def on_recognizer_error(error: Exception) -> None:
        on_error(error)
        on_no_words()

    return SpeechStreams(
        GuardedSpeechToText(streams.stt, on_recognizer_error), _GuardedEndOfTurn(streams.end_of_turn, on_error)
    )
