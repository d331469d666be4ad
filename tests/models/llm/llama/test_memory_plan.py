"""The memory plan of a language model."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import StartupError
from models.llm.llama.bindings import LlamaModel
from models.llm.llama.language_model import LlamaLanguageModel
from models.llm.llama.memory_plan import (
    MAX_SEQUENCES,
    MIN_CONTEXT_LENGTH,
    REDUCED_CONTEXT_LENGTH,
    MemoryPlan,
    ModelShape,
    plan_memory,
    sequences_for_calls,
)

MIB = 2**20
SMALL = ModelShape(layers=28, heads=16, kv_heads=8, key_size=128, value_size=128, weights_bytes=320 * MIB)
"""Like a model of 0.6 billion weights."""


def plan(free_mib: float, *, sequences: int = 16, context_length: int = 4096) -> MemoryPlan:
    return plan_memory(
        "m", SMALL, sequences=sequences, context_length=context_length, batch_tokens=512, free_bytes=int(free_mib * MIB)
    )


def test_a_kv_cache_takes_keys_and_values_of_all_layers_and_attention_scores() -> None:
    assert SMALL.kv_cache_bytes(3, 512, batch_tokens=0) == 3 * 512 * 112 * 1024
    assert SMALL.kv_cache_bytes(3, 512, batch_tokens=512) == 512 * (3 * 112 + 32) * 1024
    assert SMALL.kv_cache_bytes(3, 300, batch_tokens=512) == SMALL.kv_cache_bytes(3, 512, batch_tokens=512)


def test_on_a_large_machine_every_sequence_has_the_full_context() -> None:
    there = plan(64 * 1024)
    assert (there.sequences, there.context_length) == (16, 4096)
    assert there.bytes == SMALL.kv_cache_bytes(16, 4096, 512)


def test_on_a_smaller_machine_contexts_are_shorter_and_then_fewer() -> None:
    left = 320 + 256
    usual = plan(left + 8 * 1024)
    assert (usual.sequences, usual.context_length) == (16, REDUCED_CONTEXT_LENGTH)
    fewer = plan(4096)
    assert fewer.context_length == REDUCED_CONTEXT_LENGTH
    assert fewer.sequences == 7
    assert fewer.bytes <= (4096 - left) * MIB / 2 < SMALL.kv_cache_bytes(8, REDUCED_CONTEXT_LENGTH, 512)
    one = plan(left + 400)
    assert one.sequences == 1
    assert MIN_CONTEXT_LENGTH < one.context_length < REDUCED_CONTEXT_LENGTH
    assert one.bytes <= 200 * MIB < SMALL.kv_cache_bytes(1, one.context_length + 256, 512)


def test_a_context_is_not_longer_than_the_models_training_context() -> None:
    there = plan(64 * 1024, context_length=512)
    assert (there.context_length, there.sequences) == (512, 16)


def test_one_call_may_take_more_than_half_of_the_memory() -> None:
    free = 320 + 256 + SMALL.kv_cache_bytes(1, MIN_CONTEXT_LENGTH, 512) / MIB
    there = plan(free)
    assert (there.sequences, there.context_length) == (1, MIN_CONTEXT_LENGTH)
    with pytest.raises(StartupError):
        plan(free - 1)


def test_a_model_that_does_not_fit_raises_with_needed_and_free_memory(tiny_path: Path) -> None:
    with pytest.raises(StartupError) as refusal:
        LlamaLanguageModel(tiny_path, name="our-model", threads=1, free_memory_bytes=200 * MIB)
    text = refusal.value.message
    assert "our-model needs 265 MiB of memory" in text
    assert "200 MiB are free" in text
    assert "\n" not in text


def test_the_shape_is_read_from_the_file(tiny_path: Path) -> None:
    shape = LlamaModel(tiny_path).shape
    assert (shape.layers, shape.heads, shape.kv_heads, shape.key_size, shape.value_size) == (2, 4, 2, 32, 32)
    assert 0 < shape.weights_bytes <= tiny_path.stat().st_size


def test_sequences_are_limited_by_max_calls_and_by_cores() -> None:
    assert sequences_for_calls(calls=250, cores=2) == 16
    assert sequences_for_calls(calls=250, cores=8) == 32
    assert sequences_for_calls(calls=250, cores=128) == MAX_SEQUENCES
    assert sequences_for_calls(calls=5, cores=8) == 5
    assert sequences_for_calls(calls=1, cores=0.5) == 2, "work after a call goes beside the next one"
