"""What a call is billed by, measured while it goes on.

What the customer pays is what the call got: speculation that came to nothing is the house's own. What was kept from
before (speech of the cache, what a model remembers of a prompt) is paid like what was made for the call: a bill must
not depend on what else the server did that day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Self

from media.audio_port import Samples
from models.protocols import SpeechToTextStream
from models.token_usage import TokenUsage


@dataclass(frozen=True, slots=True)
class CallUsage:
    """What a call used. `telephony_s`: seconds from its answer to its end; `prompt_tokens` and `completion_tokens`:
    what language models read and wrote for it; `heard_s`: seconds of the caller's sound that speech to text was given;
    `spoken_characters`: of the sentences that the agent began to say. Seconds are exact to the millisecond."""

    telephony_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    heard_s: float = 0.0
    spoken_characters: int = 0

    @property
    def tokens(self) -> int:
        """All of them: they have one price."""
        return self.prompt_tokens + self.completion_tokens

    def plus(self, other: CallUsage) -> CallUsage:
        """Both together; for what is done after a call, too."""
        return CallUsage(
            round(self.telephony_s + other.telephony_s, 3),
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            round(self.heard_s + other.heard_s, 3),
            self.spoken_characters + other.spoken_characters,
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON, for `calls.usage` and drafts."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> Self:
        """What was `stored`; nothing when nothing was."""
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in (stored or {}).items() if name in names})


NO_USAGE: Final = CallUsage()
"""Of a call that used nothing."""


class MeteredSpeechToText:
    """A call's ear that counts the samples it is given. See `SpeechToTextStream`."""

    def __init__(self, stream: SpeechToTextStream) -> None:
        self.samples = 0
        """Written by the tick thread alone."""
        self._stream = stream
        self.partial = stream.partial
        self.flush = stream.flush
        self.end_turn = stream.end_turn
        self.reset = stream.reset
        self.close = stream.close

    def feed(self, samples: Samples) -> None:
        """Count, and pass on."""
        self.samples += len(samples)
        self._stream.feed(samples)


class UsageMeter:
    """Of one call. For the event loop, but for what its ear is fed."""

    def __init__(self) -> None:
        self._token_counts: list[TokenUsage] = []
        self._stt_streams: list[tuple[MeteredSpeechToText, int]] = []
        self._characters = 0

    def new_token_count(self) -> TokenUsage:
        """For an answer that goes on from those that count. What it takes counts from `counts` on, and before."""
        return TokenUsage(self._token_counts[-1] if self._token_counts else None)

    def count_tokens(self, tokens: TokenUsage) -> None:
        """The answer with this count is given."""
        if tokens not in self._token_counts:
            for over in self._token_counts[-2:-1]:  # the one before may still wait for a tool
                over.forget_prompt()
            self._token_counts.append(tokens)

    def meter_stt(self, stream: SpeechToTextStream, rate: int) -> MeteredSpeechToText:
        """The same ear at `rate` Hz, measured."""
        metered = MeteredSpeechToText(stream)
        self._stt_streams.append((metered, rate))
        return metered

    def count_spoken(self, sentence: str) -> None:
        """The agent says a sentence, as it is written in the transcript."""
        self._characters += len(sentence)

    def usage(self) -> CallUsage:
        """So far; without the telephone, which is known when the call has ended."""
        return CallUsage(
            prompt_tokens=sum(tokens.read for tokens in self._token_counts),
            completion_tokens=sum(tokens.written for tokens in self._token_counts),
            heard_s=round(sum(ear.samples / rate for ear, rate in self._stt_streams), 3),
            spoken_characters=self._characters,
        )
