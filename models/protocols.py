"""Protocols of the models, one per kind. Implementations work off the event loop and off the tick thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from media.audio_port import Samples
from models.token_usage import TokenUsage

END_CALL: Final = "end_call"
TRANSFER_CALL: Final = "transfer_call"
"""The tool by which an agent hangs up after its speech has been played. Offered only if the agent may end the call."""
SEARCH_KNOWLEDGE: Final = "search_knowledge"
SUPERVISOR_NOTE: Final = "supervisor_note"
"""A tool that no model can call: its results are notes that a person who follows the call writes to the agent."""
"""The tool that searches an agent's documents."""


CostSource = Literal["measured on load", "timed with a sentence", "wrapped model", "negligible", "remote"]
"""Source of an engine's CPU cost (`models.loading.cost_measurement`). Measured on load: the engine measures itself
(`speed`, `takes_ms`). Timed with a sentence: `cost_measurement` times it (`TimedSpeechToText`, `TimedTextToSpeech`).
Wrapped model: the cost is that of the model inside. Remote: no cores of this machine."""


@runtime_checkable
class Closable(Protocol):
    """A model that holds threads or memory."""

    def close(self) -> None:
        """Free them. Idempotent."""


@runtime_checkable
class TimedSpeechToText(Protocol):
    """A recognizer whose CPU cost is timed with a sentence."""

    threads: int
    """Decoding threads, shared by all calls."""

    def cpu_time_s(self) -> float:
        """CPU seconds that its threads have used."""


@runtime_checkable
class TimedTextToSpeech(Protocol):
    """A synthesizer whose CPU cost is timed with a sentence."""

    concurrency: int
    """Sentences that are synthesized in parallel."""


@dataclass(frozen=True)
class ToolDefinition:
    """A tool as the language model sees it. `name`: 1..64 characters of `[a-zA-Z0-9_-]`; `parameters`: the JSON Schema
    of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class ToolCall:
    """A tool call by the model. `arguments` is JSON as the model wrote it; it may not match the tool's schema."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ChatMessage:
    """A message as the language model sees it. One of role "assistant" holds only what was played to the caller; one of
    role "tool" is the result of the call `tool_call_id` in an earlier assistant message."""

    role: Literal["user", "assistant", "tool"]
    content: str
    tool_calls: Sequence[ToolCall] = ()
    tool_call_id: str | None = None
    ok: bool = True
    """Of role "tool": True if the call succeeded; else `content` is the error."""


@dataclass(frozen=True)
class ChatPrompt:
    """The prompt of one response. `language` is a BCP 47 tag or None. `tokens` counts the tokens of the response, if
    given; it does not count for equality."""

    call_id: str
    system: str
    messages: Sequence[ChatMessage]
    language: str | None = None
    tools: Sequence[ToolDefinition] = ()
    tokens: TokenUsage | None = field(default=None, compare=False, repr=False)

    @property
    def may_end_call(self) -> bool:
        """True if the agent may end the call."""
        return any(tool.name == END_CALL for tool in self.tools)


END_CALL_TOOL: Final = ToolDefinition(END_CALL, "Hang up, once the caller has heard what you say.", {"type": "object"})


@dataclass(frozen=True)
class TextDelta:
    """The next piece of the response's text, to be spoken."""

    text: str


LlmOutput = TextDelta | ToolCall


class LanguageModel(Protocol):
    """Generates the agent's next response in a conversation."""

    name: str

    def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        """Stream the response. It ends after tool calls; the next prompt holds their results. Closing the iterator
        cancels the work. Raises `ModelError`."""


@runtime_checkable
class SupportsPrefill(Protocol):
    """A language model that responds sooner after its KV cache was prefilled with the conversation."""

    async def prefill(self, prompt: ChatPrompt) -> None:
        """Prefill the conversation, up to the caller's next message. A response of the same call ends the prefill and
        does not wait for it. Cancelling stops it. Raises `ModelError`."""


@runtime_checkable
class SupportsJsonSchema(Protocol):
    """A language model whose output can be constrained to a JSON Schema."""

    async def complete_json(self, prompt: ChatPrompt, schema: Mapping[str, Any]) -> str:
        """The response as JSON that `schema` (the part of JSON Schema that tools use) accepts; the prompt's tools are
        not used. Post-call work: responses to callers go first. Raises `ModelError`."""


class SpeechToTextStream(Protocol):
    """The speech recognition stream of one call, fed from the tick thread and read from the event loop."""

    def feed(self, samples: Samples) -> None:
        """Queue mono samples at the rate given to `open`; returns at once."""

    def partial(self) -> str:
        """The partial transcript of this turn, "" if empty. Any thread, does not block."""

    async def flush(self) -> str:
        """The final transcript since the last `end_turn` or `reset`; the turn continues with what is fed afterwards.
        Raises `ModelError`."""

    async def end_turn(self) -> str:
        """The final transcript since the last `end_turn` or `reset`; the next turn starts empty. Raises
        `ModelError`."""

    def reset(self) -> None:
        """Discard what was fed since the last `end_turn`."""

    def close(self) -> None:
        """Free the stream; queued work is dropped. Idempotent."""


@runtime_checkable
class TimesWords(Protocol):
    """A `SpeechToTextStream` that knows when the words of a turn began."""

    def word_starts_s(self) -> Sequence[float]:
        """The beginnings of the words that white space separates in the last text of `end_turn`, in seconds after the
        first sample of the turn; empty if they are not known. For the event loop."""


class SpeechToText(Protocol):
    """A recognizer that serves many calls."""

    name: str

    def open(
        self, *, rate: int, language: str | None, on_words: Callable[[str], None], hot_words: Sequence[str] = ()
    ) -> SpeechToTextStream:
        """A new stream for mono int16 audio at `rate` Hz (8000 or 16000). `on_words(partial)` is called from a worker
        thread each time that the partial transcript changes and is not empty. `hot_words`: words and phrases likely in
        the call, names in their own spelling; a model with hotword support favours them."""


class PhraseSpotter(Protocol):
    """Spots phrases in the audio of one call, fed from the tick thread."""

    def feed(self, samples: Samples) -> None:
        """Queue mono samples at the rate given to `open_spotter`; returns at once."""

    def close(self) -> None:
        """Free it; queued work is dropped. Idempotent."""


@runtime_checkable
class SpotsPhrases(Protocol):
    """A recognizer that can also spot given phrases, in noise in which it recognizes other words."""

    def open_spotter(self, *, rate: int, phrases: Sequence[str], on_phrase: Callable[[str], None]) -> PhraseSpotter:
        """A new spotter for mono int16 audio at `rate` Hz (8000 or 16000). `on_phrase(phrase)` is called from a worker
        thread each time that one of `phrases` (lower case, words of the recognizer's language) was heard."""


@dataclass(frozen=True)
class WordTiming:
    """The end of a word: `text[:char_end]` has been heard when `sample_end` samples of the speech were played."""

    char_end: int
    sample_end: int


@dataclass(frozen=True)
class SynthesizedSpeech:
    """Synthesized speech: mono int16 at `rate` Hz, with the ends of its words in ascending order."""

    text: str
    samples: Samples
    rate: int
    words: Sequence[WordTiming] = field(default_factory=tuple)


@dataclass(frozen=True)
class VoiceSettings:
    """`speed`: 0.6..1.5, 1 is normal. `stability`: 0..1, for engines that have it. `rate`: of the output, in Hz."""

    voice: str
    speed: float
    stability: float
    rate: int


class TextToSpeech(Protocol):
    """A synthesizer that serves many calls."""

    name: str

    def voices(self) -> Sequence[str]:
        """The names of the installed voices, for example `flite/slt`, the best first."""

    def language_of(self, voice: str) -> str | None:
        """The BCP 47 tag of a voice's language; None if unknown."""

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        """Synthesize one sentence at `settings.rate` Hz. Raises `ModelError`."""


class EndOfTurnStream(Protocol):
    """The end-of-turn detection stream of one call. `feed`, `ask` and `reset` are called from the tick thread and do
    not block."""

    def feed(self, samples: Samples) -> None:
        """Add mono int16 samples of the turn, at the rate given to `open`: the same that speech recognition gets."""

    def ask(self, answer: Callable[[float | None], None]) -> None:
        """Query the end-of-turn probability. `answer` is called exactly once, at once or later, from any thread, with
        the probability 0..1, or None without enough input."""

    def reset(self) -> None:
        """Start the next turn: discard what was fed."""

    def close(self) -> None:
        """Free the stream. Idempotent."""


class EndOfTurn(Protocol):
    """Predicts the end of a caller's turn. `latency_ms`: the usual latency of an answer, by which queries are sent
    ahead."""

    name: str
    latency_ms: int

    def open(self, *, rate: int, language: str | None, partial: Callable[[], str]) -> EndOfTurnStream:
        """A stream for mono int16 audio at `rate` Hz (8000 or 16000). `partial()` returns the partial transcript."""


class Embeddings(Protocol):
    """Text embeddings: texts of similar meaning have vectors near each other. `version` changes when the vectors do;
    `dimensions` is the length of a vector, 0 while unknown."""

    name: str
    version: str
    dimensions: int

    async def embed(self, texts: Sequence[str], *, query: bool) -> NDArray[np.float32]:
        """float32[len(texts), dimensions] of unit vectors in the order of `texts`. `query`: the texts are questions,
        for which a caller waits, and not passages. Raises `ModelError`."""


@dataclass(frozen=True)
class VoiceDescription:
    """`engine`: the name of what synthesizes the voice. `quality` as its publisher calls it. `sample_rate`: the voice's
    own, in Hz. None: unknown."""

    engine: str
    quality: str | None = None
    sample_rate: int | None = None


@runtime_checkable
class DescribesVoices(Protocol):
    """A synthesizer that knows the properties of its voices."""

    def describe(self, voice: str) -> VoiceDescription:
        """The properties of one of its voices."""


@runtime_checkable
class HasLanguages(Protocol):
    """A recognizer that knows its languages."""

    @property
    def languages(self) -> Sequence[str]:
        """BCP 47 tags; `*`: all languages."""


@runtime_checkable
class ReportsQueueWait(Protocol):
    """A model that reports the wait in its queue."""

    def expected_wait_s(self) -> float:
        """Seconds that a request of usual size would wait now. For the event loop; does not block."""
