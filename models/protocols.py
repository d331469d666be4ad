"""One Protocol per kind of model. Implementations run their work off the event loop and off the tick thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from media.ports import Samples


@dataclass(frozen=True)
class ChatMessage:
    """One line of talk as the language model sees it; an assistant's line holds only what the caller heard."""

    role: Literal["user", "assistant"]
    content: str


@dataclass(frozen=True)
class ChatPrompt:
    """Everything that a language model needs for one answer. `language` is a BCP 47 tag or None."""

    call_id: str
    system: str
    messages: Sequence[ChatMessage]
    may_end_call: bool
    language: str | None = None


@dataclass(frozen=True)
class TextDelta:
    """The next piece of the answer's text, to be spoken."""

    text: str


@dataclass(frozen=True)
class EndCall:
    """The agent wants to hang up once what it said has been heard."""


AnswerPart = TextDelta | EndCall


class LanguageModel(Protocol):
    """Turns a conversation into the agent's next words."""

    name: str

    def answer(self, prompt: ChatPrompt) -> AsyncIterator[AnswerPart]:
        """Stream the answer. Closing the iterator cancels the work. Raises `ModelError`."""


class SpeechToTextStream(Protocol):
    """One call's ear. It is fed from the tick thread and read from the event loop."""

    def feed(self, samples: Samples) -> None:
        """Queue mono samples at the rate given to `open`; returns at once."""

    def partial(self) -> str:
        """The words recognized so far in this turn, "" when there are none. Any thread, no waiting."""

    async def finish(self) -> str:
        """The final text of all that was fed since the last `finish` or `discard`; the next turn starts empty.
        Raises `ModelError`."""

    def discard(self) -> None:
        """Forget what was fed since the last `finish`."""

    def close(self) -> None:
        """Free the stream; queued work is dropped. Idempotent."""


class SpeechToText(Protocol):
    """A recognizer that serves many calls."""

    name: str

    def open(self, *, rate: int, language: str | None, on_words: Callable[[str], None]) -> SpeechToTextStream:
        """A new stream for mono int16 sound at `rate` Hz (8000 or 16000). `on_words(partial)` is called from a worker
        thread each time the partial text changes to something that is not empty."""


@dataclass(frozen=True)
class SpokenWord:
    """A word's place: `text[:char_end]` has been heard once `sample_end` samples of the speech were played."""

    char_end: int
    sample_end: int


@dataclass(frozen=True)
class Speech:
    """One synthesized piece: mono int16 at `rate` Hz, and where its words end (ascending)."""

    text: str
    samples: Samples
    rate: int
    words: Sequence[SpokenWord] = field(default_factory=tuple)


@dataclass(frozen=True)
class VoiceSettings:
    """How to speak: `speed` 0.6..1.5 (1 is normal), `stability` 0..1 where the engine knows it, `rate` in Hz wanted."""

    voice: str
    speed: float
    stability: float
    rate: int


class TextToSpeech(Protocol):
    """A synthesizer that serves many calls."""

    name: str

    def voices(self) -> Sequence[str]:
        """The names of the voices that are installed, for example `flite/slt`."""

    async def synthesize(self, text: str, settings: VoiceSettings) -> Speech:
        """Speak one sentence at `settings.rate` Hz. Raises `ModelError`."""


class EndOfTurn(Protocol):
    """Judges whether the caller has finished."""

    name: str

    def probability(self, partial: str, language: str | None) -> float:
        """Probability 0..1 that the turn is over, from the words so far. At once (under 100 microseconds)."""
