"""An embedding model of the shape of all-MiniLM-L6-v2 (6 layers, 384 dimensions, 12 heads, feed-forward 1,536) with
random weights: as fast as the real one, but its vectors are meaningless."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from models.embeddings.bert_to_onnx import write_network

LAYERS: Final = 6
WIDTH: Final = 384
FEED_FORWARD: Final = 1536
MAX_POSITIONS: Final = 512


def write(path: Path, words: int) -> None:
    """Writes an ONNX file for a vocabulary of `words` words."""
    write_network(path, weights(words))


def weights(words: int, layers: int = LAYERS) -> dict[str, NDArray[np.float32]]:
    """The random weights by the names of the real ones."""
    random = np.random.default_rng(0)
    tensors: dict[str, NDArray[np.float32]] = {}

    def matrix(name: str, *shape: int) -> None:
        tensors[f"{name}.weight"] = random.normal(0, 0.04, shape).astype(np.float32)

    def linear(name: str, inside: int, outside: int) -> None:
        matrix(name, outside, inside)
        tensors[f"{name}.bias"] = random.normal(0, 0.04, outside).astype(np.float32)

    def normal(name: str) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)

    matrix("embeddings.word_embeddings", words, WIDTH)
    matrix("embeddings.position_embeddings", MAX_POSITIONS, WIDTH)
    matrix("embeddings.token_type_embeddings", 2, WIDTH)
    normal("embeddings.LayerNorm")
    for layer in (f"encoder.layer.{number}" for number in range(layers)):
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{layer}.attention.{name}", WIDTH, WIDTH)
        linear(f"{layer}.intermediate.dense", WIDTH, FEED_FORWARD)
        linear(f"{layer}.output.dense", FEED_FORWARD, WIDTH)
        normal(f"{layer}.attention.output.LayerNorm")
        normal(f"{layer}.output.LayerNorm")
    return tensors
