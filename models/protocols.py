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
    """A tool call by the model. `arguments` is JSON as the model wrote it: perhaps not what the tool takes."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ChatMessage:
    """A message as the language model sees it; an assistant's holds only what was played to the caller. A message of
    role "tool" is the result of the call `tool_call_id`, which an assistant's message before it holds."""

    role: Literal["user", "assistant", "tool"]
    content: str
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str | None = None
    ok: bool = True
    """Of a tool's message: the call succeeded; else `content` says what went wrong."""


@dataclass(frozen=True)
class ChatPrompt:
    """Everything that a language model needs for one answer. `language` is a BCP 47 tag or None. `tokens` counts the
    tokens of the answer, if they are to be counted; it does not make another prompt."""

    call_id: str
    system: str
    messages: Sequence[ChatMessage]
    language: str | None = None
    tools: Sequence[ToolDefinition] = ()
    tokens: TokenUsage | None = field(default=None, compare=False, repr=False)

    @property
    def may_end_call(self) -> bool:
        """True if the agent may hang up."""
        return any(tool.name == END_CALL for tool in self.tools)


END_CALL_TOOL: Final = ToolDefinition(END_CALL, "Hang up, once the caller has heard what you say.", {"type": "object"})


@dataclass(frozen=True)
class TextDelta:
    """The next piece of the answer's text, to be spoken."""

    text: str


LlmOutput = TextDelta | ToolCall


class LanguageModel(Protocol):
    """Generates the agent's next words from a conversation."""

    name: str

    def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        """Stream the answer. It ends after tool calls; the next request has their results among the messages. Closing
        the iterator cancels the work. Raises `ModelError`."""


@runtime_checkable
class SupportsPrefill(Protocol):
    """A language model that answers sooner when it has prefilled its KV cache with the conversation."""

    async def prefill(self, prompt: ChatPrompt) -> None:
        """Prefill this conversation, which goes on with a message of the caller. No answer waits for it: the answer to
        a prompt of the same call ends it. Cancelling gives it up. Raises `ModelError`."""


@runtime_checkable
class SupportsJsonSchema(Protocol):
    """A language model whose output can be constrained to a JSON Schema."""

    async def complete_json(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> str:
        """JSON that a JSON Schema (the part of it that tools use) takes, in answer to a prompt; its tools are not
        used. It is work after calls: answers to callers go first. Raises `ModelError`."""


class SpeechToTextStream(Protocol):
    """The recognition stream of one call. It is fed from the tick thread and read from the event loop."""

    def feed(self, samples: Samples) -> None:
        """Queue mono samples at the rate given to `open`; returns at once."""

    def partial(self) -> str:
        """The words recognized so far in this turn, "" when there are none. Any thread, no waiting."""

    async def flush(self) -> str:
        """The final text of all that was fed since the last `end_turn` or `reset`, while the turn may still go on: what
        is fed afterwards continues it. Raises `ModelError`."""

    async def end_turn(self) -> str:
        """The final text of all that was fed since the last `end_turn` or `reset`; the next turn starts empty.
        Raises `ModelError`."""

    def reset(self) -> None:
        """Forget what was fed since the last `end_turn`."""

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
        phrases that the call is likely to bring up, names in their own spelling: a model that can do so recognizes them
        more readily."""


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
    """`speed` is 0.6..1.5 (1 is normal), `stability` 0..1 where the engine knows it, `rate` the wanted one in Hz."""

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
        """The BCP 47 tag of the language of one of the voices; None: not known."""

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """Speak one sentence at `settings.rate` Hz. Raises `ModelError`."""


class EndOfTurnStream(Protocol):
    """End-of-turn detection in one call. `feed`, `ask` and `reset` are called from the tick thread and return at
    once."""

    def feed(self, samples: Samples) -> None:
        """The next mono int16 samples of the turn, at the rate given to `open`: those that speech recognition gets."""

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Ask whether the turn is over. `answer` is called exactly once, at once or later, from any thread, with the
        probability 0..1, or None when there is nothing to judge by."""

    def reset(self) -> None:
        """The turn is over: forget what was fed."""

    def close(self) -> None:
        """Free the stream. Idempotent."""


class EndOfTurn(Protocol):
    """Judges whether callers have finished. `latency_ms`: how long an answer usually takes; it is asked so long before
    the answer is needed."""

    name: str
    latency_ms: int

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> EndOfTurnStream:
        """A stream for mono int16 sound at `rate` Hz (8000 or 16000). `partial()` is the text of the turn so far."""


class Embeddings(Protocol):
    """Embeds texts: texts of like meaning get vectors that are near each other. `version` changes when the vectors do;
    `dimensions` is the length of a vector, 0 while that is not known."""

    name: str
    version: str
    dimensions: int

    async def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        """float32[len(texts), dimensions], each row of length 1, in the order of `texts`: of questions (`query`), for
        which a caller waits, or of passages. Raises `ModelError`."""


@runtime_checkable
class ReportsQueueWait(Protocol):
    """A model that reports how long its queue is."""

    def expected_wait_s(self) -> float:
        """The time that a request of usual size would wait now. Called on the event loop; returns at once."""
