"""A streaming Zipformer transducer of the shape of `zipformer-en` (icefall, June 2023): the same matrices, states and
convolutions, with random weights. As fast as the real one, but it recognizes nothing.

Omitted, because they take negligible time: positions of the attention, balancing, and bypass scales.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DIMS: Final = (192, 256, 384, 512, 384, 256)
LAYERS: Final = (2, 2, 3, 4, 3, 2)
DOWN: Final = (1, 2, 4, 8, 4, 2)
HEADS: Final = (4, 4, 4, 8, 4, 4)
FEED_FORWARD: Final = (512, 768, 1024, 1536, 1024, 768)
KERNELS: Final = (31, 31, 15, 15, 15, 31)
QUERY: Final = 32
VALUE: Final = 12
STEPS: Final = 16
LEFT: Final = 128
FRAMES: Final = 45
MELS: Final = 80
VOCABULARY: Final = 500
JOINED: Final = 512


class ZipformerGraph:
    """Builds the nodes of a graph, named by their number; every method returns the name of its output."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node with one output."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Adds a node."""
        names = [f"t{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def weight(self, *shape: int) -> str:
        """Adds random weights that are scaled to keep the variance of the activations."""
        values = self._random.standard_normal(shape, np.float32) / np.sqrt(np.prod(shape[:-1]), dtype=np.float32)
        return self._constant(values.astype(np.float32))

    def ints(self, *values: int) -> str:
        """Adds an integer constant."""
        return self._constant(np.array(values, np.int64))

    def linear(self, x: str, wide_in: int, wide_out: int) -> str:
        """x @ W."""
        return self.op("MatMul", x, self.weight(wide_in, wide_out))

    def swoosh(self, x: str) -> str:
        """The Swoosh activation, approximated by x * sigmoid(x)."""
        return self.op("Mul", x, self.op("Sigmoid", x))

    def split(self, x: str, parts: int) -> list[str]:
        """Splits the last axis into equal parts."""
        return self.ops("Split", parts, x, axis=-1, num_outputs=parts)

    def last(self, x: str, count: int, axis: int) -> str:
        """The last `count` elements along an axis."""
        return self.op("Slice", x, self.ints(-count), self.ints(2**31 - 1), self.ints(axis))

    def _constant(self, values: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name


class Layer:
    """One layer of a stack with its six states."""

    def __init__(self, net: ZipformerGraph, stack: int, states: Sequence[str]) -> None:
        self._net = net
        self._dim, self._heads, self._kernel = DIMS[stack], HEADS[stack], KERNELS[stack]
        self._wide = FEED_FORWARD[stack]
        self._left = LEFT // DOWN[stack]
        self._states = states
        self.next: list[str] = []

    def run(self, x: str) -> str:
        """[batch, steps, dim] -> [batch, steps, dim]."""
        key, gated, value1, value2, conv1, conv2 = self._states
        net = self._net
        attention, next_key = self._attention(x, key)
        x = self._add(x, self._feed_forward(x, self._wide * 3 // 4))
        y, next_gated = self._gated(x, attention, gated)
        x = self._add(x, y)
        y, next_value1 = self._values(x, attention, value1)
        x = self._add(x, y)
        y, next_conv1 = self._convolution(x, conv1)
        x = self._add(x, y)
        x = self._add(x, self._feed_forward(x, self._wide))
        y, next_value2 = self._values(x, attention, value2)
        x = self._add(x, y)
        y, next_conv2 = self._convolution(x, conv2)
        x = self._add(x, y)
        x = self._add(x, self._feed_forward(x, self._wide * 5 // 4))
        self.next = [next_key, next_gated, next_value1, next_value2, next_conv1, next_conv2]
        power = net.op("ReduceMean", net.op("Mul", x, x), net.ints(2), keepdims=1)
        return net.op("Div", x, net.op("Sqrt", power))

    def _add(self, x: str, y: str) -> str:
        return self._net.op("Add", x, y)

    def _feed_forward(self, x: str, wide: int) -> str:
        net = self._net
        return net.linear(net.swoosh(net.linear(x, self._dim, wide)), wide, self._dim)

    def _with_past(self, x: str, past: str) -> tuple[str, str]:
        """`x`, [batch, steps, n], after the left context `past`, [left, batch, n]. Returns both and the new left
        context."""
        net = self._net
        both = net.op("Concat", past, net.op("Transpose", x, perm=[1, 0, 2]), axis=0)
        return net.op("Transpose", both, perm=[1, 0, 2]), net.last(both, self._left, 0)

    def _by_head(self, x: str, perm: Sequence[int]) -> str:
        net = self._net
        return net.op("Transpose", net.op("Reshape", x, net.ints(0, 0, self._heads, -1)), perm=perm)

    def _attention(self, x: str, past: str) -> tuple[str, str]:
        """The attention weights, [batch, heads, steps, left + steps], and the new left context."""
        net, wide = self._net, self._heads * QUERY
        keys, next_past = self._with_past(net.linear(x, self._dim, wide), past)
        queries = self._by_head(net.linear(x, self._dim, wide), [0, 2, 1, 3])
        scores = net.op("MatMul", queries, self._by_head(keys, [0, 2, 3, 1]))
        return net.op("Softmax", scores, axis=-1), next_past

    def _gated(self, x: str, attention: str, past: str) -> tuple[str, str]:
        net, wide = self._net, self._dim * 3 // 4
        first, middle, gate = net.split(net.linear(x, self._dim, 3 * wide), 3)
        now = net.op("Mul", net.op("Tanh", first), middle)
        both = net.op("Concat", past, net.op("Unsqueeze", now, net.ints(0)), axis=2)
        one_head = net.op("Slice", attention, net.ints(0), net.ints(1), net.ints(1))
        seen = net.op("MatMul", one_head, net.op("Transpose", both, perm=[1, 0, 2, 3]))
        out = net.op("Mul", net.op("Squeeze", seen, net.ints(1)), gate)
        return net.linear(out, wide, self._dim), net.last(both, self._left, 2)

    def _values(self, x: str, attention: str, past: str) -> tuple[str, str]:
        net, wide = self._net, self._heads * VALUE
        values, next_past = self._with_past(net.linear(x, self._dim, wide), past)
        seen = net.op("MatMul", attention, self._by_head(values, [0, 2, 1, 3]))
        joined = net.op("Reshape", net.op("Transpose", seen, perm=[0, 2, 1, 3]), net.ints(0, 0, -1))
        return net.linear(joined, wide, self._dim), next_past

    def _convolution(self, x: str, past: str) -> tuple[str, str]:
        net, half = self._net, self._kernel // 2
        sound, gate = net.split(net.linear(x, self._dim, 2 * self._dim), 2)
        now = net.op("Transpose", net.op("Mul", sound, net.op("Sigmoid", gate)), perm=[0, 2, 1])
        both = net.op("Concat", past, now, axis=2)
        causal = net.op("Conv", both, net.weight(self._dim, 1, half + 1), group=self._dim)
        within = net.op("Conv", now, net.weight(self._dim, 1, self._kernel), group=self._dim, pads=[half, half])
        out = net.swoosh(net.op("Transpose", net.op("Add", causal, within), perm=[0, 2, 1]))
        return net.linear(out, self._dim, self._dim), net.last(both, half, 2)


def write(folder: Path) -> None:
    """Writes encoder.onnx (8-bit matrices, as released), decoder.onnx, joiner.onnx and tokens.txt."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    _save(folder / "float.onnx", *_encoder())
    quantize_dynamic(
        folder / "float.onnx", folder / "encoder.onnx", op_types_to_quantize=["MatMul"], weight_type=QuantType.QInt8
    )
    (folder / "float.onnx").unlink()
    _save(folder / "decoder.onnx", *_decoder())
    _save(folder / "joiner.onnx", *_joiner())
    tokens = ["<blk>", "<sos/eos>", "<unk>", *(f"▁W{number}" for number in range(VOCABULARY - 3))]
    (folder / "tokens.txt").write_text("".join(f"{token} {number}\n" for number, token in enumerate(tokens)))


Graph = tuple[onnx.GraphProto, Mapping[str, object]]


def _float(name: str, *shape: str | int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _state_shapes(stack: int) -> list[tuple[str | int, ...]]:
    left, dim = LEFT // DOWN[stack], DIMS[stack]
    keys, values, half = HEADS[stack] * QUERY, HEADS[stack] * VALUE, KERNELS[stack] // 2
    return [(left, "N", keys), (1, "N", left, dim * 3 // 4), (left, "N", values), (left, "N", values),
            ("N", dim, half), ("N", dim, half)]  # fmt: skip


def _embedding(net: ZipformerGraph) -> tuple[str, str]:
    """Frames to steps, and the next state."""
    image = net.op("Unsqueeze", "x", net.ints(1))
    image = net.swoosh(net.op("Conv", image, net.weight(8, 1, 3, 3), pads=[0, 1, 0, 1]))
    image = net.swoosh(net.op("Conv", image, net.weight(32, 8, 3, 3), strides=[2, 2]))
    image = net.swoosh(net.op("Conv", image, net.weight(128, 32, 3, 3), strides=[1, 2]))
    both = net.op("Concat", "embed_states", image, axis=2)
    mixed = net.op("Conv", both, net.weight(128, 1, 7, 7), group=128, pads=[0, 3, 0, 3])
    mixed = net.swoosh(net.op("Conv", mixed, net.weight(384, 128, 1, 1)))
    mixed = net.op("Conv", mixed, net.weight(128, 384, 1, 1))
    flat = net.op("Reshape", net.op("Transpose", mixed, perm=[0, 2, 1, 3]), net.ints(0, 0, 128 * 19))
    return net.linear(flat, 128 * 19, DIMS[0]), net.last(both, 3, 2)


def _fitted(net: ZipformerGraph, x: str, before: int, after: int) -> str:
    """Another width: cut, or filled with zeros."""
    if after > before:
        return net.op("Pad", x, net.ints(0, 0, 0, 0, 0, after - before))
    return x if after == before else net.op("Slice", x, net.ints(0), net.ints(after), net.ints(2))


def _downsampled(net: ZipformerGraph, x: str, steps: int, by: int, wide: int) -> str:
    """The mean of every `by` steps."""
    return net.op("ReduceMean", net.op("Reshape", x, net.ints(0, steps // by, by, wide)), net.ints(2), keepdims=0)


def _encoder() -> Graph:
    net = ZipformerGraph()
    inputs = [_float("x", "N", FRAMES, MELS)]
    outputs: list[onnx.ValueInfoProto] = []
    x, next_embedding = _embedding(net)
    wide, number = DIMS[0], 0
    for stack, dim in enumerate(DIMS):
        x = _fitted(net, x, wide, dim)
        wide, whole, down = dim, x, DOWN[stack]
        if down > 1:
            x = _downsampled(net, x, STEPS, down, dim)
        for _ in range(LAYERS[stack]):
            shapes = _state_shapes(stack)
            names = [f"state{number + each}" for each in range(6)]
            number += 6
            inputs += [_float(name, *shape) for name, shape in zip(names, shapes, strict=True)]
            layer = Layer(net, stack, names)
            x = layer.run(x)
            for name, made, shape in zip(names, layer.next, shapes, strict=True):
                net.nodes.append(helper.make_node("Identity", [made], [f"new_{name}"]))
                outputs.append(_float(f"new_{name}", *shape))
        if down > 1:
            again = net.op("Tile", net.op("Unsqueeze", x, net.ints(2)), net.ints(1, 1, down, 1))
            x = net.op("Add", whole, net.op("Reshape", again, net.ints(0, STEPS, dim)))
    x = _fitted(net, x, wide, max(DIMS))
    halved = _downsampled(net, x, STEPS, 2, max(DIMS))
    net.nodes.append(helper.make_node("Identity", [net.linear(halved, max(DIMS), JOINED)], ["encoder_out"]))
    net.nodes.append(helper.make_node("Identity", [next_embedding], ["new_embed_states"]))
    net.nodes.append(helper.make_node("Identity", ["processed_lens"], ["new_processed_lens"]))
    inputs.append(_float("embed_states", "N", 128, 3, 19))
    inputs.append(helper.make_tensor_value_info("processed_lens", TensorProto.INT64, ["N"]))
    outputs = [_float("encoder_out", "N", STEPS // 2, JOINED), *outputs, _float("new_embed_states", "N", 128, 3, 19),
               helper.make_tensor_value_info("new_processed_lens", TensorProto.INT64, ["N"])]  # fmt: skip
    about = {"model_type": "zipformer2", "T": FRAMES, "decode_chunk_len": 2 * STEPS,
             "encoder_dims": DIMS, "query_head_dims": [QUERY] * 6, "value_head_dims": [VALUE] * 6, "num_heads": HEADS,
             "num_encoder_layers": LAYERS, "cnn_module_kernels": KERNELS,
             "left_context_len": [LEFT // down for down in DOWN]}  # fmt: skip
    return helper.make_graph(net.nodes, "encoder", inputs, outputs, net.weights), about


def _decoder() -> Graph:
    net = ZipformerGraph()
    embedded = net.op("Transpose", net.op("Gather", net.weight(VOCABULARY, JOINED), "y"), perm=[0, 2, 1])
    mixed = net.op("Squeeze", net.op("Conv", embedded, net.weight(JOINED, 4, 2), group=JOINED // 4), net.ints(2))
    net.nodes.append(helper.make_node("Identity", [net.linear(mixed, JOINED, JOINED)], ["decoder_out"]))
    y = helper.make_tensor_value_info("y", TensorProto.INT64, ["N", 2])
    graph = helper.make_graph(net.nodes, "decoder", [y], [_float("decoder_out", "N", JOINED)], net.weights)
    return graph, {"vocab_size": VOCABULARY, "context_size": 2}


def _joiner() -> Graph:
    net = ZipformerGraph()
    joined = net.op("Tanh", net.op("Add", "encoder_out", "decoder_out"))
    net.nodes.append(helper.make_node("Identity", [net.linear(joined, JOINED, VOCABULARY)], ["logit"]))
    inputs = [_float("encoder_out", "N", JOINED), _float("decoder_out", "N", JOINED)]
    graph = helper.make_graph(net.nodes, "joiner", inputs, [_float("logit", "N", VOCABULARY)], net.weights)
    return graph, {"joiner_dim": JOINED}


def _save(path: Path, graph: onnx.GraphProto, about: Mapping[str, object]) -> None:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {key: str(value).strip("()[]").replace(" ", "") for key, value in about.items()})
    path.write_bytes(model.SerializeToString())
