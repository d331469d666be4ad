"""What is looked up in an agent's documents while the caller still speaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from structlog.testing import capture_logs

from calls.knowledge import prefetch as lookup_module
from calls.knowledge.prefetch import KnowledgePrefetch
from calls.knowledge.search import KnowledgeSearch
from storage.database.database import StorageUnavailable
from storage.knowledge.passages import FoundPassage
from tests.fakes.scripted_call import settle


def passage(text: str, score: float = 0.9, position: int = 0) -> FoundPassage:
    return FoundPassage(text, "Fees", score, "d1", position)


class Shelf(KnowledgeSearch):
    """Finds the question itself. `gate` holds searches back."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.under_way = self.most_under_way = 0
        self.error: Exception | None = None

    async def search(self, agent_id: str, text: str, most: int) -> list[FoundPassage]:
        self.asked.append(text)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.gate.wait()
            if self.error is not None:
                raise self.error
            return [passage(text)][:most]
        finally:
            self.under_way -= 1


Open = Callable[..., KnowledgePrefetch]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_module, "PAUSE_FACTOR", 0.0)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
async def opened(shelf: Shelf) -> AsyncIterator[Open]:
    lookups: list[KnowledgePrefetch] = []

    def make(**more: bool) -> KnowledgePrefetch:
        lookups.append(KnowledgePrefetch(shelf, "agent", **more))
        return lookups[-1]

    yield make
    for lookup in lookups:
        lookup.close()
    await settle()
    assert KnowledgePrefetch._running == 0
    assert shelf.under_way == 0


async def test_what_was_found_while_the_caller_spoke_is_not_searched_again(shelf: Shelf, opened: Open) -> None:
    lookup = opened()
    lookup.on_partial_transcript("what does a berth cost")
    await settle()
    assert lookup.cached("What does a berth cost?") == [passage("what does a berth cost")]
    assert await lookup.search("the cost of a berth") == [passage("what does a berth cost")]
    assert shelf.asked == ["what does a berth cost"]


async def test_what_was_found_long_ago_is_searched_again(
    shelf: Shelf, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookup = opened()
    lookup.on_partial_transcript("what does a berth cost")
    await settle()
    monkeypatch.setattr(lookup_module, "_FRESH_S", -1.0)
    assert lookup.cached("what does a berth cost") == []
    await lookup.search("what does a berth cost")
    lookup.on_partial_transcript("what does a berth cost")
    await settle()
    assert len(shelf.asked) == 3


async def test_another_question_is_searched_by_itself(shelf: Shelf, opened: Open) -> None:
    lookup = opened()
    lookup.on_partial_transcript("what does a berth cost")
    await settle()
    assert lookup.cached("when do you open on sundays") == []
    assert await lookup.search("when do you open on sundays") == [passage("when do you open on sundays")]


async def test_one_word_more_of_many_is_nearly_the_same(opened: Open) -> None:
    lookup = opened()
    lookup.on_partial_transcript("berth yacht ten metres euros night")
    await settle()
    assert lookup.cached("berth yacht ten metres euros night harbour")
    assert not lookup.cached("berth yacht ten")


async def test_words_that_ask_for_nothing_new_are_not_searched_for(shelf: Shelf, opened: Open) -> None:
    lookup = opened()
    for said in (
        "",
        "...",
        "what is that",
        "what does a berth",
        "well what does the berth",
        "what, a BERTH",
        "a berth cost",
    ):
        lookup.on_partial_transcript(said)
        await settle()
    assert shelf.asked == ["what does a berth", "a berth cost"]


async def test_one_search_at_a_time_and_then_the_newest_words(shelf: Shelf, opened: Open) -> None:
    lookup = opened()
    shelf.gate.clear()
    for said in ("berth", "berth cost", "berth cost night", "berth cost night sunday"):
        lookup.on_partial_transcript(said)
        await settle()
    assert shelf.asked == ["berth"]
    shelf.gate.set()
    await settle()
    assert shelf.asked == ["berth", "berth cost night sunday"]
    assert shelf.most_under_way == 1


async def test_all_calls_together_have_few_searches_ahead(
    shelf: Shelf, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.gate.clear()
    lookups = [opened() for _ in range(lookup_module.CONCURRENT_SEARCHES + 3)]
    for number, lookup in enumerate(lookups):
        lookup.on_partial_transcript(f"berth {number}")
    await settle()
    assert shelf.under_way == lookup_module.CONCURRENT_SEARCHES
    own = asyncio.create_task(lookups[-1].search(f"berth {len(lookups) - 1}"))  # who asks waits for nobody
    await settle()
    assert shelf.under_way == lookup_module.CONCURRENT_SEARCHES + 1
    shelf.gate.set()
    assert await own == [passage(f"berth {len(lookups) - 1}")]
    async with asyncio.timeout(5):
        # The others have their turn when there is room, of which nothing tells.
        while len(shelf.asked) < len(lookups) + 1:  # noqa: ASYNC110
            await asyncio.sleep(lookup_module.RETRY_S)


async def test_a_call_rests_after_a_search_for_some_times_as_long(
    shelf: Shelf, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_module, "PAUSE_FACTOR", 1e6)
    lookup = opened()
    for said in ("berth", "berth cost", "berth cost night"):
        lookup.on_partial_transcript(said)
        await settle()
    assert shelf.asked == ["berth"]
    assert await lookup.search("berth cost night") == [passage("berth cost night")]


async def test_a_search_that_is_under_way_is_waited_for(shelf: Shelf, opened: Open) -> None:
    lookup = opened()
    shelf.gate.clear()
    lookup.on_partial_transcript("what does a berth cost")
    asked = asyncio.create_task(lookup.search("what does a berth cost"))
    await settle()
    assert lookup.cached("what does a berth cost") == []
    shelf.gate.set()
    assert await asked == [passage("what does a berth cost")]
    assert len(shelf.asked) == 1


@pytest.mark.parametrize(("error", "level"), [(StorageUnavailable("full"), "info"), (ValueError("ours"), "error")])
async def test_a_search_ahead_that_fails_does_no_harm(shelf: Shelf, opened: Open, error: Exception, level: str) -> None:
    lookup = opened()
    shelf.error = error
    with capture_logs() as logs:
        lookup.on_partial_transcript("what does a berth cost")
        await settle()
    assert [each["log_level"] for each in logs] == [level]
    assert lookup.cached("what does a berth cost") == []
    shelf.error = None
    assert await lookup.search("what does a berth cost") == [passage("what does a berth cost")]


async def test_nothing_is_searched_ahead_without_documents_or_after_the_call(shelf: Shelf, opened: Open) -> None:
    opened(enabled=False).on_partial_transcript("berth")
    over = opened()
    over.close()
    over.on_partial_transcript("berth")
    await settle()
    assert shelf.asked == []
    assert await over.search("berth") == [passage("berth")]


async def test_the_end_of_the_call_ends_a_search_that_nobody_waits_for(shelf: Shelf, opened: Open) -> None:
    lookup = opened()
    shelf.gate.clear()
    lookup.on_partial_transcript("berth")
    await settle()
    lookup.close()
    await settle()
    assert shelf.under_way == 0
