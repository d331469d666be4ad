"""Assignment and reuse of KV cache sequences, without a model."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from models.llm.llama.batching.kv_cache import CachePlan, CopySequence, KvCacheSlots, TruncateSequence

AGENT = list(range(1000, 1200))
OTHER_AGENT = list(range(2000, 2200))


def conversation(contexts: KvCacheSlots, owner: str, prompt: list[int], answer: list[int], now_s: float) -> CachePlan:
    """A complete response: the prompt is evaluated, and `answer` generated."""
    place = contexts.acquire(owner, prompt, now_s)
    assert place is not None
    contexts.on_evaluated(place.sequence, prompt[place.cached :])
    contexts.on_evaluated(place.sequence, answer)
    contexts.release(place.sequence, now_s)
    return place


def test_the_first_call_evaluates_all_tokens() -> None:
    assert conversation(KvCacheSlots(4), "a", [1, 2, 3], [], 0) == CachePlan(0, 0, ())


def test_a_turn_reuses_the_cached_prefix() -> None:
    contexts = KvCacheSlots(4)
    first = conversation(contexts, "a", [1, 2, 3], [4, 5], 0)
    assert conversation(contexts, "a", [1, 2, 3, 4, 5, 6, 7], [], 1) == CachePlan(first.sequence, 5, ())


def test_tokens_after_the_shared_prefix_are_truncated() -> None:
    contexts = KvCacheSlots(4)
    first = conversation(contexts, "a", [1, 2, 3], [4, 5, 6, 7], 0)
    again = conversation(contexts, "a", [1, 2, 3, 4, 5, 99, 98], [], 1)
    assert again == CachePlan(first.sequence, 5, (TruncateSequence(first.sequence, 5),))
    assert contexts.length(first.sequence) == 7


def test_the_last_token_is_always_evaluated() -> None:
    contexts = KvCacheSlots(4)
    first = conversation(contexts, "a", [1, 2, 3], [], 0)
    assert conversation(contexts, "a", [1, 2, 3], [], 1) == CachePlan(
        first.sequence, 2, (TruncateSequence(first.sequence, 2),)
    )


def test_a_new_call_copies_the_shared_prefix_of_its_agent() -> None:
    contexts = KvCacheSlots(4)
    first = conversation(contexts, "a", [*AGENT, 1, 2], [3], 0)
    second = conversation(contexts, "b", [*AGENT, 8, 9], [], 1)
    assert second == CachePlan(
        second.sequence, 200, (CopySequence(first.sequence, second.sequence), TruncateSequence(second.sequence, 200))
    )
    assert second.sequence != first.sequence
    # The first call's own memory is as it was.
    assert conversation(contexts, "a", [*AGENT, 1, 2, 3, 4], [], 2) == CachePlan(first.sequence, 203, ())


def test_a_busy_sequence_can_be_copied_from() -> None:
    contexts = KvCacheSlots(2)
    place = contexts.acquire("a", [*AGENT, 1], 0)
    assert place is not None
    contexts.on_evaluated(place.sequence, [*AGENT, 1])
    contexts.on_evaluated(place.sequence, [5, 6, 7])
    second = contexts.acquire("b", [*AGENT, 2], 0)
    assert second == CachePlan(1, 200, (CopySequence(0, 1), TruncateSequence(1, 200)))


def test_a_prompt_waits_for_a_shared_prefix_that_is_being_evaluated() -> None:
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


def test_no_prompt_waits_for_a_prefix_of_lower_priority() -> None:
    contexts = KvCacheSlots(4)
    assert contexts.acquire("a", [*AGENT, 1], 0, rank=2) is not None
    assert contexts.idle == 3
    assert contexts.acquire("b", [*AGENT, 2], 0) is not None


def test_no_prompt_waits_for_a_prefix_of_a_cancelled_request() -> None:
    contexts = KvCacheSlots(4)
    place = contexts.acquire("a", [*AGENT, 1], 0)
    assert place is not None
    contexts.on_evaluated(place.sequence, AGENT[:40])
    contexts.release(place.sequence, 1)
    second = contexts.acquire("b", [*AGENT, 2], 1)
    assert second is not None
    assert second.cached == 40


def test_the_least_recently_used_sequence_is_evicted() -> None:
    contexts = KvCacheSlots(2)
    conversation(contexts, "a", [1, 2, 3], [], 0)
    conversation(contexts, "b", [4, 5, 6], [], 1)
    conversation(contexts, "a", [1, 2, 3, 7], [], 2)
    assert conversation(contexts, "c", [8, 9], [], 3) == CachePlan(1, 0, (TruncateSequence(1, 0),))
    assert conversation(contexts, "a", [1, 2, 3, 7, 8], [], 4).cached == 4


def test_an_evicted_call_copies_the_prefix_of_another_sequence() -> None:
    contexts = KvCacheSlots(2)
    conversation(contexts, "a", [*AGENT, 1], [], 0)
    conversation(contexts, "b", [*AGENT, 2], [], 1)
    conversation(contexts, "c", [*OTHER_AGENT, 3], [], 2)
    assert conversation(contexts, "a", [*AGENT, 1, 4], [], 3).cached == 200


def test_a_busy_sequence_is_never_evicted() -> None:
    contexts = KvCacheSlots(2)
    assert contexts.acquire("a", [1, 2], 0) is not None
    assert contexts.acquire("a", [5, 6], 0) is not None
    assert contexts.acquire("c", [3, 4], 0) is None


def test_a_short_shared_prefix_is_evaluated_and_not_copied() -> None:
    contexts = KvCacheSlots(2)
    conversation(contexts, "a", [*AGENT[:15], 1], [], 0)
    assert conversation(contexts, "b", [*AGENT[:15], 2], [], 1) == CachePlan(1, 0, ())
    conversation(contexts, "a", [*AGENT[:31], 1], [], 2)
    assert conversation(contexts, "b", [*AGENT[:31], 2], [], 3) == CachePlan(
        1, 31, (CopySequence(0, 1), TruncateSequence(1, 31))
    )


def test_a_new_call_takes_the_first_empty_sequence() -> None:
    """Adjacent sequences are computed together."""
    contexts = KvCacheSlots(4)
    assert [conversation(contexts, name, [number], [], number).sequence for number, name in enumerate("abc")] == [
        0,
        1,
        2,
    ]


def test_a_cleared_sequence_is_evaluated_again() -> None:
    contexts = KvCacheSlots(2)
    first = conversation(contexts, "a", [1, 2, 3], [], 0)
    contexts.clear(first.sequence)
    assert conversation(contexts, "a", [1, 2, 3, 4], [], 1) == CachePlan(first.sequence, 0, ())


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
def test_a_sequence_always_holds_a_prefix_of_the_prompt(
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
