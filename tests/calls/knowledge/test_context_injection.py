"""Knowledge injection: passages about the caller's words in the language model's context."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from calls.conversation.config import ConversationConfig
from calls.conversation.dtmf_collector import DtmfEntry
from calls.knowledge import prefetch as prefetch_module
from calls.knowledge.context_injection import MIN_HYBRID_SCORE, MIN_SCORE
from calls.knowledge.prefetch import KnowledgePrefetch
from calls.knowledge.search import KnowledgeSearch
from calls.tools.builtin_tools import SearchKnowledgeTool
from models.protocols import ChatPrompt, ToolCall
from models.rule_based.responder import ExtractiveResponder
from storage.knowledge.passages import FoundPassage
from tests.calls.conversation.test_prompt_prefill import Preparing
from tests.fakes.scripted_call import WORD_MS, ScriptedCall, settle

LISTENS = ConversationConfig("You help.")
ASKED = "what does a berth cost"
COST = FoundPassage("Fees\nA berth costs twenty euros.", "Fees", 0.9, "d1", 3)
NIGHT = FoundPassage("Fees\nThat is for a night.", "Fees", 0.8, "d1", 4)
CRANE = FoundPassage("Crane\nThe crane lifts ten tons.", "Crane", 0.5, "d2", 0)


class FixedSearch(KnowledgeSearch):
    """A search with the same passages for every question."""

    def __init__(self, *found: FoundPassage) -> None:
        self.found = list(found)
        self.asked: list[str] = []

    async def search(self, agent_id: str, text: str, limit: int, *, owner: str | None = None) -> list[FoundPassage]:
        self.asked.append(text)
        return self.found[:limit]


class Speaker:
    """A conversation with partial transcripts."""

    def __init__(self, fixed_search: FixedSearch, *answers: Any, model: Any = None) -> None:
        self.fixed_search = fixed_search
        self.prefetch = KnowledgePrefetch(fixed_search, "agent")
        self.language = model or Preparing(*answers)
        self.call = ScriptedCall(
            LISTENS,
            model=self.language,
            tools=[SearchKnowledgeTool(self.prefetch, "For prices")],
            knowledge_prefetch=self.prefetch,
        )

    async def hears(self, text: str) -> None:
        self.call.stt.partial_text = text
        self.prefetch.on_partial_transcript(text)
        await settle()

    async def is_asked(self, text: str) -> None:
        await self.call.starts_speaking()
        await self.hears(text)
        await self.call.stops_speaking(text)

    @property
    def sources(self) -> list[list[tuple[str, int]]]:
        turns = self.call.conversation.timeline.items()
        return [[(each["document_id"], each["position"]) for each in turn["sources"]] for turn in turns]


Begin = Callable[..., Speaker]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch_module, "PAUSE_FACTOR", 0.0)


@pytest.fixture
async def begin() -> AsyncIterator[Begin]:
    speakers: list[Speaker] = []

    def make(fixed_search: FixedSearch, *answers: Any, **more: Any) -> Speaker:
        speakers.append(Speaker(fixed_search, *answers, **more))
        return speakers[-1]

    yield make
    for speaker in speakers:
        await speaker.call.close()


def lines(prompt: ChatPrompt) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in prompt.messages]


def passages_as_tool_use(*found: FoundPassage) -> list[tuple[str, str]]:
    text = "\n\n".join(f"From the document {each.document}:\n{each.content}" for each in found)
    return [("assistant", ""), ("tool", text)]


async def test_prefetched_passages_precede_the_callers_words_in_the_prompt(begin: Begin) -> None:
    speaker = begin(FixedSearch(COST, NIGHT, CRANE), "Twenty euros.")
    await speaker.is_asked(ASKED)
    assert lines(speaker.language.prompts[0]) == [*passages_as_tool_use(COST, NIGHT), ("user", ASKED)]
    assert speaker.sources == [[("d1", 3), ("d1", 4)]]
    assert speaker.fixed_search.asked == [ASKED]
    await speaker.call.play(5 * WORD_MS)
    assert speaker.call.items == [("user", ASKED), ("assistant", "Twenty euros.")]


async def test_passages_are_prefilled_while_the_caller_still_speaks(begin: Begin) -> None:
    speaker = begin(FixedSearch(COST), "Twenty euros.")
    await speaker.call.starts_speaking()
    await speaker.hears("what does a berth")
    assert speaker.language.read == [passages_as_tool_use(COST)]
    assert speaker.language.reads == 1
    await speaker.hears(ASKED)
    await speaker.call.stops_speaking(ASKED)
    assert lines(speaker.language.prompts[0])[:2] == speaker.language.read[0]
    assert speaker.language.reads == 0


async def test_later_results_for_the_same_words_are_injected(begin: Begin) -> None:
    speaker = begin(FixedSearch(COST), "Ten tons.")
    await speaker.call.starts_speaking()
    speaker.call.stt.partial_text = "does a berth have a crane"
    speaker.prefetch.on_partial_transcript("does a berth have")  # the words come before the search results
    await settle()
    speaker.fixed_search.found = [CRANE]
    await speaker.hears("does a berth have a crane")
    await speaker.call.stops_speaking("does a berth have a crane")
    assert lines(speaker.language.prompts[0])[:2] == passages_as_tool_use(CRANE)


async def test_a_speculative_response_has_the_passages_and_is_used(begin: Begin) -> None:
    speaker = begin(FixedSearch(COST), "Twenty euros.")
    await speaker.call.starts_speaking()
    await speaker.hears(ASKED)
    await speaker.call.falls_silent(ASKED)
    assert speaker.sources == []
    speaker.fixed_search.found = [NIGHT]
    await speaker.hears(f"{ASKED} now")  # other passages are nearer now
    await speaker.call.stops_speaking(ASKED)
    assert len(speaker.language.prompts) == 1
    assert lines(speaker.language.prompts[0]) == [*passages_as_tool_use(COST), ("user", ASKED)]
    assert speaker.sources == [[("d1", 3)]]


async def test_a_passage_in_the_conversation_is_not_injected_again(begin: Begin) -> None:
    speaker = begin(FixedSearch(COST), "Twenty euros.", "Yes, twenty.")
    await speaker.is_asked(ASKED)
    await speaker.call.play(5 * WORD_MS)
    await speaker.is_asked("does a berth cost twenty euros")
    assert [line for line in lines(speaker.language.prompts[1]) if line[0] == "tool"] == passages_as_tool_use(COST)[1:]
    assert speaker.sources == [[("d1", 3)], []]


UNSURE = FoundPassage(COST.content, "Fees", MIN_SCORE - 0.01, "d1", 3)
RELATED = replace(UNSURE, score=MIN_HYBRID_SCORE - 0.01, by_vector=True)


@pytest.mark.parametrize("found", [[], [UNSURE], [RELATED]], ids=["none", "unsure", "of a like matter"])
async def test_passages_below_the_minimum_score_are_not_injected(begin: Begin, found: Sequence[FoundPassage]) -> None:
    call = ToolCall("1", "search_knowledge", '{"query": "the cost of a berth"}')
    speaker = begin(FixedSearch(*found), [call], "I do not know.")
    await speaker.is_asked(ASKED)
    assert lines(speaker.language.prompts[0]) == [("user", ASKED)]
    assert [line[0] for line in lines(speaker.language.prompts[1])] == ["user", "assistant", "tool"]
    assert speaker.fixed_search.asked == [ASKED], "the search of the model uses the prefetch"
    assert speaker.sources == [[(each.document_id, each.position) for each in found]]


async def test_an_extended_turn_keeps_the_passages_of_its_beginning(begin: Begin) -> None:
    speaker = begin(FixedSearch(COST), "Twenty.", "Twenty, and the crane ten.")
    speaker.call.tts.gate.clear()
    speaker.call.tts.ungated_sentences = 0
    await speaker.is_asked(ASKED)
    speaker.fixed_search.found = [CRANE]
    await speaker.is_asked("and how much does the crane lift")
    assert lines(speaker.language.prompts[1]) == [
        *passages_as_tool_use(COST),
        *passages_as_tool_use(CRANE),
        ("user", f"{ASKED} and how much does the crane lift"),
    ]
    assert speaker.sources == [[("d1", 3), ("d2", 0)]]


async def test_dtmf_digits_inject_nothing(begin: Begin) -> None:
    speaker = begin(FixedSearch(COST), "Thank you.")
    await speaker.hears("42")
    speaker.call.events.put(DtmfEntry("42"))
    await settle()
    assert lines(speaker.language.prompts[0]) == [("user", "42")]


async def test_a_rule_based_model_gets_no_passages_injected(begin: Begin) -> None:
    speaker = begin(FixedSearch(COST), model=ExtractiveResponder())
    await speaker.is_asked(ASKED)
    await speaker.call.tts.until_spoken(1)
    assert speaker.call.tts.spoken == ["A berth costs twenty euros."]
    assert speaker.fixed_search.asked == [ASKED]
    assert speaker.sources == [[("d1", 3)]]
    assert [tool["name"] for tool in speaker.call.conversation.timeline.items()[0]["tools"]] == ["search_knowledge"]
