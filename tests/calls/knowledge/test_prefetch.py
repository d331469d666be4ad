"""Knowledge prefetch: searches while the caller is still speaking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from structlog.testing import capture_logs

from calls.knowledge import prefetch as prefetch_module
from calls.knowledge.prefetch import KnowledgePrefetch
from calls.knowledge.search import KnowledgeSearch
from storage.database.errors import StorageUnavailable
from storage.knowledge.passages import FoundPassage
from tests.fakes.scripted_call import settle


def passage(text: str, score: float = 0.9, position: int = 0) -> FoundPassage:
    return FoundPassage(text, "Fees", score, "d1", position)


class GatedSearch(KnowledgeSearch):
    """A search that returns the question itself. `gate` delays searches."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.under_way = self.most_under_way = 0
        self.error: Exception | None = None

    async def search(self, agent_id: str, text: str, limit: int, *, owner: str | None = None) -> list[FoundPassage]:
        self.asked.append(text)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await self.gate.wait()
            if self.error is not None:
                raise self.error
            return [passage(text)][:limit]
        finally:
            self.under_way -= 1


Open = Callable[..., KnowledgePrefetch]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch_module, "PAUSE_FACTOR", 0.0)


@pytest.fixture
def gated_search() -> GatedSearch:
    return GatedSearch()


@pytest.fixture
async def opened(gated_search: GatedSearch) -> AsyncIterator[Open]:
    prefetches: list[KnowledgePrefetch] = []

    def make(*, enabled: bool = True) -> KnowledgePrefetch:
        prefetches.append(KnowledgePrefetch(gated_search, "agent", enabled=enabled))
        return prefetches[-1]

    yield make
    for prefetch in prefetches:
        prefetch.close()
    await settle()
    assert KnowledgePrefetch._running == 0
    assert gated_search.under_way == 0


async def test_a_prefetched_question_is_not_searched_again(gated_search: GatedSearch, opened: Open) -> None:
    prefetch = opened()
    prefetch.on_partial_transcript("what does a berth cost")
    await settle()
    assert prefetch.cached("What does a berth cost?") == [passage("what does a berth cost")]
    assert await prefetch.search("the cost of a berth") == [passage("what does a berth cost")]
    assert gated_search.asked == ["what does a berth cost"]


async def test_an_old_result_is_searched_again(
    gated_search: GatedSearch, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefetch = opened()
    prefetch.on_partial_transcript("what does a berth cost")
    await settle()
    monkeypatch.setattr(prefetch_module, "_MAX_AGE_S", -1.0)
    assert prefetch.cached("what does a berth cost") == []
    await prefetch.search("what does a berth cost")
    prefetch.on_partial_transcript("what does a berth cost")
    await settle()
    assert len(gated_search.asked) == 3


async def test_a_different_question_is_searched_by_itself(gated_search: GatedSearch, opened: Open) -> None:
    prefetch = opened()
    prefetch.on_partial_transcript("what does a berth cost")
    await settle()
    assert prefetch.cached("when do you open on sundays") == []
    assert await prefetch.search("when do you open on sundays") == [passage("when do you open on sundays")]


async def test_one_more_word_of_many_is_a_similar_question(opened: Open) -> None:
    prefetch = opened()
    prefetch.on_partial_transcript("berth yacht ten metres euros night")
    await settle()
    assert prefetch.cached("berth yacht ten metres euros night harbour")
    assert not prefetch.cached("berth yacht ten")


async def test_words_without_new_terms_are_not_searched(gated_search: GatedSearch, opened: Open) -> None:
    prefetch = opened()
    for said in (
        "",
        "...",
        "what is that",
        "what does a berth",
        "well what does the berth",
        "what, a BERTH",
        "a berth cost",
    ):
        prefetch.on_partial_transcript(said)
        await settle()
    assert gated_search.asked == ["what does a berth", "a berth cost"]


async def test_one_search_at_a_time_and_then_the_newest_words(gated_search: GatedSearch, opened: Open) -> None:
    prefetch = opened()
    gated_search.gate.clear()
    for said in ("berth", "berth cost", "berth cost night", "berth cost night sunday"):
        prefetch.on_partial_transcript(said)
        await settle()
    assert gated_search.asked == ["berth"]
    gated_search.gate.set()
    await settle()
    assert gated_search.asked == ["berth", "berth cost night sunday"]
    assert gated_search.most_under_way == 1


async def test_all_calls_together_have_a_limited_number_of_prefetches(
    gated_search: GatedSearch, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    gated_search.gate.clear()
    prefetches = [opened() for _ in range(prefetch_module.CONCURRENT_SEARCHES + 3)]
    for number, prefetch in enumerate(prefetches):
        prefetch.on_partial_transcript(f"berth {number}")
    await settle()
    assert gated_search.under_way == prefetch_module.CONCURRENT_SEARCHES
    own = asyncio.create_task(
        prefetches[-1].search(f"berth {len(prefetches) - 1}")
    )  # a search does not wait for prefetches
    await settle()
    assert gated_search.under_way == prefetch_module.CONCURRENT_SEARCHES + 1
    gated_search.gate.set()
    assert await own == [passage(f"berth {len(prefetches) - 1}")]
    async with asyncio.timeout(5):
        # The others start when a slot is free, which has no event.
        while len(gated_search.asked) < len(prefetches) + 1:  # noqa: ASYNC110
            await asyncio.sleep(prefetch_module.RETRY_S)


async def test_a_call_pauses_after_a_prefetch_in_proportion_to_its_duration(
    gated_search: GatedSearch, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch_module, "PAUSE_FACTOR", 1e6)
    prefetch = opened()
    for said in ("berth", "berth cost", "berth cost night"):
        prefetch.on_partial_transcript(said)
        await settle()
    assert gated_search.asked == ["berth"]
    assert await prefetch.search("berth cost night") == [passage("berth cost night")]


async def test_a_search_waits_for_a_similar_prefetch_under_way(gated_search: GatedSearch, opened: Open) -> None:
    prefetch = opened()
    gated_search.gate.clear()
    prefetch.on_partial_transcript("what does a berth cost")
    asked = asyncio.create_task(prefetch.search("what does a berth cost"))
    await settle()
    assert prefetch.cached("what does a berth cost") == []
    gated_search.gate.set()
    assert await asked == [passage("what does a berth cost")]
    assert len(gated_search.asked) == 1


@pytest.mark.parametrize(
    ("error", "event"),
    [
        (StorageUnavailable("full"), ("knowledge_prefetch.failed", "info", "lookup.failed")),
        (ValueError("ours"), ("knowledge_prefetch.error", "error", "lookup.broken")),
    ],
)
async def test_a_failed_prefetch_is_only_logged(
    gated_search: GatedSearch, opened: Open, error: Exception, event: tuple[str, ...]
) -> None:
    prefetch = opened()
    gated_search.error = error
    with capture_logs() as logs:
        prefetch.on_partial_transcript("what does a berth cost")
        await settle()
    assert [(each["event"], each["log_level"], each["deprecated_event"]) for each in logs] == [event]
    assert prefetch.cached("what does a berth cost") == []
    gated_search.error = None
    assert await prefetch.search("what does a berth cost") == [passage("what does a berth cost")]


async def test_nothing_is_prefetched_without_documents_or_after_the_call(
    gated_search: GatedSearch, opened: Open
) -> None:
    opened(enabled=False).on_partial_transcript("berth")
    over = opened()
    over.close()
    over.on_partial_transcript("berth")
    await settle()
    assert gated_search.asked == []
    assert await over.search("berth") == [passage("berth")]


async def test_the_end_of_the_call_cancels_its_prefetch(gated_search: GatedSearch, opened: Open) -> None:
    prefetch = opened()
    gated_search.gate.clear()
    prefetch.on_partial_transcript("berth")
    await settle()
    prefetch.close()
    await settle()
    assert gated_search.under_way == 0
