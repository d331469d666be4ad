"""Models of a few kilobytes that hear tones: one for each letter of a small alphabet. They have the inputs, outputs and
metadata of real ones, so that sherpa-onnx runs them as such.

The streaming one remembers from one piece of sound to the next which tone it heard last, and hears a letter where a
tone begins; a state that were lost or mixed up with another stream's would double a letter or swallow one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from media.audio_port import Samples

TONES: Final[Mapping[str, int]] = {"A": 420, "B": 620, "C": 880, "D": 1220, "E": 1650, "F": 2200, "G": 2900}
"""Hz, all within a telephone's band."""
TOKENS: Final = ("<blk>", "<unk>", *(f"▁{letter}" for letter in "AC"), *"BDEFG", *(f"▁{letter}" for letter in "BDEFG"))
"""A word begins with A or C; the tokens after them are never heard, and make other words possible as hot words."""
_HEARD: Final[Mapping[str, str]] = {"A": "▁A", "B": "B", "C": "▁C", "D": "D", "E": "E", "F": "F", "G": "G"}
_RIVAL: Final = ("E", "F", 0.5)
"""The tone of the first is nearly as much like the second: so much less likely, in nats."""
_MELS: Final = 80
_POOL: Final = 4
"""Frames that one step of the network takes together."""
_CHUNK: Final = 16
_WINDOW: Final = 24
_BLANK: Final = 10.0
_SURE: Final = 20.0
_LOUD: Final = 0.0
"""Logarithm of the energy from which on a tone is one; digital silence has -16."""


def tones(text: str, rate: int, letter_ms: int = 120, gap_ms: int = 80, volume: float = 0.3) -> Samples:
    """The sound of letters, each followed by silence; a space is silence alone."""
    pieces = []
    for letter in text:
        time = np.arange(letter_ms * rate // 1000) / rate
        tone = volume * np.sin(2 * np.pi * TONES[letter] * time) if letter != " " else 0 * time
        ramp = np.minimum(1, np.minimum(time, time[::-1]) / 0.01)
        pieces += [tone * ramp, np.zeros(gap_ms * rate // 1000)]
    return (np.concatenate(pieces) * 32767).astype(np.int16)


def write_tokens(path: Path, tokens: Sequence[str] = TOKENS) -> None:
    """`tokens.txt`: a symbol and its number on each line."""
    path.write_text("".join(f"{token} {number}\n" for number, token in enumerate(tokens)), encoding="utf-8")


def write_transducer(folder: Path) -> None:
    """A streaming transducer: encoder.onnx, decoder.onnx, joiner.onnx and tokens.txt."""
    save(folder / "encoder.onnx", *_encoder())
    save(folder / "decoder.onnx", *_decoder())
    save(folder / "joiner.onnx", *_joiner())
    write_tokens(folder / "tokens.txt")


def write_streaming_ctc(folder: Path) -> None:
    """A streaming CTC model as NeMo exports them: model.onnx and tokens.txt. It remembers the tone too."""
    save(folder / "model.onnx", *_streaming_ctc())
    write_tokens(folder / "tokens.txt")


def write_sense_voice(folder: Path) -> None:
    """An offline model: model.onnx and tokens.txt. It hears the rival's letter in the rival's tone."""
    save(folder / "model.onnx", *_sense_voice())
    write_tokens(folder / "tokens.txt", [*TOKENS, "<|en|>", "<|NEUTRAL|>", "<|Speech|>", "<|woitn|>"])


Graph = tuple[onnx.GraphProto, Mapping[str, object]]


def _kaldi_mel(hz: float) -> float:
    return float(1127 * np.log(1 + hz / 700))


def slaney_mel(hz: float) -> float:
    """The scale of NeMo's features."""
    return 3 * hz / 200 if hz < 1000 else float(15 + 27 * np.log(hz / 1000) / np.log(6.4))


def band_weights(low_hz: float, high_hz: float, mel: Callable[[float], float] = _kaldi_mel) -> NDArray[np.float32]:
    """[mels, tones]: the mean of the two mel bands around each tone."""
    step = (mel(high_hz) - mel(low_hz)) / (_MELS + 1)
    weights = np.zeros((_MELS, len(TONES)), np.float32)
    for number, hz in enumerate(TONES.values()):
        below = int((mel(hz) - mel(low_hz)) / step) - 1
        weights[below : below + 2, number] = 0.5
    return weights


def token_weights(rival: bool) -> NDArray[np.float32]:
    """[1 + tones, tokens]: what each tone (and first: silence) says for each token."""
    weights = np.zeros((1 + len(TONES), len(TOKENS)), np.float32)
    for number, letter in enumerate(TONES):
        weights[1 + number, TOKENS.index(_HEARD[letter])] = _SURE
    like, other, less = _RIVAL
    row, column = 1 + list(TONES).index(like), TOKENS.index(_HEARD[other])
    weights[row, column] = _SURE - less if rival else 2 * _SURE
    return weights


def blank_scores() -> NDArray[np.float32]:
    """[tokens]: how likely nothing is."""
    bias = np.zeros(len(TOKENS), np.float32)
    bias[0] = _BLANK
    return bias


def constants(**values: NDArray[np.generic] | Sequence[int] | float) -> list[onnx.TensorProto]:
    """Tensors of a graph by their names: whole numbers for lists, else single floats."""
    return [
        numpy_helper.from_array(
            np.asarray(value, np.int64 if isinstance(value, list) else np.float32), name
        )
        for name, value in values.items()
    ]  # fmt: skip


def _float(name: str, *shape: str | int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def loudness_nodes(pooled: str, weights: str) -> list[onnx.NodeProto]:
    """`heard` [batch, steps, 1 + tones]: near 1 for the tone of each step, or for silence."""
    return [
        helper.make_node("MatMul", [pooled, weights], ["energy"]),
        helper.make_node("Sub", ["energy", "loud"], ["above"]),
        helper.make_node("ReduceMax", ["above", "last_axis"], ["loudest"], keepdims=1),
        helper.make_node("Mul", ["loudest", "nothing"], ["silence"]),
        helper.make_node("Concat", ["silence", "above"], ["scores"], axis=2),
        helper.make_node("Softmax", ["scores"], ["heard"], axis=2),
    ]


def _encoder() -> Graph:
    classes = 1 + len(TONES)
    nodes = [
        helper.make_node("Slice", ["x", "zero", "chunk", "time_axis"], ["now"]),
        helper.make_node("Reshape", ["now", "by_step"], ["stepped"]),
        helper.make_node("ReduceMean", ["stepped", "pool_axis"], ["pooled"], keepdims=0),
        *loudness_nodes("pooled", "bands"),
        helper.make_node("Transpose", ["h"], ["before"], perm=[1, 0, 2]),
        helper.make_node("Slice", ["heard", "zero", "but_last", "time_axis"], ["earlier"]),
        helper.make_node("Concat", ["before", "earlier"], ["previous"], axis=1),
        helper.make_node("Sub", ["one", "previous"], ["was_other"]),
        helper.make_node("Mul", ["heard", "was_other"], ["begins"]),
        helper.make_node("MatMul", ["begins", "tokens_of"], ["likely"]),
        helper.make_node("Add", ["likely", "blank"], ["encoder_out"]),
        helper.make_node("Slice", ["heard", "but_last", "end", "time_axis"], ["latest"]),
        helper.make_node("Transpose", ["latest"], ["new_h"], perm=[1, 0, 2]),
        helper.make_node("Identity", ["c"], ["new_c"]),
    ]
    weights = constants(
        zero=[0], chunk=[_CHUNK], time_axis=[1], pool_axis=[2], last_axis=[2], but_last=[-1], end=[2**31 - 1],
        by_step=[0, _CHUNK // _POOL, _POOL, _MELS], loud=_LOUD, nothing=0.0, one=1.0,
        bands=band_weights(20, 7600), tokens_of=token_weights(rival=True), blank=blank_scores(),
    )  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "encoder",
        [_float("x", "N", _WINDOW, _MELS), _float("h", 1, "N", classes), _float("c", 1, "N", 1)],
        [_float("encoder_out", "N", _CHUNK // _POOL, len(TOKENS)), _float("new_h", 1, "N", classes),
         _float("new_c", 1, "N", 1)],
        weights,
    )  # fmt: skip
    about = {"model_type": "lstm", "num_encoder_layers": 1, "T": _WINDOW, "decode_chunk_len": _CHUNK,
             "rnn_hidden_size": 1, "d_model": classes}  # fmt: skip
    return graph, about


def _streaming_ctc() -> Graph:
    """NeMo's features have less energy than others, on another scale. Inputs: the frames [batch, mels, frames], their
    number, and two caches with the filling of the first."""
    classes, steps = 1 + len(TONES), _CHUNK // _POOL
    nodes = [
        helper.make_node("Transpose", ["audio_signal"], ["x"], perm=[0, 2, 1]),
        helper.make_node("Slice", ["x", "zero", "chunk", "time_axis"], ["now"]),
        helper.make_node("Reshape", ["now", "by_step"], ["stepped"]),
        helper.make_node("ReduceMean", ["stepped", "pool_axis"], ["pooled"], keepdims=0),
        *loudness_nodes("pooled", "bands"),
        helper.make_node("Squeeze", ["cache_last_channel", "time_axis"], ["before"]),
        helper.make_node("Slice", ["heard", "zero", "but_last", "time_axis"], ["earlier"]),
        helper.make_node("Concat", ["before", "earlier"], ["previous"], axis=1),
        helper.make_node("Sub", ["one", "previous"], ["was_other"]),
        helper.make_node("Mul", ["heard", "was_other"], ["begins"]),
        helper.make_node("MatMul", ["begins", "tokens_of"], ["likely"]),
        helper.make_node("Add", ["likely", "blank"], ["scores_of_tokens"]),
        helper.make_node("LogSoftmax", ["scores_of_tokens"], ["logprobs"], axis=2),
        helper.make_node("Identity", ["length"], ["encoded_lengths"]),
        helper.make_node("Slice", ["heard", "but_last", "end", "time_axis"], ["latest"]),
        helper.make_node("Unsqueeze", ["latest", "time_axis"], ["cache_last_channel_next"]),
        helper.make_node("Identity", ["cache_last_time"], ["cache_last_time_next"]),
        helper.make_node("Identity", ["cache_last_channel_len"], ["cache_last_channel_len_next"]),
    ]
    weights = constants(
        zero=[0], chunk=[_CHUNK], time_axis=[1], pool_axis=[2], last_axis=[2], but_last=[-1], end=[2**31 - 1],
        by_step=[0, steps, _POOL, _MELS], loud=_LOUD - 6, nothing=0.0, one=1.0,
        bands=band_weights(0, 8000, slaney_mel), tokens_of=token_weights(rival=True), blank=blank_scores(),
    )  # fmt: skip
    names = ("length", "cache_last_channel_len", "encoded_lengths", "cache_last_channel_len_next")
    counts = [helper.make_tensor_value_info(name, TensorProto.INT64, ["N"]) for name in names]
    inputs = [_float("audio_signal", "N", _MELS, _WINDOW), counts[0], _float("cache_last_channel", "N", 1, 1, classes),
              _float("cache_last_time", "N", 1, 1, 1), counts[1]]  # fmt: skip
    outputs = [_float("logprobs", "N", steps, len(TOKENS)), counts[2],
               _float("cache_last_channel_next", "N", 1, 1, classes), _float("cache_last_time_next", "N", 1, 1, 1),
               counts[3]]  # fmt: skip
    about = {"window_size": _WINDOW, "chunk_shift": _CHUNK, "subsampling_factor": _POOL, "vocab_size": len(TOKENS) - 1,
             "cache_last_channel_dim1": 1, "cache_last_channel_dim2": 1, "cache_last_channel_dim3": classes,
             "cache_last_time_dim1": 1, "cache_last_time_dim2": 1, "cache_last_time_dim3": 1}  # fmt: skip
    return helper.make_graph(nodes, "model", inputs, outputs, weights), about


def _decoder() -> Graph:
    nodes = [helper.make_node("Gather", ["table", "y"], ["each"]),
             helper.make_node("ReduceSum", ["each", "axis"], ["decoder_out"], keepdims=0)]  # fmt: skip
    weights = constants(table=np.zeros((len(TOKENS), len(TOKENS)), np.float32), axis=[1])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, ["N", 2])
    graph = helper.make_graph(nodes, "decoder", [y], [_float("decoder_out", "N", len(TOKENS))], weights)
    return graph, {"vocab_size": len(TOKENS), "context_size": 2}


def _joiner() -> Graph:
    size = len(TOKENS)
    inputs = [_float("encoder_out", "N", size), _float("decoder_out", "N", size)]
    nodes = [helper.make_node("Add", ["encoder_out", "decoder_out"], ["logit"])]
    return helper.make_graph(nodes, "joiner", inputs, [_float("logit", "N", size)]), {"joiner_dim": size}


def _sense_voice() -> Graph:
    window, tags = 7, 4
    size = len(TOKENS) + tags
    tag_scores = np.zeros((1, tags, size), np.float32)
    tag_scores[0, np.arange(tags), len(TOKENS) + np.arange(tags)] = 2 * _SURE
    letters = np.pad(token_weights(rival=False), ((0, 0), (0, tags)))
    blank = np.pad(blank_scores(), (0, tags))
    nodes = [
        *loudness_nodes("x", "bands"),
        helper.make_node("MatMul", ["heard", "tokens_of"], ["likely"]),
        helper.make_node("Add", ["likely", "blank"], ["spoken"]),
        helper.make_node("Shape", ["x"], ["batch"], start=0, end=1),
        helper.make_node("Concat", ["batch", "tag_shape"], ["tags_shape"], axis=0),
        helper.make_node("Expand", ["tags", "tags_shape"], ["all_tags"]),
        helper.make_node("Concat", ["all_tags", "spoken"], ["logits"], axis=1),
    ]
    weights = constants(
        loud=_LOUD, nothing=0.0, last_axis=[2], bands=np.tile(band_weights(20, 8000), (window, 1)) / window,
        tokens_of=letters, blank=blank, tags=tag_scores, tag_shape=[tags, size],
    )  # fmt: skip
    lengths = [helper.make_tensor_value_info(name, TensorProto.INT32, ["N"])
               for name in ("x_length", "language", "text_norm")]  # fmt: skip
    graph = helper.make_graph(
        nodes, "model", [_float("x", "N", "T", window * _MELS), *lengths], [_float("logits", "N", "S", size)], weights
    )
    languages = {f"lang_{name}": number for number, name in enumerate(("auto", "zh", "en", "ja", "ko", "yue"))}
    about = {"vocab_size": size, "lfr_window_size": window, "lfr_window_shift": 6, "normalize_samples": 1,
             "with_itn": 14, "without_itn": 15, **languages,
             "neg_mean": ",".join(["0"] * window * _MELS), "inv_stddev": ",".join(["1"] * window * _MELS)}  # fmt: skip
    return graph, about


def save(path: Path, graph: onnx.GraphProto, about: Mapping[str, object]) -> None:
    """Write a model with its metadata."""
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {key: str(value) for key, value in about.items()})
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
