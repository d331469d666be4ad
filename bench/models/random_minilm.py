"""A sentence model of the shape of all-MiniLM-L6-v2 (6 layers of 384 numbers, 12 heads, 1,536 between) with random
weights. It understands nothing, and takes as long as the real one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from models.embeddings.bert_to_onnx import write_network

LAYERS: Final = 6
WIDTH: Final = 384
BETWEEN: Final = 1536
LONGEST: Final = 512


def write(path: Path, words: int) -> None:
    """An ONNX file for a vocabulary of so many words."""
    write_network(path, weights(words))


def weights(words: int, layers: int = LAYERS) -> dict[str, NDArray[np.float32]]:
    """By the names that the real ones have."""
    random = np.random.default_rng(0)
    made: dict[str, NDArray[np.float32]] = {}

    def matrix(name: str, *shape: int) -> None:
        made[f"{name}.weight"] = random.normal(0, 0.04, shape).astype(np.float32)

    def linear(name: str, inside: int, outside: int) -> None:
        matrix(name, outside, inside)
        made[f"{name}.bias"] = random.normal(0, 0.04, outside).astype(np.float32)

    def normal(name: str) -> None:
        made[f"{name}.weight"], made[f"{name}.bias"] = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)

    matrix("embeddings.word_embeddings", words, WIDTH)
    matrix("embeddings.position_embeddings", LONGEST, WIDTH)
    matrix("embeddings.token_type_embeddings", 2, WIDTH)
    normal("embeddings.LayerNorm")
    for layer in (f"encoder.layer.{number}" for number in range(layers)):
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{layer}.attention.{name}", WIDTH, WIDTH)
        linear(f"{layer}.intermediate.dense", WIDTH, BETWEEN)
        linear(f"{layer}.output.dense", BETWEEN, WIDTH)
        normal(f"{layer}.attention.output.LayerNorm")
        normal(f"{layer}.output.LayerNorm")
    return made
