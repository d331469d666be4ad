"""What the bench of models measures with: files of real shapes, talks, and what it says of its rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bench.models.llm import LOCKED, OURS, PEER, misses
from bench.models.llm_load import EARLIER, LATEST, SYSTEM_TOKENS, Answer, LlmSessions, Message
from bench.models.random_gguf import SHAPES, shape_file
from bench.models.random_vocabulary import sentence, words
from models.llm.llama.bindings import LlamaModel


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    return LlamaModel(shape_file("15M", tmp_path_factory.mktemp("shapes")))


def test_every_word_is_one_token_that_reads_back_as_itself(small: LlamaModel) -> None:
    text = sentence("any", 50)
    tokens = small.tokenize(text)
    assert len(tokens) == 50
    assert b"".join(small.token_to_piece(token) for token in tokens).decode() == text
    assert set(text.split()) <= set(words(SHAPES["15M"].syllables))


def test_a_file_has_the_vocabulary_of_its_shape_and_a_template(small: LlamaModel) -> None:
    assert small.vocabulary_size == SHAPES["15M"].vocabulary
    assert small.chat_template is not None
    assert len(small.tokenize("<|im_start|>assistant\n")) == 3


class Echo:
    """Writes a word every millisecond, and remembers what it was told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[Message], int]] = []

    async def answer(self, call: str, messages: Sequence[Message], tokens: int, into: Answer) -> None:
        self.heard.append((call, list(messages), tokens))
        for _ in range(tokens):
            await asyncio.sleep(0.001)
            into.add(" bake")

    async def settle(self) -> None:
        pass


async def test_each_turn_tells_the_whole_talk_again() -> None:
    model = Echo()
    times = await LlmSessions(model).first_tokens([1, 3])
    assert len(times["first_s"]) == 2
    calls, told, tokens = zip(*model.heard, strict=True)
    assert len(set(calls)) == 1
    assert [len(messages) for messages in told] == [2, 5, 6]
    assert told[2][:5] == told[1], "what was said does not change"
    assert len(told[0][0]["content"].split()) == SYSTEM_TOKENS - 5
    assert tokens == (5, 1, 5), "what lies between is read, not written"


async def test_calls_that_talk_on_forget_before_their_talk_grows_too_long() -> None:
    model = Echo()
    talks = LlmSessions(model)
    await talks.prepare(2, alike=False, read=True)
    assert [len(messages) for _, messages, _ in model.heard] == [1 + 2 * EARLIER] * 2
    row = await talks.turns(2, alike=False, seconds=0.7)
    assert row["turns_per_s"] > 0
    assert max(len(messages) for _, messages, _ in model.heard) <= 2 * LATEST + 2


async def test_the_gaps_of_a_speaking_call_end_with_the_other_one_s_first_word() -> None:
    row = await LlmSessions(Echo()).beside()
    assert row["alone_s"]
    assert row["gaps_s"]
    assert sum(row["gaps_s"]) <= row["first_s"] + max(row["gaps_s"]) + max(row["alone_s"])


def test_goals_that_are_missed_are_named() -> None:
    turns = {"model": "0.6B", "what": "turns", "kind": "turns", "calls": 8}
    assert not misses([{**turns, "times_locked": 5.1, "times_peer": 0.95}])
    assert len(misses([{**turns, "times_locked": 4.9, "times_peer": 0.85}])) == 2
    assert not misses([{**turns, "calls": 4, "times_locked": 1.0, "times_peer": 0.1}])
    second = {"model": "0.6B", "what": "second", "kind": "second", OURS: 300, LOCKED: 1000, PEER: 300}
    assert len(misses([{**second, "times_locked": 0.3}])) == 1
    beside = {"model": "0.6B", "what": "beside", "kind": "beside", OURS: [20, 50, 121]}
    assert len(misses([beside])) == 1
