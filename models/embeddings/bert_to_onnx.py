"""Converts the weights of a BERT of Sentence Transformers (`model.safetensors`) to an ONNX network, once for each file:
see `convert_if_needed`.

The network is that of Devlin et al. 2018, "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding", section 3, up to the last hidden layer. Safetensors is a length (uint64), a JSON header with the place
of each tensor, and the tensors after it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Weights = Mapping[str, NDArray[np.float32]]

HEAD_WIDTH: Final = 32
"""Dimensions of an attention head in MiniLM and the other small models of this family: the weights do not contain
it."""
_LAYER_NORM_EPSILON: Final = 1e-12
_MASKED_SCORE: Final = 10_000.0
"""Subtracted from the attention scores of padding."""
_MAX_HEADER_BYTES: Final = 1 << 20
"""Maximum bytes of a header: real ones have about 10 KB."""


def convert_if_needed(weights: Path) -> Path:
    """The network of a file of weights, written beside it the first time. Raises `ValueError` for a file without such a
    model, `OSError`."""
    network = weights.with_suffix(".onnx")
    if network.exists() and network.stat().st_mtime_ns >= weights.stat().st_mtime_ns:
        return network
    part = network.with_suffix(f".{os.getpid()}.part")
    try:
        write_network(part, read_safetensors(weights))
        part.replace(network)
    finally:
        part.unlink(missing_ok=True)
    return network


def read_safetensors(path: Path) -> dict[str, NDArray[np.float32]]:
    """The 32-bit floating point tensors of a file, by name. Raises `ValueError` for another file."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= _MAX_HEADER_BYTES:
            raise ValueError("its weights are not a safetensors file")
        header = json.loads(file.read(length))
        content = file.read()
    try:
        tensors = {name: each for name, each in header.items() if name != "__metadata__" and each["dtype"] == "F32"}
        places = {name: (slice(*each["data_offsets"]), each["shape"]) for name, each in tensors.items()}
    except (AttributeError, KeyError, TypeError):
        raise ValueError("its weights are not a safetensors file") from None
    return {name: np.frombuffer(content[place], "<f4").reshape(shape) for name, (place, shape) in places.items()}


def write_network(path: Path, weights: Weights) -> None:
    """Write an ONNX file with inputs `input_ids` and `attention_mask`, int64[n, t], and output `last_hidden_state`,
    float32[n, t, d]. The names of the weights are those of the transformers library. Raises `ValueError` when one is
    missing."""
    import onnx  # 0.3 s, which only a conversion needs
    from onnx import TensorProto, helper

    try:
        network = _Network(weights)
        network.build()
    except KeyError as missing:
        raise ValueError(f"its weights lack {missing}") from None
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"]) for name in ("input_ids", "attention_mask")
    ]
    output = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["n", "t", network.width])
    graph = helper.make_graph(network.nodes, "bert", inputs, [output], network.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, str(path))


class _Network:
    """Nodes and constants of a graph under construction. Values are named after their nodes."""

    def __init__(self, weights: Weights) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._weights = weights
        self.width: int = weights["embeddings.word_embeddings.weight"].shape[1]

    def build(self) -> None:
        """Add all nodes."""
        from onnx import TensorProto

        attended_tokens = self._add("Cast", "attention_mask", to=TensorProto.FLOAT)
        masked_scores = self._add(
            "Mul", self._add("Sub", attended_tokens, self._scalar(1.0)), self._scalar(_MASKED_SCORE)
        )
        mask = self._add("Unsqueeze", masked_scores, self._integers([1, 2]))
        x = self._layer_norm(self._embedded(), "embeddings.LayerNorm")
        layers = 0
        while f"encoder.layer.{layers}.output.dense.weight" in self._weights:
            x = self._layer(x, mask, f"encoder.layer.{layers}")
            layers += 1
        if not layers:
            raise KeyError("encoder.layer.0.output.dense.weight")
        self._add("Identity", x, name="last_hidden_state")

    def _embedded(self) -> str:
        """Embeddings of tokens and positions; all tokens have the type of the first of two texts."""
        words = self._add("Gather", self._weight("embeddings.word_embeddings.weight"), "input_ids")
        token_type = self._weights["embeddings.token_type_embeddings.weight"][0]
        positions = self._constant(self._weights["embeddings.position_embeddings.weight"] + token_type)
        length = self._add("Slice", self._add("Shape", "input_ids"), self._integers([1]), self._integers([2]))
        return self._add("Add", words, self._add("Slice", positions, self._integers([0]), length, self._integers([0])))

    def _layer(self, x: str, mask: str, name: str) -> str:
        attended = self._linear(self._attention(x, mask, f"{name}.attention.self"), f"{name}.attention.output.dense")
        x = self._layer_norm(self._add("Add", x, attended), f"{name}.attention.output.LayerNorm")
        inner = self._gelu(self._linear(x, f"{name}.intermediate.dense"))
        return self._layer_norm(
            self._add("Add", x, self._linear(inner, f"{name}.output.dense")), f"{name}.output.LayerNorm"
        )

    def _attention(self, x: str, mask: str, name: str) -> str:
        q, k, v = (self._linear(x, f"{name}.{each}") for each in ("query", "key", "value"))
        scores = self._add("MatMul", self._heads(q, (0, 2, 1, 3)), self._heads(k, (0, 2, 3, 1)))
        scaled = self._add("Mul", scores, self._scalar(HEAD_WIDTH**-0.5))
        weights = self._add("Softmax", self._add("Add", scaled, mask), axis=-1)
        mixed = self._add("MatMul", weights, self._heads(v, (0, 2, 1, 3)))
        return self._add(
            "Reshape", self._add("Transpose", mixed, perm=(0, 2, 1, 3)), self._integers([0, 0, self.width])
        )

    def _heads(self, x: str, order: tuple[int, ...]) -> str:
        heads = self._add("Reshape", x, self._integers([0, 0, self.width // HEAD_WIDTH, HEAD_WIDTH]))
        return self._add("Transpose", heads, perm=order)

    def _linear(self, x: str, name: str) -> str:
        matrix = self._constant(np.ascontiguousarray(self._weights[f"{name}.weight"].T))
        return self._add("Add", self._add("MatMul", x, matrix), self._weight(f"{name}.bias"))

    def _layer_norm(self, x: str, name: str) -> str:
        scale, shift = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return self._add("LayerNormalization", x, scale, shift, axis=-1, epsilon=_LAYER_NORM_EPSILON)

    def _gelu(self, x: str) -> str:
        gate = self._add("Add", self._add("Erf", self._add("Mul", x, self._scalar(2**-0.5))), self._scalar(1.0))
        return self._add("Mul", self._add("Mul", x, gate), self._scalar(0.5))

    def _add(self, kind: str, *inputs: str, name: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = name or f"x{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _weight(self, name: str) -> str:
        return self._constant(self._weights[name])

    def _scalar(self, value: float) -> str:
        return self._constant(np.asarray(value, np.float32))

    def _integers(self, values: list[int]) -> str:
        return self._constant(np.asarray(values, np.int64))

    def _constant(self, value: NDArray[Any]) -> str:
        from onnx import numpy_helper

        name = f"w{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name
