"""Sentence embeddings by an ONNX model of the BERT family (MiniLM, E5, BGE) with its `tokenizer.json`.

onnxruntime runs these models instead of llama.cpp, because it is installed in any case, needs no conversion of the
published files, and runs on any thread without a context that calls would have to share; the `tokenizers` library reads
every tokenizer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from config.errors import ModelError, StartupError
from media.onnx import onnxruntime
from models.runtime.thread_priority import lower_thread_priority

BATCH_SIZE: Final = 8
"""Texts in one run: a larger batch is not faster on a core."""
_NICENESS: Final = 10
"""Niceness of the thread that embeds passages, below the priority of calls. Queries belong to calls."""

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class PoolingRecipe:
    """The input and pooling of a family of models: prefixes of queries and passages, the maximum number of tokens, and
    whether the first token's vector is the text's, instead of the mean of all."""

    query_prefix: str = ""
    passage_prefix: str = ""
    max_tokens: int = 512
    pools_first_token: bool = False


RECIPES: Final = {
    "mean": PoolingRecipe(max_tokens=256),
    "e5": PoolingRecipe("query: ", "passage: "),
    "bge": PoolingRecipe("Represent this sentence for searching relevant passages: ", pools_first_token=True),
}
"""By the part of an engine name after `onnx/`: MiniLM and others of Sentence Transformers; E5; BGE for English."""


class OnnxEmbeddings:
    """A local model; see `Embeddings`."""

    def __init__(self, path: Path, tokenizer: Path, name: str, recipe: PoolingRecipe) -> None:
        """Takes a second. Raises `StartupError` when the files are not such a model."""
        self.name = self.version = name
        self._recipe = recipe
        try:
            self._tokenizer = _tokenizer(tokenizer, recipe.max_tokens)
            self._session = _session(path)
            self._inputs = {each.name for each in self._session.get_inputs()}
            self._outputs = [_output(self._session)]
            self.dimensions = int(self._vectors(["text"]).shape[1])
        except Exception as error:
            raise StartupError(f"The embedding model {path} cannot be loaded: {error}") from error
        self._queries = ThreadPoolExecutor(1, f"{name}-queries")
        self._passages = ThreadPoolExecutor(1, f"{name}-passages", lower_thread_priority, (_NICENESS,))

    async def embed(self, texts: Sequence[str], *, query: bool) -> Vectors:
        """See `Embeddings`. Queries never wait for passages."""
        recipe, loop = self._recipe, asyncio.get_running_loop()
        prefix, thread = (recipe.query_prefix, self._queries) if query else (recipe.passage_prefix, self._passages)
        rows: list[Vectors] = []
        for begin in range(0, len(texts), BATCH_SIZE):
            batch = [prefix + text for text in texts[begin : begin + BATCH_SIZE]]
            try:
                rows.append(await loop.run_in_executor(thread, partial(self._vectors, batch)))
            except Exception as error:
                raise ModelError(f"{self.name}: {error}") from error
        return np.concatenate(rows) if rows else np.zeros((0, self.dimensions), np.float32)

    def close(self) -> None:
        """Wait for the run in progress (a second at most) and end the threads. Idempotent."""
        for thread in (self._queries, self._passages):
            thread.shutdown(cancel_futures=True)

    def _vectors(self, texts: Sequence[str]) -> Vectors:
        """float32[len(texts), d], rows of length 1."""
        encodings = self._tokenizer.encode_batch(list(texts))
        mask = np.array([each.attention_mask for each in encodings], np.int64)
        inputs = {
            "input_ids": np.array([each.ids for each in encodings], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(mask),
        }
        (output,) = self._session.run(
            self._outputs, {key: value for key, value in inputs.items() if key in self._inputs}
        )
        vectors = _pooled(output, mask, pools_first_token=self._recipe.pools_first_token)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise ValueError("its vectors are not finite")
        normalized: Vectors = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
        return normalized


def _tokenizer(path: Path, max_tokens: int) -> Any:
    # Imported here: it starts threads of its own, which machines without such a model do not need.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(max_tokens)
    padding = next((token for token in ("[PAD]", "<pad>") if tokenizer.token_to_id(token) is not None), None)
    if padding is None:
        raise ValueError("its tokenizer has no padding token")
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(padding), pad_token=padding)
    return tokenizer


def _session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _output(session: Any) -> str:
    """The output of text vectors, or else the first, which is of tokens."""
    names = [str(each.name) for each in session.get_outputs()]
    return "sentence_embedding" if "sentence_embedding" in names else names[0]


def _pooled(output: NDArray[Any], mask: NDArray[np.int64], *, pools_first_token: bool) -> Vectors:
    """float32[n, d] of float32[n, tokens, d]; text vectors stay as they are."""
    if output.ndim == 2:
        return output.astype(np.float32)
    if pools_first_token:
        return output[:, 0].astype(np.float32)
    weights = mask[:, :, np.newaxis].astype(np.float32)
    mean: Vectors = (output * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
    return mean
