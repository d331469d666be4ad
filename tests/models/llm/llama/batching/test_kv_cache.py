"""Which sequence holds what, without a model."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from models.llm.llama.batching.kv_cache import CachePlan, CopySequence, KvCacheSlots, TruncateSequence

AGENT = list(range(1000, 1200))
OTHER_AGENT = list(range(2000, 2200))


def talk(contexts: KvCacheSlots, owner: str, prompt: list[int], answer: list[int], now_s: float) -> CachePlan:
    """A whole answer: the prompt is read, `answer` is written."""
    place = contexts.acquire(owner, prompt, now_s)
    assert place is not None
    contexts.on_evaluated(place.sequence, prompt[place.cached :])
    contexts.on_evaluated(place.sequence, answer)
    contexts.release(place.sequence, now_s)
    return place


def test_the_first_call_reads_all() -> None:
    assert talk(KvCacheSlots(4), "a", [1, 2, 3], [], 0) == CachePlan(0, 0, ())


def test_a_turn_reads_only_what_is_new() -> None:
    contexts = KvCacheSlots(4)
    first = talk(contexts, "a", [1, 2, 3], [4, 5], 0)
    assert talk(contexts, "a", [1, 2, 3, 4, 5, 6, 7], [], 1) == CachePlan(first.sequence, 5, ())


def test_what_was_not_said_is_taken_back() -> None:
    contexts = KvCacheSlots(4)
    first = talk(contexts, "a", [1, 2, 3], [4, 5, 6, 7], 0)
    again = talk(contexts, "a", [1, 2, 3, 4, 5, 99, 98], [], 1)
    assert again == CachePlan(first.sequence, 5, (TruncateSequence(first.sequence, 5),))
    assert contexts.length(first.sequence) == 7


def test_the_last_token_is_always_read() -> None:
    contexts = KvCacheSlots(4)
    first = talk(contexts, "a", [1, 2, 3], [], 0)
    assert talk(contexts, "a", [1, 2, 3], [], 1) == CachePlan(first.sequence, 2, (TruncateSequence(first.sequence, 2),))


def test_a_new_call_copies_what_its_agent_begins_with() -> None:
    contexts = KvCacheSlots(4)
    first = talk(contexts, "a", [*AGENT, 1, 2], [3], 0)
    second = talk(contexts, "b", [*AGENT, 8, 9], [], 1)
    assert second == CachePlan(
        second.sequence, 200, (CopySequence(first.sequence, second.sequence), TruncateSequence(second.sequence, 200))
    )
    assert second.sequence != first.sequence
    # The first call's own memory is as it was.
    assert talk(contexts, "a", [*AGENT, 1, 2, 3, 4], [], 2) == CachePlan(first.sequence, 203, ())


def test_a_call_that_speaks_can_be_copied_from() -> None:
    contexts = KvCacheSlots(2)
    place = contexts.acquire("a", [*AGENT, 1], 0)
    assert place is not None
    contexts.on_evaluated(place.sequence, [*AGENT, 1])
    contexts.on_evaluated(place.sequence, [5, 6, 7])
    second = contexts.acquire("b", [*AGENT, 2], 0)
    assert second == CachePlan(1, 200, (CopySequence(0, 1), TruncateSequence(1, 200)))


def test_who_begins_like_one_that_is_being_read_waits_for_it() -> None:
    contexts = KvCacheSlots(4)
    place = contexts.acquire("a", [*AGENT, 1], 0)
    assert place is not None
    contexts.on_evaluated(place.sequence, AGENT[:40])
    assert contexts.acquire("b", [*AGENT, 2], 0) is None
    assert contexts.acquire("c", [*OTHER_AGENT, 2], 0) is not None
    contexts.on_evaluated(place.sequence, [*AGENT[40:], 1])
    second = contexts.acquire("b", [*AGENT, 2], 0)
    assert second is not None
    assert second.cached == 200


def test_nobody_waits_for_one_that_does_not_hurry() -> None:
    contexts = KvCacheSlots(4)
    assert contexts.acquire("a", [*AGENT, 1], 0, rank=2) is not None
    assert contexts.idle == 3
    assert contexts.acquire("b", [*AGENT, 2], 0) is not None


def test_nobody_waits_for_an_answer_that_was_given_up() -> None:
    contexts = KvCacheSlots(4)
    place = contexts.acquire("a", [*AGENT, 1], 0)
    assert place is not None
    contexts.on_evaluated(place.sequence, AGENT[:40])
    contexts.release(place.sequence, 1)
    second = contexts.acquire("b", [*AGENT, 2], 1)
    assert second is not None
    assert second.cached == 40


def test_the_oldest_makes_room() -> None:
    contexts = KvCacheSlots(2)
    talk(contexts, "a", [1, 2, 3], [], 0)
    talk(contexts, "b", [4, 5, 6], [], 1)
    talk(contexts, "a", [1, 2, 3, 7], [], 2)
    assert talk(contexts, "c", [8, 9], [], 3) == CachePlan(1, 0, (TruncateSequence(1, 0),))
    assert talk(contexts, "a", [1, 2, 3, 7, 8], [], 4).cached == 4


def test_a_call_that_lost_its_place_begins_again_with_what_others_hold() -> None:
    contexts = KvCacheSlots(2)
    talk(contexts, "a", [*AGENT, 1], [], 0)
    talk(contexts, "b", [*AGENT, 2], [], 1)
    talk(contexts, "c", [*OTHER_AGENT, 3], [], 2)
    assert talk(contexts, "a", [*AGENT, 1, 4], [], 3).cached == 200


def test_a_busy_sequence_is_never_given_away() -> None:
    contexts = KvCacheSlots(2)
    assert contexts.acquire("a", [1, 2], 0) is not None
    assert contexts.acquire("a", [5, 6], 0) is not None
    assert contexts.acquire("c", [3, 4], 0) is None


def test_what_is_read_as_soon_as_it_is_copied_is_read() -> None:
    contexts = KvCacheSlots(2)
    talk(contexts, "a", [*AGENT[:15], 1], [], 0)
    assert talk(contexts, "b", [*AGENT[:15], 2], [], 1) == CachePlan(1, 0, ())
    talk(contexts, "a", [*AGENT[:31], 1], [], 2)
    assert talk(contexts, "b", [*AGENT[:31], 2], [], 3) == CachePlan(
        1, 31, (CopySequence(0, 1), TruncateSequence(1, 31))
    )


def test_who_comes_takes_the_first_that_is_empty() -> None:
    """Those that are next to each other are computed together."""
    contexts = KvCacheSlots(4)
    assert [talk(contexts, name, [number], [], number).sequence for number, name in enumerate("abc")] == [0, 1, 2]


def test_lost_memory_is_read_anew() -> None:
    contexts = KvCacheSlots(2)
    first = talk(contexts, "a", [1, 2, 3], [], 0)
    contexts.clear(first.sequence)
    assert talk(contexts, "a", [1, 2, 3, 4], [], 1) == CachePlan(first.sequence, 0, ())


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcdef"),
            st.lists(st.integers(0, 2), min_size=1, max_size=90),
            st.integers(0, 30),
            st.integers(0, 3),
        ),
        max_size=40,
    )
)
def test_a_place_always_holds_what_the_prompt_begins_with(
    turns: list[tuple[str, list[int], int, int]],
) -> None:
    """Answers end after a while; while one of the three sequences is free, somebody may have to wait for what comes."""
    contexts, memory, speaking = KvCacheSlots(3), list[list[int]]([[], [], []]), list[int]()
    for now_s, (owner, prompt, most, ending) in enumerate(turns):
        for number in speaking[:ending]:
            contexts.release(number, now_s)
        del speaking[:ending]
        place = contexts.acquire(owner, prompt, now_s)
        if place is None:
            assert speaking
            continue
        for change in place.changes:
            match change:
                case CopySequence(source, target):
                    memory[target] = list(memory[source])
                case TruncateSequence(sequence, tokens):
                    assert tokens <= len(memory[sequence])
                    assert sequence not in speaking
                    del memory[sequence][tokens:]
        assert memory[place.sequence] == prompt[: place.cached]
        assert place.cached < len(prompt)
        new = [*prompt[place.cached :], *range(100, 100 + most)]
        memory[place.sequence] += new
        contexts.on_evaluated(place.sequence, new)
        speaking.append(place.sequence)
