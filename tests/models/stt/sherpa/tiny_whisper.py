"""A Whisper of a few kilobytes: it returns "hello" for English and "hallo" for German, whatever the audio; without a
language it detects German."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Final

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.models.stt.sherpa.tiny_models import save, write_tokens

_TOKENS: Final = ("hello", "hallo", "<eot>", "<sot>", "<en>", "<de>", "<translate>", "<transcribe>", "<plain>", "<no>")
_FOLLOWS: Final = {"<en>": "hello", "<de>": "hallo", "hello": "<eot>", "hallo": "<eot>"}


def write(folder: Path) -> None:
    """encoder.onnx, decoder.onnx and tokens.txt."""
    number = {token: place for place, token in enumerate(_TOKENS)}
    table = np.zeros((len(_TOKENS), len(_TOKENS)), np.float32)
    for token, following in _FOLLOWS.items():
        table[number[token], number[following]] = 10
    table[number["<sot>"], number["<de>"]] = 5
    _write_encoder(folder / "encoder.onnx", number)
    _write_decoder(folder / "decoder.onnx", table)
    write_tokens(folder / "tokens.txt", [b64encode(token.encode()).decode() for token in _TOKENS])


def _write_encoder(path: Path, number: dict[str, int]) -> None:
    mel = helper.make_tensor_value_info("mel", TensorProto.FLOAT, ["N", 80, "T"])
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 1, 1]) for name in ("cross_k", "cross_v")]
    axes = numpy_helper.from_array(np.array([1, 2]), "axes")
    nodes = [helper.make_node("ReduceMean", ["mel", "axes"], [output.name]) for output in outputs]
    about = {
        "model_type": "whisper-tiny", "n_mels": 80, "n_text_layer": 1, "n_text_ctx": 16, "n_text_state": 1,
        "n_vocab": len(_TOKENS), "sot": number["<sot>"], "eot": number["<eot>"], "blank_id": number["<no>"],
        "translate": number["<translate>"], "transcribe": number["<transcribe>"], "is_multilingual": 1,
        "no_timestamps": number["<plain>"], "no_speech": number["<no>"],
        "sot_sequence": f"{number['<sot>']},{number['<en>']},{number['<transcribe>']}",
        "all_language_tokens": f"{number['<en>']},{number['<de>']}", "all_language_codes": "en,de",
    }  # fmt: skip
    save(path, helper.make_graph(nodes, "encoder", [mel], outputs, [axes]), about)


def _write_decoder(path: Path, table: np.ndarray) -> None:
    """The likely token after all given tokens at once."""
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["N", "n"])
    shapes: dict[str, list[str | int]] = {
        "k": [1, "N", 16, 1],
        "v": [1, "N", 16, 1],
        "cross_k": ["N", 1, 1],
        "cross_v": ["N", 1, 1],
    }
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    kept = [helper.make_tensor_value_info(f"{name}2", TensorProto.FLOAT, shapes[name]) for name in ("k", "v")]
    offset = helper.make_tensor_value_info("offset", TensorProto.INT64, [1])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 1, len(_TOKENS)])
    nodes = [
        helper.make_node("Gather", ["table", "tokens"], ["each"]),
        helper.make_node("ReduceSum", ["each", "axis"], ["logits"], keepdims=1),
        helper.make_node("Identity", ["k"], ["k2"]),
        helper.make_node("Identity", ["v"], ["v2"]),
    ]
    weights = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([1]), "axis")]
    save(path, helper.make_graph(nodes, "decoder", [tokens, *given, offset], [logits, *kept], weights), {})
