"""Usage metering of a call, by which it is billed.

Speculative responses that were dropped are not counted. Cached speech and cached prompts count like new ones, because a
bill must not depend on the server's other calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self

from media.audio_port import Samples
from models.protocols import SpeechToTextStream, TimesWords
from models.token_usage import TokenUsage


@dataclass(frozen=True, slots=True)
class CallUsage:
    """The usage of a call. `telephony_s`: seconds from its answer to its end; `prompt_tokens` and `completion_tokens`:
    read and written by language models; `heard_s`: seconds of the caller's audio that was transcribed;
    `spoken_characters`: of the sentences that were queued for playout. Seconds are exact to the millisecond."""

    telephony_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    heard_s: float = 0.0
    spoken_characters: int = 0

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens, which have one price."""
        return self.prompt_tokens + self.completion_tokens

    def plus(self, other: CallUsage) -> CallUsage:
        """Returns the sum of both."""
        return CallUsage(
            round(self.telephony_s + other.telephony_s, 3),
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            round(self.heard_s + other.heard_s, 3),
            self.spoken_characters + other.spoken_characters,
        )

    def to_json(self) -> dict[str, Any]:
        """Returns JSON for the columns of usage."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> Self:
        """Returns the usage of a `to_json`; `NO_USAGE` for None."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in (stored or {}).items() if name in names})


NO_USAGE: Final = CallUsage()
"""All zero."""


class MeteredSpeechToText:
    """A `SpeechToTextStream` that counts the samples it is fed."""

    def __init__(self, stream: SpeechToTextStream) -> None:
        self.samples = 0
        """Written by the tick thread alone."""
        self._stream = stream
        self.partial = stream.partial
        self.flush = stream.flush
        self.end_turn = stream.end_turn
        self.reset = stream.reset
        self.close = stream.close
        self.word_starts_s = stream.word_starts_s if isinstance(stream, TimesWords) else list[float]

    def feed(self, samples: Samples) -> None:
        """Count the samples, and feed them to the stream."""
        self.samples += len(samples)
        self._stream.feed(samples)


class UsageMeter:
    """The meter of one call. For the event loop, except `MeteredSpeechToText.feed`."""

    def __init__(self) -> None:
        self._token_counts: list[TokenUsage] = []
        self._aside_counts: list[TokenUsage] = []
        self._stt_streams: list[tuple[MeteredSpeechToText, int]] = []
        self._characters = 0

    def new_token_count(self) -> TokenUsage:
        """Returns a count for a response, which continues from the billed ones. `count_tokens` bills its tokens, also
        those before that."""
        return TokenUsage(self._token_counts[-1] if self._token_counts else None)

    def count_tokens(self, tokens: TokenUsage) -> None:
        """Bill the response with this count, because it was confirmed."""
        if tokens not in self._token_counts:
            for finished in self._token_counts[-2:-1]:  # the last one may still wait for a tool
                finished.discard_prompt()
            self._token_counts.append(tokens)

    def count_tokens_aside(self, tokens: TokenUsage) -> None:
        """Bill tokens of work beside the conversation, which no response continues."""
        tokens.discard_prompt()
        self._aside_counts.append(tokens)

    def meter_stt(self, stream: SpeechToTextStream, rate: int) -> MeteredSpeechToText:
        """Returns the stream, at `rate` Hz, metered."""
        metered = MeteredSpeechToText(stream)
        self._stt_streams.append((metered, rate))
        return metered

    def count_spoken(self, sentence: str) -> None:
        """Count a sentence that was queued for playout, as it is written in the transcript."""
        self._characters += len(sentence)

    def usage(self) -> CallUsage:
        """Returns the usage so far, without telephony, which is known when the call has ended."""
        counts = [*self._token_counts, *self._aside_counts]
        return CallUsage(
            prompt_tokens=sum(tokens.prompt_tokens for tokens in counts),
            completion_tokens=sum(tokens.completion_tokens for tokens in counts),
            heard_s=round(sum(stream.samples / rate for stream, rate in self._stt_streams), 3),
            spoken_characters=self._characters,
        )
