"""GGUF language models of real shapes with random weights: as fast as real ones, but their words are meaningless.

The sizes are those of published models; weights are quantized like those of llama.cpp's own tool for "Q4_0": matrices
in 4 bits, the embeddings, which are also the output, in 6. The vocabulary consists of words of two syllables, so that
an answer that becomes part of the prompt has the same tokens as when it was generated. Only words can be generated: all
other tokens, including those that end an answer, have embeddings of zero.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final

import gguf
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, TokenType

from bench.models.random_vocabulary import SPACE, syllables, words

FOLDER: Final = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "trunkline" / "bench-models"
_VERSION: Final = 1
"""Version of the file's content; files of other versions are not used."""
_TEMPLATE: Final = (
    "{%- if messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n{% endif %}"
    "{%- for message in messages %}{% if not (loop.first and message.role == 'system') %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CONTROL: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_ROLES: Final = ("system", "user", "assistant")
_TILE: Final = 64
"""Rows of weights that are drawn; a matrix repeats them."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a transformer. `syllables` give `syllables` squared words; `vocabulary` includes padding tokens."""

    width: int
    layers: int
    heads: int
    groups: int
    head_size: int
    inner: int
    syllables: int
    vocabulary: int
    context: int = 32_768


SHAPES: Final = {
    "15M": ModelShape(288, 6, 6, 6, 48, 768, 176, 32_000),
    "0.6B": ModelShape(1024, 28, 16, 8, 128, 3072, 388, 151_936),
    "1.7B": ModelShape(2048, 28, 16, 8, 128, 6144, 388, 151_936),
}
"""The shapes of stories15M, Qwen3-0.6B and Qwen3-1.7B."""


def shape_file(name: str, folder: Path = FOLDER) -> Path:
    """The path of a shape's file, which is written if it does not exist yet (takes seconds)."""
    path = folder / f"{name}-q4_0-{_VERSION}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        write(part, SHAPES[name])
        part.rename(path)
    return path


def write(path: Path, shape: ModelShape) -> None:
    """Writes a GGUF file of the architecture qwen3, always with the same content."""
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_name(path.name.partition("-")[0])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.groups)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writable = _add_tokenizer(writer, shape)
    rng = np.random.default_rng(0)
    _add_embeddings(writer, rng, shape, writable)
    _add_layers(writer, rng, shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: gguf.GGUFWriter, shape: ModelShape) -> slice:
    """Adds the tokenizer. Returns the range of the tokens that can be generated."""
    bytes_, known = _byte_names(), syllables(shape.syllables)
    spaced = [SPACE + syllable for syllable in known]
    tokens = [*bytes_, *known, *spaced, *(SPACE + word for word in words(shape.syllables))]
    writable = slice(len(bytes_) + 2 * len(known), len(tokens))
    merges = [" ".join(syllable) for syllable in known]
    merges += [f"{SPACE} {syllable}" for syllable in known]
    merges += [f"{first} {second}" for first, second in product(spaced, known)]
    types = [TokenType.NORMAL] * len(tokens) + [TokenType.CONTROL] * len(_CONTROL)
    types += [TokenType.USER_DEFINED] * len(_ROLES)
    tokens += [*_CONTROL, *_ROLES]
    missing = shape.vocabulary - len(tokens)
    assert missing >= 0
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens, *(f"[PAD{number}]" for number in range(missing))])
    writer.add_token_types([*types, *[TokenType.UNUSED] * missing])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(writable.stop)
    writer.add_eos_token_id(writable.stop + _CONTROL.index("<|im_end|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(_TEMPLATE)
    return writable


def _byte_names() -> list[str]:
    """The character of byte-level BPE for each byte: the byte's own if it is printable, else one from U+0100 on."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    named = {byte: chr(byte) for byte in plain} | {byte: chr(256 + place) for place, byte in enumerate(others)}
    return [named[byte] for byte in range(256)]


def _add_embeddings(writer: gguf.GGUFWriter, rng: np.random.Generator, shape: ModelShape, writable: slice) -> None:
    """Adds random embeddings, each row different, because of equal ones the first would always be sampled. In 6 bits
    (Q6_K: 128 + 64 bytes of values, 16 scales, one 16-bit scale of all) if rows divide into blocks of 256, else in
    8."""
    rows, width = shape.vocabulary, shape.width
    if width % 256:
        numbers = np.zeros((rows, width), np.float32)
        numbers[writable] = rng.standard_normal((writable.stop - writable.start, width), np.float32) * 0.02
        kind = GGMLQuantizationType.Q8_0
        writer.add_tensor("token_embd.weight", gguf.quants.quantize(numbers, kind), raw_dtype=kind)
        return
    blocks = np.zeros((rows, width // 256, 210), np.uint8)
    blocks[writable] = rng.integers(0, 256, (writable.stop - writable.start, width // 256, 210), np.uint8)
    scales = np.zeros((rows, width // 256), np.float16)
    scales[writable] = 0.02 / (18 * 74)  # the digits' deviation and that of their scales
    blocks[..., 208:] = scales[..., None].view(np.uint8)
    writer.add_tensor("token_embd.weight", blocks.reshape(rows, -1), raw_dtype=GGMLQuantizationType.Q6_K)


def _add_layers(writer: gguf.GGUFWriter, rng: np.random.Generator, shape: ModelShape) -> None:
    kind, tiles = GGMLQuantizationType.Q4_0, dict[int, npt.NDArray[np.uint8]]()
    for columns in (shape.width, shape.heads * shape.head_size, shape.inner):
        drawn = (rng.standard_normal((_TILE, columns)) / np.sqrt(columns)).astype(np.float32)
        tiles[columns] = gguf.quants.quantize(drawn, kind)
    ones, head_ones = np.ones(shape.width, np.float32), np.ones(shape.head_size, np.float32)
    queries, keys = shape.heads * shape.head_size, shape.groups * shape.head_size
    matrices = {
        "attn_q": (queries, shape.width),
        "attn_k": (keys, shape.width),
        "attn_v": (keys, shape.width),
        "attn_output": (shape.width, queries),
        "ffn_gate": (shape.inner, shape.width),
        "ffn_up": (shape.inner, shape.width),
        "ffn_down": (shape.width, shape.inner),
    }
    norms = {"attn_norm": ones, "ffn_norm": ones, "attn_q_norm": head_ones, "attn_k_norm": head_ones}
    writer.add_tensor("output_norm.weight", ones)
    for layer in range(shape.layers):
        for name, values in norms.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", values)
        for name, (rows, columns) in matrices.items():
            tile = tiles[columns]
            matrix = np.tile(tile, (-(-rows // _TILE), 1))[:rows]
            writer.add_tensor(f"blk.{layer}.{name}.weight", matrix, raw_dtype=kind)


def main() -> None:
    """Prints the path of a shape's file, which is written if it does not exist yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    print(shape_file(parser.parse_args().shape))


if __name__ == "__main__":
    main()
