"""The language model benchmark: model files of real shapes, conversations, and its goals."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from bench.models.llm import LOCKED_LLAMA, TRUNKLINE, XLLAMACPP, missed_goals
from bench.models.llm_sessions import EARLIER_TURNS, MAX_TURNS, SYSTEM_TOKENS, Answer, LlmSessions, Message
from bench.models.random_gguf import SHAPES, shape_file
from bench.models.random_vocabulary import sentence, words
from models.llm.llama.bindings import LlamaModel


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> LlamaModel:
    return LlamaModel(shape_file("15M", tmp_path_factory.mktemp("shapes")))


def test_every_word_is_one_token_that_decodes_to_itself(small: LlamaModel) -> None:
    text = sentence("any", 50)
    tokens = small.tokenize(text)
    assert len(tokens) == 50
    assert b"".join(small.token_to_piece(token) for token in tokens).decode() == text
    assert set(text.split()) <= set(words(SHAPES["15M"].syllables))


def test_a_file_has_the_vocabulary_of_its_shape_and_a_template(small: LlamaModel) -> None:
    assert small.vocabulary_size == SHAPES["15M"].vocabulary
    assert small.chat_template is not None
    assert len(small.tokenize("<|im_start|>assistant\n")) == 3


class RecordingLlm:
    """Generates a token every millisecond and records its requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, list[Message], int]] = []

    async def answer(self, call: str, messages: Sequence[Message], tokens: int, into: Answer) -> None:
        self.requests.append((call, list(messages), tokens))
        for _ in range(tokens):
            await asyncio.sleep(0.001)
            into.add(" bake")

    async def settle(self) -> None:
        pass


async def test_each_turn_sends_the_whole_history() -> None:
    model = RecordingLlm()
    times = await LlmSessions(model).first_tokens([1, 3])
    assert len(times["first_s"]) == 2
    calls, histories, tokens = zip(*model.requests, strict=True)
    assert len(set(calls)) == 1
    assert [len(messages) for messages in histories] == [2, 5, 6]
    assert histories[2][:5] == histories[1], "earlier messages do not change"
    assert len(histories[0][0]["content"].split()) == SYSTEM_TOKENS - 5
    assert tokens == (5, 1, 5), "skipped turns are processed, not generated"


async def test_long_conversations_are_rewound() -> None:
    model = RecordingLlm()
    sessions = LlmSessions(model)
    await sessions.prepare(2, one_agent=False, prefill=True)
    assert [len(messages) for _, messages, _ in model.requests] == [1 + 2 * EARLIER_TURNS] * 2
    row = await sessions.turns(2, one_agent=False, seconds=0.7)
    assert row["turns_per_s"] > 0
    assert max(len(messages) for _, messages, _ in model.requests) <= 2 * MAX_TURNS + 2


async def test_prefill_interference_ends_with_the_other_call_s_first_token() -> None:
    row = await LlmSessions(RecordingLlm()).prefill_interference()
    assert row["alone_s"]
    assert row["gaps_s"]
    assert sum(row["gaps_s"]) <= row["first_s"] + max(row["gaps_s"]) + max(row["alone_s"])


def test_missed_goals_names_every_missed_goal() -> None:
    turns = {"model": "0.6B", "what": "turns", "kind": "turns", "calls": 8}
    assert not missed_goals([{**turns, "times_locked_llama": 5.1, "times_xllamacpp": 0.95}])
    assert len(missed_goals([{**turns, "times_locked_llama": 4.9, "times_xllamacpp": 0.85}])) == 2
    assert not missed_goals([{**turns, "calls": 4, "times_locked_llama": 1.0, "times_xllamacpp": 0.1}])
    second = {"model": "0.6B", "what": "second", "kind": "second", TRUNKLINE: 300, LOCKED_LLAMA: 1000, XLLAMACPP: 300}
    assert len(missed_goals([{**second, "times_locked_llama": 0.3}])) == 1
    kind = "prefill_interference"
    assert len(missed_goals([{"model": "0.6B", "what": kind, "kind": kind, TRUNKLINE: [20, 50, 121]}])) == 1
