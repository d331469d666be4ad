"""Speech to text with a remote model's second hearing: a local recognizer tells words while the caller speaks, and the
remote one says in the end what the turn was. Where it does not, what the local one heard is the text."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import structlog

from config.errors import ModelError
from media.ports import Samples
from models.catalogue import Closable
from models.protocols import SpeechToText, SpeechToTextStream
from models.remote.transcriber import RemoteTranscriber

LONGEST_S: Final = 120
"""Of a turn that is sent away; a longer one is heard by the local recognizer alone."""
_LISTENED_ON_S: Final = 3.0
"""A turn that has grown by so little since it was asked about, and by no word, is not sent again."""

log = structlog.get_logger()


class RemoteSpeechToText:
    """See `SpeechToText`."""

    def __init__(self, transcriber: RemoteTranscriber, streaming: SpeechToText) -> None:
        """It owns `streaming`."""
        self.name = transcriber.name
        self._transcriber = transcriber
        self._streaming = streaming

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> SpeechToTextStream:
        """See `SpeechToText.open`. Hot words are for the local recognizer: the protocol has only a prompt, which models
        repeat when they hear nothing."""
        inner = self._streaming.open(rate=rate, language=language, on_words=on_words, hot_words=hot_words)
        return TwiceHeard(inner, rate, lambda samples: self._transcriber.transcribe(samples, rate, language))

    def close(self) -> None:
        """Close the local recognizer. Idempotent."""
        if isinstance(self._streaming, Closable):
            self._streaming.close()


@dataclass(frozen=True)
class _Asked:
    """A question about a turn that went on: of so many samples, when the local recognizer had heard `local`."""

    count: int
    local: str | None
    answer: asyncio.Task[str]


class TwiceHeard:
    """One call's ear. See `SpeechToTextStream`."""

    def __init__(
        self, inner: SpeechToTextStream, rate: int, transcribe: Callable[[Samples], Coroutine[Any, Any, str]]
    ) -> None:
        self._inner = inner
        self._rate = rate
        self._transcribe = transcribe
        self._lock = threading.Lock()
        self._pieces: list[Samples] = []
        self._count = 0
        self._asked: _Asked | None = None

    def feed(self, samples: Samples) -> None:
        """Queue sound for both; it is kept until the turn ends."""
        self._inner.feed(samples)
        with self._lock:
            self._count += len(samples)
            if self._count <= LONGEST_S * self._rate:
                self._pieces.append(samples.copy())

    def partial(self) -> str:
        """What the local recognizer has heard."""
        return self._inner.partial()

    async def settle(self) -> str:
        """See `SpeechToTextStream.settle`."""
        self._drop_question()
        sound, count = self._sound()
        if sound is None:
            return await self._inner.settle()
        answer = asyncio.create_task(self._transcribe(sound), name="hear a second time")
        try:
            local, error = await _tried(self._inner.settle())
            self._asked = _Asked(count, local, answer)
            return await self._decided(local, error, asyncio.shield(answer))
        except asyncio.CancelledError:
            answer.cancel()
            self._asked = None
            raise

    async def finish(self) -> str:
        """See `SpeechToTextStream.finish`."""
        sound, count = self._sound(take=True)
        asked, self._asked = self._asked, None
        if sound is None:
            return await self._inner.finish()
        answer = None if asked else asyncio.create_task(self._transcribe(sound), name="hear a second time")
        try:
            local, error = await _tried(self._inner.finish())
            if asked is not None and asked.local == local and count - asked.count <= _LISTENED_ON_S * self._rate:
                answer = asked.answer
            elif asked is not None:
                asked.answer.cancel()
            answer = answer or asyncio.create_task(self._transcribe(sound), name="hear a second time")
            return await self._decided(local, error, answer)
        finally:
            if answer is not None:
                answer.cancel()

    def discard(self) -> None:
        """Forget the turn."""
        self._sound(take=True)
        self._inner.discard()

    def close(self) -> None:
        """Free the stream. Idempotent."""
        self._drop_question()
        self._inner.close()

    def _sound(self, *, take: bool = False) -> tuple[Samples | None, int]:
        """The turn so far, None when there is none or when it is too long, and how many samples it has."""
        with self._lock:
            pieces, count = list(self._pieces), self._count
            if take:
                self._pieces.clear()
                self._count = 0
        if not pieces or count > LONGEST_S * self._rate:
            return None, count
        return np.concatenate(pieces), count

    def _drop_question(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.answer.cancel()

    async def _decided(self, local: str | None, error: ModelError | None, answer: asyncio.Future[str]) -> str:
        """The remote text, where it heard any."""
        try:
            text = await answer
        except ModelError as trouble:
            log.warning("ear.fell_back", error=trouble.message)
            text = ""
        if text or local is not None:
            return text or local or ""
        raise error or ModelError("no recognizer heard the turn")


async def _tried(hearing: Coroutine[Any, Any, str]) -> tuple[str | None, ModelError | None]:
    try:
        return await hearing, None
    except ModelError as error:
        return None, error
