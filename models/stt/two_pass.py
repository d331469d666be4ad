"""Two-pass recognition: a streaming model for words while the caller speaks, and an offline one that transcribes the
whole turn for its final text.

The turn's text is the second pass's, unless that fails or is late; then it is the first pass's. Without words in the
first pass there is no second pass, because models for whole turns find words in noise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Final, Protocol, runtime_checkable

import numpy as np
import structlog

from config.errors import ModelError
from media.audio_port import Samples
from models.protocols import (
    Closable,
    CostSource,
    HasLanguages,
    ReportsQueueWait,
    SpeechToText,
    SpeechToTextStream,
    TimesWords,
)
from models.stt.sherpa.speed_measurement import SttSpeed
from models.stt.word_times import starts_of_other_text

SECOND_PASS_TIMEOUT_S: Final = 0.8
"""Maximum wait for the second pass at the end of a turn."""
_TYPICAL_TURN_S: Final = 3.0
"""Duration of a typical turn."""
_MAX_TURN_S: Final = 60
"""A longer turn keeps the first pass's text."""

_log = structlog.get_logger()


@runtime_checkable
class Transcriber(Protocol):
    """A recognizer of whole turns, such as `models.stt.sherpa.offline_model.OfflineSpeechToText`."""

    name: str

    async def transcribe(self, blocks: Sequence[Samples], rate: int, language: str | None) -> str:
        """The text of mono int16 sound at `rate` Hz. Raises `ModelError`."""


class TwoPassSpeechToText:
    """See `SpeechToText`. Its text at the end of a turn is in the languages of either model."""

    cost_source: CostSource = "wrapped model"

    def __init__(self, streaming: SpeechToText, offline: Transcriber, timeout_s: float = SECOND_PASS_TIMEOUT_S) -> None:
        """Both models are closed with it."""
        self.name = f"{streaming.name}+{offline.name}"
        self.streaming = streaming
        self.offline = offline
        self._timeout_s = timeout_s

    def expected_wait_s(self) -> float:
        """See `ReportsQueueWait`: the longer of the two queues."""
        return max(
            (model.expected_wait_s() for model in self._models() if isinstance(model, ReportsQueueWait)), default=0.0
        )

    @property
    def languages(self) -> Sequence[str]:
        """The languages of the two models; `*` for one that does not know them."""
        tags = (model.languages if isinstance(model, HasLanguages) else ("*",) for model in self._models())
        return tuple(dict.fromkeys(chain.from_iterable(tags)))

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> TwoPassStream:
        """A stream for one call. Raises `ValueError` for a rate other than 8000 and 16000."""
        stream = self.streaming.open(rate=rate, language=language, on_words=on_words, hot_words=hot_words)
        return TwoPassStream(stream, self.offline, rate, language, self._timeout_s)

    def close(self) -> None:
        """Close both models. Idempotent."""
        for model in self._models():
            if isinstance(model, Closable):
                model.close()

    def _models(self) -> tuple[SpeechToText, Transcriber]:
        return self.streaming, self.offline


def two_pass_if_fast(streaming: SpeechToText, second: Transcriber) -> SpeechToText:
    """`streaming` with `second` as its second pass, if this machine transcribes a turn of 3 s in half of the maximum
    wait, because several callers may end their turns at once. Otherwise `streaming` alone, and a line in the log."""
    speed = getattr(second, "speed", None)
    took_s = speed.real_time_factor[1] * _TYPICAL_TURN_S if isinstance(speed, SttSpeed) else 0.0
    if took_s > SECOND_PASS_TIMEOUT_S / 2:
        _log.info("stt.second_pass_too_slow", model=second.name, seconds=round(took_s, 2))
        return streaming
    return TwoPassSpeechToText(streaming, second)


class TwoPassStream:
    """One call's stream; see `SpeechToTextStream`."""

    def __init__(
        self, stream: SpeechToTextStream, offline: Transcriber, rate: int, language: str | None, timeout_s: float
    ) -> None:
        self._stream = stream
        self._offline = offline
        self._rate = rate
        self._language = language
        self._timeout_s = timeout_s
        self._turn = _Turn()
        self._last = ("", "")
        """The texts of the first and the second pass of the last turn."""

    def feed(self, samples: Samples) -> None:
        """Queue mono samples at the stream's rate; returns at once."""
        turn = self._turn
        if turn.length <= _MAX_TURN_S * self._rate:
            turn.blocks.append(np.array(samples, dtype=np.int16))
            turn.length += len(samples)
        self._stream.feed(samples)

    def partial(self) -> str:
        """The first pass's words."""
        return self._stream.partial()

    async def flush(self) -> str:
        """The text so far, by the second pass."""
        turn = self._turn
        return await self._second_pass(turn, await self._stream.flush())

    async def end_turn(self) -> str:
        """The text of this turn, by the second pass: the one of `flush` if no words followed it."""
        turn, self._turn = self._turn, _Turn()
        try:
            first = await self._stream.end_turn()
            text = await self._second_pass(turn, first)
        finally:
            turn.cancel()
        self._last = (first, text)
        return text

    def word_starts_s(self) -> Sequence[float]:
        """See `TimesWords`; those of the first pass."""
        first, text = self._last
        starts_s = self._stream.word_starts_s() if isinstance(self._stream, TimesWords) else ()
        return starts_s if first == text else starts_of_other_text(text, first, starts_s)

    def reset(self) -> None:
        """Discard what was fed since the last `end_turn`."""
        self._cancel_turn()
        self._stream.reset()

    def close(self) -> None:
        """Idempotent."""
        self._cancel_turn()
        self._stream.close()

    def _cancel_turn(self) -> None:
        turn, self._turn = self._turn, _Turn()
        turn.cancel()

    async def _second_pass(self, turn: _Turn, first: str) -> str:
        if not first or turn.length > _MAX_TURN_S * self._rate:
            return first
        if turn.second is None or turn.first != first:
            turn.cancel()
            turn.first = first
            blocks = tuple(turn.blocks)
            turn.second = asyncio.ensure_future(self._offline.transcribe(blocks, self._rate, self._language))
            turn.second.add_done_callback(_retrieve_error)
        try:
            # The end of the turn may cancel `flush`, and awaits the same second pass.
            return await asyncio.wait_for(asyncio.shield(turn.second), self._timeout_s) or first
        except TimeoutError:
            _log.info("stt.second_pass_late", model=self._offline.name, limit_s=self._timeout_s)
            return first
        except ModelError as error:
            _log.warning("stt.second_pass_failed", model=self._offline.name, error=str(error))
            return first


class _Turn:
    """The audio that was fed, the first pass's text and the second pass that is to replace it."""

    def __init__(self) -> None:
        self.blocks: list[Samples] = []
        self.length = 0
        self.first = ""
        self.second: asyncio.Future[str] | None = None

    def cancel(self) -> None:
        """Cancel the second pass; any thread."""
        if self.second is not None and not (loop := self.second.get_loop()).is_closed():
            loop.call_soon_threadsafe(self.second.cancel)


def _retrieve_error(done: asyncio.Future[str]) -> None:
    """Retrieve the error of a second pass that nothing awaits any more: it was logged where it happened."""
    if not done.cancelled():
        done.exception()
