"""The models of `random_conversation`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from calls.knowledge.search import KnowledgeSearch
from calls.tools.toolset import ToolResult
from media.audio_port import Samples
from models.protocols import (
    END_CALL,
    ChatPrompt,
    LlmOutput,
    SynthesizedSpeech,
    TextDelta,
    ToolCall,
    ToolDefinition,
    VoiceSettings,
    WordTiming,
)
from storage.database.errors import StorageUnavailable
from storage.knowledge.passages import FoundPassage

if TYPE_CHECKING:
    from tests.calls.conversation.random_conversation import RandomCall

RATE = 8000
WORD_MS = 100


@dataclass
class RandomStt:
    """Recognizes the words of the caller's audio that is not discarded, some time after they were spoken."""

    call: RandomCall
    since_ms: float = -1.0

    def feed(self, samples: Samples) -> None:
        raise AssertionError("nothing feeds it: it knows what is said")

    def partial(self) -> str:
        return self._text()

    async def flush(self) -> str:
        text = self._text()
        await self.call.takes(120)
        return text

    async def end_turn(self) -> str:
        text, self.since_ms = self._text(), self.call.now_ms
        await self.call.takes(120)
        return "" if self.call.chance.random() < 0.05 else text

    def reset(self) -> None:
        self.since_ms = self.call.now_ms

    def close(self) -> None:
        pass

    def _text(self) -> str:
        now = self.call.now_ms
        return " ".join(word for act in self.call.acts for at, word in act.words if self.since_ms < at <= now)


class RandomLlm:
    """Responds with unique words, sometimes after a tool call, sometimes without words."""

    name = "world"

    def __init__(self, call: RandomCall) -> None:
        self.call = call
        self.prompts: list[ChatPrompt] = []

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        self.call.check_prompt(prompt)
        number = len(self.prompts)
        self.prompts.append(prompt)
        chance = self.call.chance
        await self.call.takes(1500)
        if prompt.tools and chance.random() < 0.25:
            if chance.random() < 0.3:
                yield TextDelta("Let me see. ")
            asked = prompt.messages[-1].content if prompt.messages else ""
            yield ToolCall(f"t{number}", chance.choice(["look", "act", "nonsense"]), f'{{"asked": "{asked}"}}')
            return
        if chance.random() < 0.04:
            yield TextDelta("Goodbye.")
            yield ToolCall(f"t{number}", END_CALL, "{}")
            return
        for sentence in range(chance.randint(0, 3)):
            words = [f"ans{spelt(number)}{spelt(sentence)}{spelt(word)}" for word in range(chance.randint(1, 6))]
            yield TextDelta(" ".join(words).capitalize() + ". ")
            await self.call.takes(60)


class RandomTts:
    """Synthesizes every word as `WORD_MS` of a sample value of its own; `words` maps these."""

    name = "world"

    def __init__(self, call: RandomCall) -> None:
        self.call = call
        self.words: list[str] = [""]

    def voices(self) -> Sequence[str]:
        return ("world/one",)

    def language_of(self, voice: str) -> str | None:
        return None

    async def synthesize(self, text: str, settings: VoiceSettings) -> SynthesizedSpeech:
        await self.call.takes(200)
        sounds, timings, end = [], [], 0
        for word in text.split():
            end = text.index(word, end) + len(word)
            self.words.append(word)
            sounds.append(np.full(RATE * WORD_MS // 1000, len(self.words) - 1, np.int16))
            timings.append(WordTiming(end, len(sounds) * RATE * WORD_MS // 1000))
        return SynthesizedSpeech(text, np.concatenate(sounds), RATE, timings)


@dataclass
class RandomTool:
    """A tool of random duration."""

    call: RandomCall
    name: str
    has_effects: bool
    definition: ToolDefinition = field(init=False)

    def __post_init__(self) -> None:
        properties = {"asked": {"type": "string", "description": ""}}
        self.definition = ToolDefinition(self.name, "", {"type": "object", "properties": properties})

    async def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        if self.has_effects and not arguments["asked"].startswith(("done", "There is no tool", "This was called")):
            said = [item["content"] for item in self.call.conversation.transcript.items() if item["role"] == "user"]
            assert arguments["asked"] in (said or [""]), "a tool with effects was called before the end of the turn"
        await self.call.takes(2500)
        return ToolResult(f"done {self.name}", ok=self.call.chance.random() < 0.8)


class RandomKnowledge(KnowledgeSearch):
    """A search with results for some words, after a random delay, or with a failure."""

    def __init__(self, call: RandomCall) -> None:
        self.call = call

    async def search(self, agent_id: str, text: str, limit: int, *, owner: str | None = None) -> list[FoundPassage]:
        await self.call.takes(800)
        if self.call.chance.random() < 0.1:
            raise StorageUnavailable("full")
        numbers = {int(word[1:]) % 7 for word in text.split() if word.startswith("u")}
        return [FoundPassage(f"passage {number}", "d", 0.9, "d", number) for number in sorted(numbers) if number < 4][
            :limit
        ]


def spelt(number: int) -> str:
    """Returns a number as three letters, so that words are not normalized."""
    return "".join("bcdfghjklm"[int(digit)] for digit in f"{number:03}")


def answer_of(word: str) -> str:
    """Returns the response of the language model that a word is part of, "" for other words."""
    return word[3:6] if word.lower().startswith("ans") else ""
