"""Conversion of a BERT's weights to a network, compared with the formulas of its paper in plain numpy."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from bench.models import random_minilm
from config.errors import StartupError
from models.embeddings.bert_to_onnx import HEAD_WIDTH, convert_if_needed
from models.loading import engines
from models.model_files.known_models import KnownModel
from models.model_files.store import ModelStore
from tests.models.embeddings import tiny_embeddings

WORDS = 50
WEIGHTS = random_minilm.weights(WORDS, layers=2)
IDS = np.array([[2, 7, 9, 3, 0], [2, 8, 3, 0, 0]], np.int64)
SEEN = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 0, 0]], np.int64)

Numbers = NDArray[np.float64]


def safetensors(path: Path, weights: dict[str, NDArray[np.float32]]) -> None:
    header, content = {}, b""
    for name, value in weights.items():
        place = [len(content), len(content) + value.nbytes]
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": place}
        content += value.tobytes()
    head = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + content)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    safetensors(path, WEIGHTS)
    return path


def linear(x: Numbers, name: str) -> Numbers:
    return x @ WEIGHTS[f"{name}.weight"].T.astype(np.float64) + WEIGHTS[f"{name}.bias"]


def normal(x: Numbers, name: str) -> Numbers:
    around = x - x.mean(axis=-1, keepdims=True)
    return around / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-12) * WEIGHTS[f"{name}.weight"] + WEIGHTS[f"{name}.bias"]


def softmax(x: Numbers) -> Numbers:
    raised = np.exp(x - x.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def of_one_text(ids: NDArray[np.int64]) -> Numbers:
    """float64[t, d]: the last hidden layer, head by head and without padding."""
    x = WEIGHTS["embeddings.word_embeddings.weight"][ids].astype(np.float64)
    x = x + WEIGHTS["embeddings.position_embeddings.weight"][: len(ids)]
    x = normal(x + WEIGHTS["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        q, k, v = (linear(x, f"{layer}.attention.self.{each}") for each in ("query", "key", "value"))
        heads = []
        for first in range(0, x.shape[1], HEAD_WIDTH):
            part = slice(first, first + HEAD_WIDTH)
            heads.append(softmax(q[:, part] @ k[:, part].T / math.sqrt(HEAD_WIDTH)) @ v[:, part])
        attended = linear(np.concatenate(heads, axis=1), f"{layer}.attention.output.dense")
        x = normal(x + attended, f"{layer}.attention.output.LayerNorm")
        inner = linear(x, f"{layer}.intermediate.dense")
        gelu = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = normal(x + linear(gelu, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return x


def test_the_network_computes_the_formulas_whatever_the_padding(weights: Path) -> None:
    session = onnxruntime.InferenceSession(str(convert_if_needed(weights)), providers=["CPUExecutionProvider"])
    (given,) = session.run(["last_hidden_state"], {"input_ids": IDS, "attention_mask": SEEN})
    assert given.shape == (2, 5, random_minilm.WIDTH)
    for row, ids, seen in zip(given, IDS, SEEN, strict=True):
        assert np.allclose(row[: seen.sum()], of_one_text(ids[: seen.sum()]), atol=1e-4)


def test_weights_are_converted_once_and_again_when_they_change(weights: Path) -> None:
    network = convert_if_needed(weights)
    made = network.stat().st_mtime_ns
    assert convert_if_needed(weights).stat().st_mtime_ns == made
    others = {**WEIGHTS, "embeddings.LayerNorm.bias": np.ones(random_minilm.WIDTH, np.float32)}
    safetensors(weights, others)
    before = network.read_bytes()
    assert convert_if_needed(weights).read_bytes() != before
    assert sorted(path.name for path in weights.parent.iterdir()) == ["model.onnx", "model.safetensors"]


LISTED = {
    **tiny_embeddings.ENTRY,
    "files": [{"role": "weights", "name": "model.safetensors"}, {"role": "tokenizer", "name": "tokenizer.json"}],
}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not a safetensors file"),
        (b"\xff" * 100, "not a safetensors file"),
        ((20).to_bytes(8, "little") + b"{" * 20, "cannot be made of"),
        ((4).to_bytes(8, "little") + b"null", "not a safetensors file"),
        ((2).to_bytes(8, "little") + b"{}", "lack 'embeddings.word_embeddings.weight'"),
        ((11).to_bytes(8, "little") + b'{"a": "b" }', "not a safetensors file"),
    ],
)
def test_other_files_are_rejected_and_leave_nothing_behind(tmp_path: Path, content: bytes, why: str) -> None:
    model = KnownModel.model_validate(LISTED)
    folder = tmp_path / model.name
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(StartupError, match=f"embedding model tiny.*{why}"):
        engines.EMBEDDERS["onnx"](ModelStore(tmp_path, [model]), model)
    assert [path.name for path in folder.iterdir()] == ["model.safetensors"]


def test_incomplete_weights_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    safetensors(path, {name: value for name, value in WEIGHTS.items() if "layer.1.attention.self.key" not in name})
    with pytest.raises(ValueError, match=r"lack 'encoder\.layer\.1\.attention\.self\.key"):
        convert_if_needed(path)
