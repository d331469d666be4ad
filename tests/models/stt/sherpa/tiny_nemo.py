"""An offline transducer of a few kilobytes as NeMo exports them (Parakeet): tones to letters, each once in a row."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.models.stt.sherpa import tiny_models
from tests.models.stt.sherpa.tiny_models import TOKENS, TONES, save, write_tokens

_OWN: Final = (*TOKENS[1:], TOKENS[0])
"""NeMo's blank comes last, and is not counted."""
_POOL: Final = 4
_QUIET: Final = -6.0


def write(folder: Path) -> None:
    """encoder.onnx, decoder.onnx, joiner.onnx and tokens.txt."""
    _write_encoder(folder / "encoder.onnx")
    _write_decoder(folder / "decoder.onnx")
    _write_joiner(folder / "joiner.onnx")
    write_tokens(folder / "tokens.txt", _OWN)


def _float(name: str, *shape: str | int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _write_encoder(path: Path) -> None:
    def blank_last(columns: np.ndarray) -> np.ndarray:
        return np.roll(columns, -1, axis=-1)

    letters = tiny_models.token_weights(rival=False)
    letters[1 + list(TONES).index("E"), TOKENS.index("F")] = 0  # else the two would follow each other for ever
    nodes = [
        helper.make_node("AveragePool", ["audio_signal"], ["thin"], kernel_shape=[_POOL], strides=[_POOL]),
        helper.make_node("Transpose", ["thin"], ["pooled"], perm=[0, 2, 1]),
        *tiny_models.loudness_nodes("pooled", "bands"),
        helper.make_node("MatMul", ["heard", "tokens_of"], ["likely"]),
        helper.make_node("Add", ["likely", "blank"], ["scored"]),
        helper.make_node("Transpose", ["scored"], ["outputs"], perm=[0, 2, 1]),
        helper.make_node("Div", ["length", "pool"], ["encoded_lengths"]),
    ]
    weights = tiny_models.constants(
        pool=[_POOL], last_axis=[2], loud=_QUIET, nothing=0.0,
        bands=tiny_models.band_weights(0, 8000, tiny_models.slaney_mel),
        tokens_of=blank_last(letters), blank=blank_last(tiny_models.blank_scores()),
    )  # fmt: skip
    lengths = [helper.make_tensor_value_info(name, TensorProto.INT64, ["N"]) for name in ("length", "encoded_lengths")]
    inputs = [_float("audio_signal", "N", 80, "T"), lengths[0]]
    graph = helper.make_graph(nodes, "encoder", inputs, [_float("outputs", "N", len(_OWN), "S"), lengths[1]], weights)
    save(path, graph, {"vocab_size": len(_OWN) - 1, "subsampling_factor": _POOL, "normalize_type": "NA",
                       "pred_rnn_layers": 1, "pred_hidden": 1})  # fmt: skip


def _write_decoder(path: Path) -> None:
    """What was said last is not said again."""
    table = np.diag([-100.0] * (len(_OWN) - 1) + [0.0]).astype(np.float32)
    given = [helper.make_tensor_value_info(name, TensorProto.INT32, shape)
             for name, shape in (("targets", [1, 1]), ("target_length", [1]), ("prednet_lengths", [1]))]  # fmt: skip
    nodes = [
        helper.make_node("Gather", ["table", "targets"], ["each"]),
        helper.make_node("Transpose", ["each"], ["outputs"], perm=[0, 2, 1]),
        *(helper.make_node("Identity", [name], [to])
          for name, to in (("target_length", "prednet_lengths"), ("s0", "s0_next"), ("s1", "s1_next"))),
    ]  # fmt: skip
    states = {name: _float(name, 1, 1, 1) for name in ("s0", "s1", "s0_next", "s1_next")}
    inputs = [*given[:2], states["s0"], states["s1"]]
    outputs = [_float("outputs", 1, len(_OWN), 1), given[2], states["s0_next"], states["s1_next"]]
    save(path, helper.make_graph(nodes, "decoder", inputs, outputs, [numpy_helper.from_array(table, "table")]), {})


def _write_joiner(path: Path) -> None:
    inputs = [_float(f"{side}_outputs", 1, len(_OWN), 1) for side in ("encoder", "decoder")]
    nodes = [
        helper.make_node("Add", ["encoder_outputs", "decoder_outputs"], ["sum"]),
        helper.make_node("Reshape", ["sum", "shape"], ["logits"]),
    ]
    shape = numpy_helper.from_array(np.array([1, 1, 1, -1]), "shape")
    save(path, helper.make_graph(nodes, "joiner", inputs, [_float("logits", 1, 1, 1, len(_OWN))], [shape]), {})
