"""How much memory a model is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.errors import StartupError
from models.llama.language_model import LlamaLanguageModel
from models.llama.library import Model
from models.llama.memory import LEAST_TOKENS, MOST_SEQUENCES, TALK_TOKENS, Shape, plan, sequences_for

MIB = 2**20
SMALL = Shape(layers=28, heads=16, kv_heads=8, key_size=128, value_size=128, weights_bytes=320 * MIB)
"""Like a model of 0.6 billion weights."""


def test_a_token_of_talk_takes_keys_and_values_of_all_layers_and_its_place_in_a_batch() -> None:
    assert SMALL.cell_bytes(batch_tokens=0) == 112 * 1024
    assert SMALL.cell_bytes(batch_tokens=512) == (112 + 32) * 1024


def test_on_a_large_machine_every_call_has_room_for_its_talk() -> None:
    there = plan("m", SMALL, sequences=16, capacity=4096, batch_tokens=512, free_bytes=64 * 1024 * MIB)
    assert there.cells == 16 * TALK_TOKENS
    assert there.talks == 16
    assert there.bytes == there.cells * 144 * 1024


def test_on_a_smaller_one_half_of_what_the_weights_leave_is_for_talk() -> None:
    there = plan("m", SMALL, sequences=16, capacity=4096, batch_tokens=512, free_bytes=4096 * MIB)
    assert there.bytes == pytest.approx((4096 - 320 - 256) * MIB / 2, rel=0.001)
    assert there.talks < 16


def test_talk_is_not_kept_longer_than_the_model_understands_it() -> None:
    there = plan("m", SMALL, sequences=16, capacity=512, batch_tokens=512, free_bytes=64 * 1024 * MIB)
    assert (there.cells, there.talks) == (16 * 512, 16)


def test_one_call_has_room_even_where_half_of_the_memory_would_be_too_little() -> None:
    free = SMALL.weights_bytes + 256 * MIB + LEAST_TOKENS * SMALL.cell_bytes(512)
    there = plan("m", SMALL, sequences=16, capacity=4096, batch_tokens=512, free_bytes=free)
    assert there.cells == LEAST_TOKENS
    with pytest.raises(StartupError):
        plan("m", SMALL, sequences=16, capacity=4096, batch_tokens=512, free_bytes=free - 1)


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
    assert sequences_for(calls=250, cores=2) == 16
    assert sequences_for(calls=250, cores=8) == 32
    assert sequences_for(calls=250, cores=128) == MOST_SEQUENCES
    assert sequences_for(calls=5, cores=8) == 5
    assert sequences_for(calls=1, cores=0.5) == 2, "work after a call goes beside the next one"
