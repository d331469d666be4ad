"""How much memory a model is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import StartupError
from models.llm.llama.bindings import Model
from models.llm.llama.language_model import LlamaLanguageModel
from models.llm.llama.memory_plan import (
    CONVERSATION_TOKENS,
    LEAST_TOKENS,
    MOST_SEQUENCES,
    MemoryPlan,
    Shape,
    plan_memory,
    sequences_for_calls,
)

MIB = 2**20
SMALL = Shape(layers=28, heads=16, kv_heads=8, key_size=128, value_size=128, weights_bytes=320 * MIB)
"""Like a model of 0.6 billion weights."""


def planned(free_mib: float, *, sequences: int = 16, capacity: int = 4096) -> MemoryPlan:
    return plan_memory(
        "m", SMALL, sequences=sequences, capacity=capacity, batch_tokens=512, free_bytes=int(free_mib * MIB)
    )


def test_talk_takes_keys_and_values_of_all_layers_and_its_place_in_a_batch() -> None:
    assert SMALL.kv_cache_bytes(3, 512, batch_tokens=0) == 3 * 512 * 112 * 1024
    assert SMALL.kv_cache_bytes(3, 512, batch_tokens=512) == 512 * (3 * 112 + 32) * 1024
    assert SMALL.kv_cache_bytes(3, 300, batch_tokens=512) == SMALL.kv_cache_bytes(3, 512, batch_tokens=512)


def test_on_a_large_machine_every_call_has_room_for_a_long_talk() -> None:
    there = planned(64 * 1024)
    assert (there.sequences, there.capacity) == (16, 4096)
    assert there.bytes == SMALL.kv_cache_bytes(16, 4096, 512)


def test_on_a_smaller_one_talks_are_shorter_and_then_fewer() -> None:
    left = 320 + 256
    usual = planned(left + 8 * 1024)
    assert (usual.sequences, usual.capacity) == (16, CONVERSATION_TOKENS)
    fewer = planned(4096)
    assert fewer.capacity == CONVERSATION_TOKENS
    assert fewer.sequences == 7
    assert fewer.bytes <= (4096 - left) * MIB / 2 < SMALL.kv_cache_bytes(8, CONVERSATION_TOKENS, 512)
    one = planned(left + 400)
    assert one.sequences == 1
    assert LEAST_TOKENS < one.capacity < CONVERSATION_TOKENS
    assert one.bytes <= 200 * MIB < SMALL.kv_cache_bytes(1, one.capacity + 256, 512)


def test_talk_is_not_kept_longer_than_the_model_understands_it() -> None:
    there = planned(64 * 1024, capacity=512)
    assert (there.capacity, there.sequences) == (512, 16)


def test_one_call_has_room_even_where_half_of_the_memory_would_be_too_little() -> None:
    free = 320 + 256 + SMALL.kv_cache_bytes(1, LEAST_TOKENS, 512) / MIB
    there = planned(free)
    assert (there.sequences, there.capacity) == (1, LEAST_TOKENS)
    with pytest.raises(StartupError):
        planned(free - 1)


def test_a_model_that_does_not_fit_says_in_one_line_what_it_needs_and_what_is_there(tiny_path: Path) -> None:
    with pytest.raises(StartupError) as refusal:
        LlamaLanguageModel(tiny_path, name="our-model", threads=1, free=200 * MIB)
    text = refusal.value.message
    assert "our-model needs 265 MiB of memory" in text
    assert "200 MiB are free" in text
    assert "\n" not in text


def test_the_shape_is_read_from_the_file(tiny_path: Path) -> None:
    shape = Model(tiny_path).shape
    assert (shape.layers, shape.heads, shape.kv_heads, shape.key_size, shape.value_size) == (2, 4, 2, 32, 32)
    assert 0 < shape.weights_bytes <= tiny_path.stat().st_size


def test_talks_are_kept_apart_for_as_many_calls_as_there_may_be_and_as_the_cores_can_answer() -> None:
    assert sequences_for_calls(calls=250, cores=2) == 16
    assert sequences_for_calls(calls=250, cores=8) == 32
    assert sequences_for_calls(calls=250, cores=128) == MOST_SEQUENCES
    assert sequences_for_calls(calls=5, cores=8) == 5
    assert sequences_for_calls(calls=1, cores=0.5) == 2, "work after a call goes beside the next one"
