"""A small sentence embedding model in the form of real ones: an ONNX file that looks up a vector for each token, and a
tokenizer. Synonyms have the same vector, all other words one of their own."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from models.model_files.known_models import KnownModel
from models.model_files.store import FileRecord, ModelStore, sha256_of

WORD = re.compile(r"\w+")


def write(
    folder: Path,
    same: Sequence[str],
    texts: Iterable[str],
    *,
    size: int = 128,
    weights: Mapping[str, float] | None = None,
) -> None:
    """`model.onnx` and `tokenizer.json`. Each of `same` is a line of synonyms; the model knows these and the words of
    `texts`, each with a length of 1 or of `weights`."""
    meanings = {word: line for line in same for word in line.split()}
    known = sorted({word for text in (*same, *texts) for word in WORD.findall(text.lower())} | set(meanings))
    vocabulary = {word: number for number, word in enumerate(("[PAD]", "[UNK]", *known))}
    table = np.stack([_vector(meanings.get(word, word), size) * (weights or {}).get(word, 1.0) for word in vocabulary])
    table[:2] = 0.0
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(vocabulary)), "utf-8")
    save(folder / "model.onnx", table)


ENTRY: Final = {
    "name": "tiny", "kind": "embedding", "engine": "onnx/mean", "licence": "MIT", "languages": ["*"],
    "package": "tokenizers", "base": "https://models.example/",
    "files": [{"role": "model", "name": "model.onnx"}, {"role": "tokenizer", "name": "tokenizer.json"}],
}  # fmt: skip
"""Its entry in an operator's list."""


def install(folder: Path, directory: Path) -> None:
    """Put the files of a folder into `[models] dir`, whose list has `ENTRY`, as `pull` does."""
    model = KnownModel.model_validate(ENTRY)
    come = {}
    for file in model.files:
        part = directory / f"part-{file.name}"
        part.write_bytes((folder / file.name).read_bytes())
        record = FileRecord(size=part.stat().st_size, sha256=sha256_of(part).hexdigest(), origin="first copy")
        come[file.name] = part, record
    ModelStore(directory, [model]).install(model, come)


def save(path: Path, table: np.ndarray) -> None:
    """A model that maps each token to its row of a float32 table."""
    tokens = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"]) for name in ("input_ids", "attention_mask")
    ]
    hidden = helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, ["n", "t", table.shape[1]])
    node = helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"])
    weights = [numpy_helper.from_array(table.astype(np.float32), "table")]
    graph = helper.make_graph([node], "tiny", tokens, [hidden], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, str(path))


def _vector(meaning: str, size: int) -> np.ndarray:
    vector = np.random.default_rng(zlib.crc32(meaning.encode())).standard_normal(size)
    return vector / np.linalg.norm(vector)


def _tokenizer(vocabulary: dict[str, int]) -> dict[str, object]:
    """As the `tokenizers` library writes it: whole words in small letters."""
    special = [
        {"id": number, "content": word, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for word, number in vocabulary.items() if number < 2
    ]  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
        "decoder": None, "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"},
    }  # fmt: skip
