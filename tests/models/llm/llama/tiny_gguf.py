"""Makes language models of random weights: too small to say anything, real in all else: a byte-level BPE tokenizer with
its merges, special tokens, a ChatML template and a transformer whose every output depends on all that came before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, TokenType

from models.llm.llama.c_api import lib

CHATML: Final = (
    "{%- if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}"
    "# Tools\n<tools>\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}</tools>\n"
    'Answer with <tool_call>\n{"name": <name>, "arguments": <arguments>}\n</tool_call> to use one.<|im_end|>\n'
    "{%- elif messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n{% endif %}"
    "{%- for message in messages %}{% if not (loop.first and message.role == 'system') %}"
    "{%- if message.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ message.content }}\n</tool_response>"
    "{%- else %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{%- for call in message.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{%- endfor %}{% endif %}<|im_end|>\n{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Shaped like the templates of Qwen 2.5 and Hermes."""

_SPECIAL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MARKS: Final = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
"""Tokens of their own that are text like any other, as Qwen has them."""
_SAMPLE: Final = (
    "You are the assistant of a small hotel near the harbour. Answer the caller in one or two short sentences. "
    "The caller asks when the kitchen opens and what a room for the weekend costs. There is a table for four people at "
    "seven, and the name of the guest is taken down. Good morning, how can I help you today? Thank you for calling, "
    "that is all I wanted to know. Is there anything else that you want to ask? I am sorry, I did not hear you. "
    'The address is on the first page. {"name": "book_table", "arguments": {"people": 4, "time": "19:00"}} '
)


@dataclass(frozen=True)
class ModelShape:
    """A transformer's sizes; `heads * head_size` may differ from `width`. `vocabulary` pads the tokenizer's tokens."""

    width: int = 64
    layers: int = 2
    heads: int = 4
    groups: int = 2
    head_size: int = 32
    inner: int = 128
    context: int = 4096
    vocabulary: int = 0


TINY: Final = ModelShape()
WIDE: Final = ModelShape(width=256, heads=4, groups=2, head_size=64, inner=512)
"""Whose sizes can be divided by 256."""
_BY_LLAMA: Final = {GGMLQuantizationType.Q4_K: lib.LLAMA_FTYPE_MOSTLY_Q4_K_S}


def write_tiny_gguf(
    path: Path,
    *,
    seed: int = 0,
    shape: ModelShape = TINY,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    template: str | None = CHATML,
    pools: bool = False,
    weights: Mapping[str, npt.NDArray[np.float32]] | None = None,
) -> Path:
    """A GGUF file of the architecture qwen3 at `path`, the same bytes for the same arguments; returns `path`. One that
    `pools` is for embeddings. `weights` take the place of random ones, by their names. Kinds with `K` in their names
    want a shape whose sizes can be divided by 256."""
    if kind in _BY_LLAMA:
        plain = path.with_suffix(".f32")
        write_tiny_gguf(plain, seed=seed, shape=shape, template=template, pools=pools, weights=weights)
        return _quantized(plain, path, kind)
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_name("tiny")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.groups)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    if pools:
        writer.add_pooling_type(gguf.PoolingType.LAST)
    count = _add_tokenizer(writer, shape.vocabulary, template)
    for name, tensor in (weights or _weights(np.random.default_rng(seed), shape, count)).items():
        if tensor.ndim == 2 and kind is not GGMLQuantizationType.F32:
            writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def token_names() -> list[str]:
    """The tokens in order, in the letters of byte-level BPE (a space is `Ġ`, a line end `Ċ`)."""
    merges = _learned_merges(_SAMPLE, 160)
    return [*sorted(_BYTES.values()), *("".join(merge) for merge in merges), *_SPECIAL, *_MARKS]


def random_weights(seed: int = 0, shape: ModelShape = TINY) -> dict[str, npt.NDArray[np.float32]]:
    """The weights that `write_tiny_gguf` takes by itself, by name."""
    return _weights(np.random.default_rng(seed), shape, max(len(token_names()), shape.vocabulary))


def weights_of(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """The dequantized weights of a file, by name."""
    return {
        tensor.name: gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        for tensor in gguf.GGUFReader(path).tensors
    }


def _quantized(plain: Path, path: Path, kind: GGMLQuantizationType) -> Path:
    """Quantized by llama.cpp, for types that the package `gguf` cannot write."""
    parameters = lib.llama_model_quantize_default_params()
    parameters.ftype, parameters.pure, parameters.nthread = _BY_LLAMA[kind], True, 1
    assert lib.llama_model_quantize(str(plain).encode(), str(path).encode(), parameters) == 0
    plain.unlink()
    return path


def _weights(rng: np.random.Generator, shape: ModelShape, vocabulary: int) -> dict[str, npt.NDArray[np.float32]]:
    def matrix(rows: int, columns: int, gain: float = 1.0) -> npt.NDArray[np.float32]:
        return rng.standard_normal((rows, columns), dtype=np.float32) * np.float32(gain / np.sqrt(columns))

    ones = np.ones(shape.width, np.float32)
    queries, keys = shape.heads * shape.head_size, shape.groups * shape.head_size
    weights = {"token_embd.weight": matrix(vocabulary, shape.width, np.sqrt(shape.width)), "output_norm.weight": ones}
    for layer in range(shape.layers):
        parts = {
            "attn_norm": ones,
            "attn_q": matrix(queries, shape.width),
            "attn_k": matrix(keys, shape.width),
            "attn_v": matrix(keys, shape.width, 2.0),
            "attn_q_norm": np.full(shape.head_size, 1.5, np.float32),
            "attn_k_norm": np.full(shape.head_size, 1.5, np.float32),
            "attn_output": matrix(shape.width, queries, 2.0),
            "ffn_norm": ones,
            "ffn_gate": matrix(shape.inner, shape.width, 2.0),
            "ffn_up": matrix(shape.inner, shape.width, 2.0),
            "ffn_down": matrix(shape.width, shape.inner, 2.0),
        }
        weights |= {f"blk.{layer}.{name}.weight": tensor for name, tensor in parts.items()}
    return weights | {"output.weight": matrix(vocabulary, shape.width, 2.5)}


def _add_tokenizer(writer: gguf.GGUFWriter, at_least: int, template: str | None) -> int:
    """Returns the number of tokens."""
    merges = _learned_merges(_SAMPLE, 160)
    tokens = token_names()
    special = tokens.index(_SPECIAL[0])
    types = [TokenType.NORMAL] * special
    types += [TokenType.CONTROL] * len(_SPECIAL) + [TokenType.USER_DEFINED] * len(_MARKS)
    missing = max(0, at_least - len(tokens))
    tokens += [f"[unused{number}]" for number in range(missing)]
    types += [TokenType.UNUSED] * missing
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(merge) for merge in merges])
    writer.add_bos_token_id(special)
    writer.add_eos_token_id(special + _SPECIAL.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    if template is not None:
        writer.add_chat_template(template)
    return len(tokens)


def _byte_names() -> dict[int, str]:
    """The character of each byte in byte-level BPE: itself if printable, else a letter from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + place) for place, byte in enumerate(others)}


_BYTES: Final = _byte_names()


def _learned_merges(text: str, count: int) -> list[tuple[str, str]]:
    """Byte pair encoding: the most frequent adjacent pairs, merged one after the other."""
    words = Counter(
        tuple(_BYTES[byte] for byte in word.encode()) for word in text.replace(" ", "\0 ").split("\0") if word
    )
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, times in words.items():
            for pair in pairwise(word):
                pairs[pair] += times
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        words = Counter({_merged(word, best): times for word, times in words.items()})
    return merges


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    parts: list[str] = []
    for part in word:
        if parts and (parts[-1], part) == pair:
            parts[-1] += part
        else:
            parts.append(part)
    return tuple(parts)
