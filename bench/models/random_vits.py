"""A VITS network of the shape of Piper's medium voices, with random weights: the same encoder, flow and HiFi-GAN
decoder (63 MB). As fast as a real one, but its audio is noise.

Omitted, because they take negligible time: relative positions of the attention, and the flow that predicts the
durations; each phoneme id lasts three frames, about as long as in speech.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SYMBOLS: Final = 256
WIDTH: Final = 192
FILTER: Final = 768
LAYERS: Final = 6
FLOWS: Final = 4
FLOW_LAYERS: Final = 4
FLOW_KERNEL: Final = 5
DECODER_WIDTH: Final = 256
UPSAMPLE: Final = ((8, 16), (8, 16), (4, 8))
"""Upsampling rate and kernel size of each layer."""
RESIDUAL: Final = ((3, (1, 2)), (5, (2, 6)), (7, (3, 12)))
"""Kernel size and dilations of each residual block."""
FRAMES_PER_ID: Final = 3
RATE: Final = 22050
HOP: Final = 256


class _VitsGraph:
    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def real(self, value: float) -> str:
        return self.constant(np.float32(value))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def random(self, *shape: int, inputs: int) -> str:
        return self.constant((self._random.standard_normal(shape, np.float32) / np.sqrt(inputs)).astype(np.float32))

    def conv(self, x: str, wide_in: int, wide_out: int, kernel: int, dilation: int = 1) -> str:
        weight, bias = self.random(wide_out, wide_in, kernel, inputs=wide_in * kernel), self.random(wide_out, inputs=1)
        reach = dilation * (kernel - 1) // 2
        return self.op("Conv", x, weight, bias, dilations=[dilation], pads=[reach, reach])

    def up(self, x: str, wide_in: int, rate: int, kernel: int) -> str:
        weight = self.random(wide_in, wide_in // 2, kernel, inputs=wide_in * kernel // rate)
        side = (kernel - rate) // 2
        return self.op("ConvTranspose", x, weight, strides=[rate], pads=[side, side])

    def add(self, x: str, y: str) -> str:
        return self.op("Add", x, y)


def write(folder: Path) -> tuple[Path, Path]:
    """Writes the voice's two files. Returns their paths. Takes some seconds."""
    net = _VitsGraph()
    lengths = _lengths(net)
    x = _decoded(net, _flowed(net, _stretched(net, _encoded(net), lengths)))
    net.nodes.append(helper.make_node("Unsqueeze", [x, net.ints(1)], ["output"]))
    number, real = TensorProto.INT64, TensorProto.FLOAT
    inputs: list[tuple[str, Any, list[Any]]] = [
        ("input", number, ["batch", "ids"]), ("input_lengths", number, ["batch"]), ("scales", real, [3])
    ]  # fmt: skip
    graph = helper.make_graph(
        net.nodes,
        "vits",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info("output", real, ["batch", 1, 1, "samples"])],
        net.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    network, settings = folder / "medium.onnx", folder / "medium.onnx.json"
    network.write_bytes(model.SerializeToString())
    settings.write_text(json.dumps(_settings()))
    return network, settings


def _settings() -> dict[str, Any]:
    signs = "_^$ !'(),-.:;?abcdefghijklmnopqrstuvwxyz"
    ipa = "\u00e6\u00e7\u00f0\u014b\u0250\u0251\u0254\u0259\u025a\u025b\u025c\u0261\u026a\u0279\u027e\u0283\u028a\u028c"
    ipa += "\u0292\u02c8\u02cc\u02d0\u03b8\u1d7b\u026b\u0294\u0329"
    return {
        "audio": {"sample_rate": RATE},
        "espeak": {"voice": "en-us"},
        "language": {"code": "en_US"},
        "inference": {"noise_scale": 0.667, "length_scale": 1, "noise_w": 0.8},
        "phoneme_id_map": {sign: [number] for number, sign in enumerate(signs + ipa)},
        "num_symbols": SYMBOLS,
        "num_speakers": 1,
        "hop_length": HOP,
    }


def _lengths(net: _VitsGraph) -> str:
    """Number of frames of each phoneme id, [ids]."""
    ids = net.op("Reshape", net.op("Cast", "input", to=TensorProto.FLOAT), net.ints(-1))
    even = net.add(net.op("Mul", ids, net.real(0)), net.real(FRAMES_PER_ID))
    return net.op("Ceil", net.op("Mul", even, net.op("Gather", "scales", net.constant(np.array(1, np.int64)))))


def _encoded(net: _VitsGraph) -> str:
    """The encoder's output, [1, WIDTH, ids]."""
    x = net.op("Transpose", net.op("Gather", net.random(SYMBOLS, WIDTH, inputs=WIDTH), "input"), perm=[0, 2, 1])
    for _ in range(LAYERS):
        query, key, value = (net.conv(x, WIDTH, WIDTH, 1) for _ in range(3))
        likeness = net.op("MatMul", net.op("Transpose", query, perm=[0, 2, 1]), key)
        weights = net.op("Softmax", net.op("Mul", likeness, net.real(WIDTH**-0.5)), axis=-1)
        seen = net.op("MatMul", value, net.op("Transpose", weights, perm=[0, 2, 1]))
        x = net.add(x, net.conv(seen, WIDTH, WIDTH, 1))
        wide = net.op("Relu", net.conv(x, WIDTH, FILTER, 3))
        x = net.op("Mul", net.add(x, net.conv(wide, FILTER, WIDTH, 3)), net.real(0.5))
    return x


def _stretched(net: _VitsGraph, x: str, lengths: str) -> str:
    """The encoder's output by frame, with noise, [1, WIDTH, frames]."""
    ends = net.op("CumSum", lengths, net.constant(np.array(0, np.int64)))
    total = net.op("ReduceSum", lengths, net.ints(0), keepdims=0)
    frames = net.op("Range", net.real(0), total, net.real(1))
    passed = net.op("GreaterOrEqual", net.op("Unsqueeze", frames, net.ints(-1)), ends)
    index = net.op("ReduceSum", net.op("Cast", passed, to=TensorProto.INT64), net.ints(-1), keepdims=0)
    frames_x = net.op("Gather", x, index, axis=2)
    noise = net.op("RandomNormalLike", frames_x, dtype=TensorProto.FLOAT)
    return net.add(frames_x, net.op("Mul", noise, net.op("Gather", "scales", net.constant(np.array(0, np.int64)))))


def _flowed(net: _VitsGraph, z: str) -> str:
    half = WIDTH // 2
    for _ in range(FLOWS):
        parts = [net.op("Slice", z, net.ints(at), net.ints(at + half), net.ints(1)) for at in (0, half)]
        x, skipped = net.conv(parts[0], half, WIDTH, 1), ""
        for _ in range(FLOW_LAYERS):
            both = net.conv(x, WIDTH, 2 * WIDTH, FLOW_KERNEL)
            one, two = (net.op("Slice", both, net.ints(at), net.ints(at + WIDTH), net.ints(1)) for at in (0, WIDTH))
            gated = net.op("Mul", net.op("Tanh", one), net.op("Sigmoid", two))
            more = net.conv(gated, WIDTH, 2 * WIDTH, 1)
            rest, skip = (net.op("Slice", more, net.ints(at), net.ints(at + WIDTH), net.ints(1)) for at in (0, WIDTH))
            x = net.op("Mul", net.add(x, rest), net.real(0.5))
            skipped = net.add(skipped, skip) if skipped else skip
        moved = net.op("Sub", parts[1], net.conv(skipped, WIDTH, half, 1))
        z = net.op("Concat", moved, parts[0], axis=1)
    return z


def _decoded(net: _VitsGraph, z: str) -> str:
    """The HiFi-GAN decoder's output, [1, 1, samples], -1 to 1."""
    x, wide = net.conv(z, WIDTH, DECODER_WIDTH, 7), DECODER_WIDTH
    for rate, kernel in UPSAMPLE:
        x = net.up(net.op("LeakyRelu", x, alpha=0.1), wide, rate, kernel)
        wide //= 2
        blocks = [_residual(net, x, wide, size, dilations) for size, dilations in RESIDUAL]
        x = net.op("Mul", net.add(net.add(blocks[0], blocks[1]), blocks[2]), net.real(1 / 3))
    return net.op("Tanh", net.conv(net.op("LeakyRelu", x, alpha=0.01), wide, 1, 7))


def _residual(net: _VitsGraph, x: str, wide: int, kernel: int, dilations: Sequence[int]) -> str:
    for dilation in dilations:
        x = net.add(x, net.conv(net.op("LeakyRelu", x, alpha=0.1), wide, wide, kernel, dilation))
    return x
