"""A voice with the inputs, outputs and settings of Piper's, small enough to be created in a test: each phoneme is a
tone of its own, spaces and punctuation are silence, so that the audio reveals the input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HOP = 32
PAD_FRAMES, SOUND_FRAMES, PAUSE_FRAMES = 1, 20, 120
SPEAKERS_APART = 2.0
"""So many times higher is the voice of the next speaker."""
SYMBOLS = (
    "_^$ !'(),-.:;?abcdefghijklmnopqrstuvwxyz\u00e6\u00e7\u00f0\u00f8\u014b\u0153\u0250\u0251\u0254\u0259\u025a\u025b"
    "\u025c\u0261\u026a\u026b\u026c\u026f\u0279\u027e\u0281\u0283\u028a\u028c\u028f\u0292\u0294\u02c8\u02cc\u02d0\u03b8"
    "\u0303\u0327\u0329\u032f\u1d7b\u03b2\u0263\u028e\u0265\u00e9"
)
SILENT = "_^$ !'(),-.:;?\u02c8\u02cc\u02d0"


def settings_of(
    rate: int = 22050, speakers: Sequence[str] = (), language: str = "en_US", espeak: str = "en-us", **more: Any
) -> dict[str, Any]:
    """The settings beside a voice's network."""
    return {
        "audio": {"sample_rate": rate, "quality": "medium"},
        "espeak": {"voice": espeak},
        "language": {"code": language},
        "inference": {"noise_scale": 0.4, "length_scale": 1, "noise_w": 0.8},
        "phoneme_type": "espeak",
        "phoneme_id_map": {symbol: [number] for number, symbol in enumerate(SYMBOLS)},
        "num_symbols": len(SYMBOLS),
        "num_speakers": max(1, len(speakers)),
        "hop_length": HOP,
        "speaker_id_map": {name: number for number, name in enumerate(speakers)},
    } | more


def write_voice(folder: Path, name: str = "tiny", *, has_durations: bool = False, **settings: Any) -> tuple[Path, Path]:
    """The two files of a voice."""
    made = settings_of(**settings)
    network, beside = folder / f"{name}.onnx", folder / f"{name}.onnx.json"
    model = network_of(made["audio"]["sample_rate"], made["num_speakers"] > 1, has_durations=has_durations)
    network.write_bytes(model.SerializeToString())
    beside.write_text(json.dumps(made))
    return network, beside


def network_of(rate: int, speakers: bool, *, has_durations: bool) -> onnx.ModelProto:
    """The network."""
    silent = np.array([symbol in SILENT for symbol in SYMBOLS])
    frames = np.where(silent, PAD_FRAMES, SOUND_FRAMES)
    frames[[SYMBOLS.index(sign) for sign in ".,;:?!"]] = PAUSE_FRAMES
    tables = {
        "frames": frames.astype(np.float32),
        "pitches": (200 + 10 * np.arange(len(SYMBOLS))).astype(np.float32),
        "levels": np.where(silent, 0, 0.5).astype(np.float32),
        "turn": np.float32(2 * np.pi / rate),
        "hop": np.float32(HOP),
        "least": np.float32(1),
        "none": np.float32(0),
        "one": np.float32(1),
        "quiet": np.float32(0.05),
        "spread": np.float32(4),
        "apart": np.float32(SPEAKERS_APART),
        "first": np.array(0, np.int64),
        "axis": np.array([0], np.int64),
        "axes": np.array([0, 1], np.int64),
        "last": np.array([-1], np.int64),
        "flat": np.array([-1], np.int64),
        "whole": np.array([1, 1, 1, -1], np.int64),
        **{f"scale{number}": np.array(number, np.int64) for number in range(3)},
    }
    nodes = [
        _node("Reshape", ["input", "flat"], "ids"),
        *(_node("Gather", ["scales", f"scale{number}"], f"s{number}") for number in range(3)),
        _node("Gather", ["frames", "ids"], "usual"),
        _node("Mul", ["usual", "s1"], "stretched"),
        _node("RandomNormalLike", ["usual"], "chance", dtype=1),
        _node("Mul", ["chance", "s2"], "chance2"),
        _node("Mul", ["chance2", "spread"], "chance3"),
        _node("Add", ["stretched", "chance3"], "long"),
        _node("Max", ["long", "least"], "enough"),
        _node("Ceil", ["enough"], "rounded"),
        _node("Unsqueeze", ["rounded", "axes"], "w_ceil"),
        _node("Mul", ["rounded", "hop"], "counts"),
        _node("CumSum", ["counts", "first"], "ends"),
        _node("ReduceSum", ["counts", "axis"], "total", keepdims=0),
        _node("Range", ["none", "total", "one"], "time"),
        _node("Unsqueeze", ["time", "last"], "column"),
        _node("GreaterOrEqual", ["column", "ends"], "passed"),
        _node("Cast", ["passed"], "passed2", to=TensorProto.INT64),
        _node("ReduceSum", ["passed2", "last"], "place", keepdims=0),
        _node("Gather", ["ids", "place"], "sounding"),
        _node("Gather", ["pitches", "sounding"], "pitch"),
        _node("Gather", ["levels", "sounding"], "level"),
        _node("Mul", ["time", "turn"], "angle"),
        _node("Mul", ["angle", "pitch"], "phase"),
        *(_speaker() if speakers else [_node("Identity", ["phase"], "phase2")]),
        _node("Sin", ["phase2"], "wave"),
        _node("Mul", ["wave", "level"], "tone"),
        _node("RandomNormalLike", ["tone"], "hiss", dtype=1),
        _node("Mul", ["hiss", "s0"], "hiss2"),
        _node("Mul", ["hiss2", "quiet"], "hiss3"),
        _node("Add", ["tone", "hiss3"], "sound"),
        _node("Reshape", ["sound", "whole"], "output"),
    ]
    number, real = TensorProto.INT64, TensorProto.FLOAT
    inputs: list[tuple[str, Any, list[Any]]] = [
        ("input", number, ["batch", "ids"]), ("input_lengths", number, ["batch"]), ("scales", real, [3])
    ]  # fmt: skip
    inputs += [("sid", number, ["batch"])] if speakers else []
    outputs = [helper.make_tensor_value_info("output", real, ["batch", 1, 1, "samples"])]
    outputs += [helper.make_tensor_value_info("rounded", real, ["ids"])] if has_durations else []
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(*each) for each in inputs],
        outputs,
        [numpy_helper.from_array(np.asarray(table), name) for name, table in tables.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def _speaker() -> list[onnx.NodeProto]:
    return [
        _node("Cast", ["sid"], "sid2", to=TensorProto.FLOAT),
        _node("Pow", ["apart", "sid2"], "higher"),
        _node("Mul", ["phase", "higher"], "phase2"),
    ]


def _node(kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [output], **attributes)
