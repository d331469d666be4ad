"""One Protocol per kind of model. Implementations run their work off the event loop and off the tick thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples
from models.token_usage import TokenUsage

END_CALL: Final = "end_call"
"""The tool by which an agent hangs up, once what it said has been heard. Only a call that it may end offers it."""
SEARCH_KNOWLEDGE: Final = "search_knowledge"
"""The tool that finds passages in an agent's documents."""


Measured = Literal["at start", "by trial", "as what it wraps", "takes no time", "on another machine"]
"""How an engine's load on this machine's cores is known (`models.loading.benchmark`). At start: it measures itself when
it is loaded (`speed`, `takes_ms`). By trial: it is timed with a sentence (`TimedSpeechToText`, `TimedTextToSpeech`)."""


@runtime_checkable
class Closable(Protocol):
    """A model that holds threads or memory."""

    def close(self) -> None:
        """Let go of them. Idempotent."""


@runtime_checkable
class TimedSpeechToText(Protocol):
    """A recognizer that is measured by trial."""

    threads: int
    """Threads that recognize, of all calls together."""

    def worked_s(self) -> float:
        """Seconds of a core that its threads have taken."""


@runtime_checkable
class TimedTextToSpeech(Protocol):
    """A synthesizer that is measured by trial."""

    at_once: int
    """Sentences that are spoken side by side."""


@dataclass(frozen=True)
class ToolDefinition:
    """A tool as the language model sees it. `name` is of `[a-zA-Z0-9_-]`, 1..64; `parameters` is the JSON Schema of an
    object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class ToolCall:
    """The model wants a tool to be used. `arguments` is JSON as the model wrote it: perhaps not what the tool takes."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ChatMessage:
    """One line of talk as the language model sees it; an assistant's line holds only what the caller heard. A line of
    role "tool" is the result of the call `tool_call_id`, which an assistant's line before it holds."""

    role: Literal["user", "assistant", "tool"]
    content: str
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str | None = None
    ok: bool = True
    """Of a tool's line: it did what was asked; else `content` says what went wrong."""


@dataclass(frozen=True)
class ChatPrompt:
    """Everything that a language model needs for one answer. `language` is a BCP 47 tag or None. `tokens` counts what
    the answer takes, if it is to be counted; it makes no other prompt."""

    call_id: str
    system: str
    messages: Sequence[ChatMessage]
    language: str | None = None
    tools: Sequence[ToolDefinition] = ()
    tokens: TokenUsage | None = field(default=None, compare=False, repr=False)

    @property
    def may_end_call(self) -> bool:
        """Whether the agent may hang up."""
        return any(tool.name == END_CALL for tool in self.tools)


END_CALL_TOOL: Final = ToolDefinition(END_CALL, "Hang up, once the caller has heard what you say.", {"type": "object"})


@dataclass(frozen=True)
class TextDelta:
    """The next piece of the answer's text, to be spoken."""

    text: str


LlmOutput = TextDelta | ToolCall


class LanguageModel(Protocol):
    """Turns a conversation into the agent's next words."""

    name: str

    def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        """Stream the answer. After tool calls it ends; it is asked again when their results are among the messages.
        Closing the iterator cancels the work. Raises `ModelError`."""


@runtime_checkable
class SupportsPrefill(Protocol):
    """A language model that answers sooner what it has begun to read before."""

    async def prefill(self, prompt: ChatPrompt) -> None:
        """Read this talk, which goes on with a line of the caller. No answer waits for it: the answer to a prompt of
        the same call ends it. Cancelling gives it up. Raises `ModelError`."""


@runtime_checkable
class SupportsJsonSchema(Protocol):
    """A language model that can be held to a form."""

    async def complete_json(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> str:
        """JSON that a JSON Schema (the part of it that tools use) takes, in answer to a prompt; its tools are not
        used. It is work after calls: whoever waits for an answer goes first. Raises `ModelError`."""


class SpeechToTextStream(Protocol):
    """One call's ear. It is fed from the tick thread and read from the event loop."""

    def feed(self, samples: Samples) -> None:
        """Queue mono samples at the rate given to `open`; returns at once."""

    def partial(self) -> str:
        """The words recognized so far in this turn, "" when there are none. Any thread, no waiting."""

    async def flush(self) -> str:
        """The final text of all that was fed since the last `finish` or `discard`, while the turn may still go on: what
        is fed afterwards continues it. Raises `ModelError`."""

    async def end_turn(self) -> str:
        """The final text of all that was fed since the last `finish` or `discard`; the next turn starts empty.
        Raises `ModelError`."""

    def reset(self) -> None:
        """Forget what was fed since the last `finish`."""

    def close(self) -> None:
        """Free the stream; queued work is dropped. Idempotent."""


class SpeechToText(Protocol):
    """A recognizer that serves many calls."""

    name: str

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> SpeechToTextStream:
        """A new stream for mono int16 sound at `rate` Hz (8000 or 16000). `on_words(partial)` is called from a worker
        thread each time the partial text changes to something that is not empty. `hot_words` are words and
        phrases that the call may well bring up, names in their own spelling: a model that can do so hears them more
        readily."""


@dataclass(frozen=True)
class WordTiming:
    """A word's place: `text[:char_end]` has been heard once `sample_end` samples of the speech were played."""

    char_end: int
    sample_end: int


@dataclass(frozen=True)
class SynthesizedSpeech:
    """One synthesized piece: mono int16 at `rate` Hz, and where its words end (ascending)."""

    text: str
    samples: Samples
    rate: int
    words: Sequence[WordTiming] = field(default_factory=tuple)


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
        """The names of the voices that are installed, for example `flite/slt`, the best first."""

    def language_of(self, voice: str) -> str | None:
        """The BCP 47 tag of what one of the voices speaks; None: it does not tell."""

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """Speak one sentence at `settings.rate` Hz. Raises `ModelError`."""


class EndOfTurnStream(Protocol):
    """Judges one call's turns. `feed`, `ask` and `discard` come from the tick thread and return at once."""

    def feed(self, samples: Samples) -> None:
        """The next mono int16 samples of the turn, at the rate given to `open`: those that the ear gets."""

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Is the turn over? `answer` gets the probability 0..1, or None when there is nothing to judge by: exactly
        once, at once or later, from any thread."""

    def reset(self) -> None:
        """The turn is over: forget what was fed."""

    def close(self) -> None:
        """Free the stream. Idempotent."""


class EndOfTurn(Protocol):
    """Judges whether callers have finished. `latency_ms`: how long an answer usually takes, so that it is asked so much
    before it is needed."""

    name: str
    latency_ms: int

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> EndOfTurnStream:
        """A stream for mono int16 sound at `rate` Hz (8000 or 16000). `partial()` is the text of the turn so far."""


class Embeddings(Protocol):
    """Turns texts into vectors that are near each other when the texts mean alike. `identity` is another one when its
    vectors are others; `dimensions` are the numbers of a vector, 0 while that is not known."""

    name: str
    version: str
    dimensions: int

    async def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        """float32[len(texts), dimensions], each row of length 1, in the order of `texts`: of questions (`query`), for
        which somebody waits, or of passages. Raises `ModelError`."""


@runtime_checkable
class ReportsQueueWait(Protocol):
    """A model that knows how busy it is."""

    def expected_wait_s(self) -> float:
        """How long what is asked of it now would wait, for its usual size. On the event loop, at once."""
