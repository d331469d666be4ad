"""Latency of a response from a document, simulated on a virtual clock with a model of known speed.
`python -m tests.calls.knowledge.retrieval_simulation` prints the table of docs/background/knowledge.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Literal

from calls.conversation.config import ConversationConfig
from calls.knowledge.context_injection import MIN_SCORE
from calls.knowledge.prefetch import KnowledgePrefetch
from calls.knowledge.search import KnowledgeSearch
from calls.tools.builtin_tools import SearchKnowledgeTool
from media.audio_port import TICK_MS
from models.protocols import SEARCH_KNOWLEDGE, ChatPrompt, LlmOutput, TextDelta, ToolCall
from storage.knowledge.passages import FoundPassage
from tests.fakes.scripted_call import ScriptedCall
from tests.virtual_time import run_virtually

WORD_MS: Final = 350
"""In which the caller says a word."""
LATE_MS: Final = 200
"""After it the recognizer has it."""
SILENT_MS: Final = 200
"""Of silence, then the answer is begun."""
ENDS_MS: Final = 500
"""Of silence, then the turn is over."""
SEARCH_S: Final = 0.015
ASKED: Final = "could you tell me please what a berth for a yacht of ten metres costs"
PASSAGE_WORDS: Final = 200

Way = Literal["asked", "searched ahead", "told ahead"]
WAYS: Final[tuple[Way, ...]] = ("asked", "searched ahead", "told ahead")


@dataclass(frozen=True)
class ModelSpeed:
    """Speed of a language model: tokens per second of prompt and completion, and seconds to the first token."""

    name: str
    read: float
    write: float
    begins_s: float
    prepares: bool


PACES: Final = (
    ModelSpeed("0.6B on two cores", 195, 30, 0.0, True),
    ModelSpeed("on a graphics card", 3000, 80, 0.02, True),
    ModelSpeed("hosted elsewhere", 20_000, 80, 0.35, False),
)


class PacedLlm:
    """A model that searches the documents unless passages are in the prompt, then responds with a sentence. It reads
    the part of the prompt that is not prefilled."""

    name = "paced"

    def __init__(self, speed: ModelSpeed) -> None:
        self.pace = speed
        self.rounds = 0
        self._read: list[str] = []

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        """Yields a search call if there is none in the messages, else the response."""
        self.rounds += 1
        await asyncio.sleep(self.pace.begins_s)
        await self._take_in(prompt)
        if any(message.role == "tool" for message in prompt.messages):
            await asyncio.sleep(10 / self.pace.write)
            yield TextDelta("It costs twenty euros a night.")
        else:
            await asyncio.sleep(28 / self.pace.write)
            yield ToolCall("1", SEARCH_KNOWLEDGE, '{"query": "berth yacht ten metres cost"}')

    async def prefill(self, prompt: ChatPrompt) -> None:
        """See `SupportsPrefill`."""
        if self.pace.prepares:
            await self._take_in(prompt)

    async def _take_in(self, prompt: ChatPrompt) -> None:
        words = " ".join(message.content for message in prompt.messages).split()
        known = 0
        while known < min(len(words), len(self._read)) and words[known] == self._read[known]:
            known += 1
        self._read = self._read[:known] if self.pace.prepares else []
        for word in words[known if self.pace.prepares else 0 :]:
            await asyncio.sleep(1.3 / self.pace.read)
            self._read.append(word)


class _Shelf(KnowledgeSearch):
    def __init__(self) -> None:
        self.searches = 0

    async def search(self, agent_id: str, text: str, limit: int, *, owner: str | None = None) -> list[FoundPassage]:
        self.searches += 1
        await asyncio.sleep(SEARCH_S)
        score = 0.7 if "berth" in text else MIN_SCORE / 2
        passages = [f"berth {number} " + "word " * (PASSAGE_WORDS - 2) for number in range(limit)]
        return [FoundPassage(text, "Fees", score - 0.05 * number, "d", number) for number, text in enumerate(passages)]


@dataclass(frozen=True)
class Outcome:
    """`gap_ms`: from the end of the caller's speech to the agent's first audio. `rounds`: requests to the model."""

    gap_ms: int
    rounds: int
    searches: int


def outcome(speed: ModelSpeed, way: Way) -> Outcome:
    """Run one turn."""
    return run_virtually(_turn(speed, way))


async def _turn(speed: ModelSpeed, way: Way) -> Outcome:
    shelf, language = _Shelf(), PacedLlm(speed)
    lookup = KnowledgePrefetch(shelf, "agent", enabled=way != "asked")
    prefetch = lookup if way == "told ahead" else None
    call = ScriptedCall(
        ConversationConfig("You help."),
        model=language,
        tools=[SearchKnowledgeTool(lookup, "For prices")],
        knowledge_prefetch=prefetch,
    )
    try:
        words = ASKED.split()
        await call.starts_speaking()
        for number in range(1, len(words) + 1):
            said = " ".join(words[:number])
            asyncio.get_running_loop().call_later((WORD_MS * number + LATE_MS) / 1000, _heard, call, lookup, said)
        await _pass(call, WORD_MS * len(words))
        spoken_ms = call.port.now_ms
        await _pass(call, max(SILENT_MS, LATE_MS + TICK_MS))
        await call.falls_silent(ASKED)
        await _pass(call, ENDS_MS - max(SILENT_MS, LATE_MS + TICK_MS))
        await call.stops_speaking(ASKED)
        while (started := call.conversation.timeline.turn.agent_start_ms) is None:
            await _pass(call, TICK_MS)
        return Outcome(round(started - spoken_ms), language.rounds, shelf.searches)
    finally:
        await call.close()


def _heard(call: ScriptedCall, lookup: KnowledgePrefetch, words: str) -> None:
    call.stt.partial_text = words
    lookup.on_partial_transcript(words)


async def _pass(call: ScriptedCall, ms: int) -> None:
    for _ in range(ms // TICK_MS):
        await asyncio.sleep(TICK_MS / 1000)
        await call.play(TICK_MS)


if __name__ == "__main__":
    print("| model | " + " | ".join(WAYS) + " |\n|---|---|---|---|")
    for each in PACES:
        print(f"| {each.name} | " + " | ".join(str(outcome(each, way).gap_ms) for way in WAYS) + " |")
