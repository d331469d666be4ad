"""A caller asks something that stands in a document; how long the answer takes, on a virtual clock, with a model of
known pace. `python -m tests.calls.knowledge.retrieval_simulation` prints the table of docs/background/knowledge.md."""

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
class Pace:
    """Of a language model: tokens a second that it reads and writes, and seconds until it begins."""

    name: str
    read: float
    write: float
    begins_s: float
    prepares: bool


PACES: Final = (
    Pace("0.6B on two cores", 195, 30, 0.0, True),
    Pace("on a graphics card", 3000, 80, 0.02, True),
    Pace("hosted elsewhere", 20_000, 80, 0.35, False),
)


class PacedLanguage:
    """Searches the documents when it was not told of them, then answers in a sentence. It reads what it has not
    read."""

    name = "paced"

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.rounds = 0
        self._read: list[str] = []

    async def respond(self, prompt: ChatPrompt) -> AsyncIterator[LlmOutput]:
        """A search that is not among the messages, or the answer."""
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

    async def search(self, agent_id: str, text: str, most: int) -> list[FoundPassage]:
        self.searches += 1
        await asyncio.sleep(SEARCH_S)
        score = 0.7 if "berth" in text else MIN_SCORE / 2
        passages = [f"berth {number} " + "word " * (PASSAGE_WORDS - 2) for number in range(most)]
        return [FoundPassage(text, "Fees", score - 0.05 * number, "d", number) for number, text in enumerate(passages)]


@dataclass(frozen=True)
class Outcome:
    """`gap_ms`: from the caller's last sound to the agent's first. `rounds`: how often the model was asked."""

    gap_ms: int
    rounds: int
    searches: int


def outcome(pace: Pace, way: Way) -> Outcome:
    """One turn."""
    return run_virtually(_turn(pace, way))


async def _turn(pace: Pace, way: Way) -> Outcome:
    shelf, language = _Shelf(), PacedLanguage(pace)
    lookup = KnowledgePrefetch(shelf, "agent", enabled=way != "asked")
    told = lookup if way == "told ahead" else None
    call = ScriptedCall(
        ConversationConfig("You help."),
        model=language,
        tools=[SearchKnowledgeTool(lookup, "For prices")],
        knowledge_prefetch=told,
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
