"""Sentence embeddings by an ONNX model of the BERT family (MiniLM, E5, BGE) with its `tokenizer.json`.

onnxruntime runs such a model in the place of llama.cpp, because it is here in any case, needs no conversion of the
files that their makers publish, and answers from any thread without a context that calls would have to share; the
`tokenizers` library reads every tokenizer.
"""

from __future__ import annotations

import asyncio
import os
import threading
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

AT_ONCE: Final = 8
"""Passages in one run: more at once are no quicker on a core."""
_NICENESS: Final = 10
"""Of the thread that embeds passages: it gives way to calls. Questions are asked in calls."""

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class PoolingRecipe:
    """How a family of models wants its texts: what stands before a question and a passage, how many tokens it reads,
    and whether the first token stands for the whole text, in the place of the mean of all."""

    question: str = ""
    passage: str = ""
    most_tokens: int = 512
    first_token: bool = False


RECIPES: Final = {
    "mean": PoolingRecipe(most_tokens=256),
    "e5": PoolingRecipe("query: ", "passage: "),
    "bge": PoolingRecipe("Represent this sentence for searching relevant passages: ", first_token=True),
}
"""By what an engine is called after `onnx/`: MiniLM and others of Sentence Transformers; E5; BGE for English."""


class OnnxEmbeddings:
    """A model that is here; see `Embeddings`."""

    def __init__(self, path: Path, tokenizer: Path, name: str, recipe: PoolingRecipe) -> None:
        """Takes a second. Raises `StartupError` when the files are no such model."""
        self.name = self.version = name
        self._recipe = recipe
        try:
            self._tokenizer = _tokenizer(tokenizer, recipe.most_tokens)
            self._session = _session(path)
            self._inputs = {each.name for each in self._session.get_inputs()}
            self._outputs = [_output(self._session)]
            self.dimensions = int(self._vectors(["text"]).shape[1])
        except Exception as error:
            raise StartupError(f"The embedding model {path} cannot be loaded: {error}") from error
        self._questions = ThreadPoolExecutor(1, f"{name}-questions")
        self._passages = ThreadPoolExecutor(1, f"{name}-passages", _give_way)

    async def embed(self, texts: Sequence[str], *, query: bool) -> Vectors:
        """See `Embeddings`. Questions never wait for passages."""
        recipe, loop = self._recipe, asyncio.get_running_loop()
        before, thread = (recipe.question, self._questions) if query else (recipe.passage, self._passages)
        rows: list[Vectors] = []
        for begin in range(0, len(texts), AT_ONCE):
            some = [before + text for text in texts[begin : begin + AT_ONCE]]
            try:
                rows.append(await loop.run_in_executor(thread, partial(self._vectors, some)))
            except Exception as error:
                raise ModelError(f"{self.name}: {error}") from error
        return np.concatenate(rows) if rows else np.zeros((0, self.dimensions), np.float32)

    def close(self) -> None:
        """Wait for the run in progress (a second at most) and end the threads. Idempotent."""
        for thread in (self._questions, self._passages):
            thread.shutdown(cancel_futures=True)

    def _vectors(self, texts: Sequence[str]) -> Vectors:
        """float32[len(texts), d], rows of length 1."""
        read = self._tokenizer.encode_batch(list(texts))
        mask = np.array([each.attention_mask for each in read], np.int64)
        fed = {
            "input_ids": np.array([each.ids for each in read], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(mask),
        }
        (given,) = self._session.run(self._outputs, {key: value for key, value in fed.items() if key in self._inputs})
        vectors = _pooled(given, mask, first_token=self._recipe.first_token)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(lengths).all():
            raise ValueError("it gives vectors that are no numbers")
        whole: Vectors = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
        return whole


def _tokenizer(path: Path, most_tokens: int) -> Any:
    # Imported here: it brings threads of its own, which machines without such a model do not need.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(most_tokens)
    padding = next((token for token in ("[PAD]", "<pad>") if tokenizer.token_to_id(token) is not None), None)
    if padding is None:
        raise ValueError("its tokenizer has no token to fill up with")
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(padding), pad_token=padding)
    return tokenizer


def _session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _output(session: Any) -> str:
    """The one with whole texts, or else the first, which is of tokens."""
    names = [str(each.name) for each in session.get_outputs()]
    return "sentence_embedding" if "sentence_embedding" in names else names[0]


def _pooled(given: NDArray[Any], mask: NDArray[np.int64], *, first_token: bool) -> Vectors:
    """float32[n, d] of float32[n, tokens, d]; what is of whole texts already stays."""
    if given.ndim == 2:
        return given.astype(np.float32)
    if first_token:
        return given[:, 0].astype(np.float32)
    weights = mask[:, :, np.newaxis].astype(np.float32)
    mean: Vectors = (given * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
    return mean


def _give_way() -> None:
    # On Linux this sets the niceness of the calling thread alone.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
