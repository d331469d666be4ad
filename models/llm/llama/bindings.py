"""llama.cpp by its C interface: a model's file, its vocabulary, the KV cache of its sequences, and samplers.

A `Model` may be asked by any thread; a `Context` and its samplers belong to one. All computing is done without the GIL.
"""

from __future__ import annotations

import ctypes
import re
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog

from config.errors import ModelError, StartupError
from models.llm.llama.memory_plan import Shape
from models.llm.llama.native import lib
from models.llm.llama.special_tokens import is_marker

_ERROR_LEVEL: Final = 4
"""`GGML_LOG_LEVEL_ERROR`."""
_CONTROL: Final = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN
_log = structlog.get_logger()


_told = threading.local()
"""`first`: the first error that llama.cpp told of in a thread since it was set to ""; those after it say less."""


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _logged(level: int, text: bytes, _data: Any) -> None:
    if level == _ERROR_LEVEL:
        told = " ".join(text.decode(errors="replace").split())
        _told.first = getattr(_told, "first", "") or told
        _log.warning("llama.message", text=told)


def _load_processors(folder: Path) -> None:
    """A build for all kinds of processors has the code for each in a file of its own: load the best for this one."""
    if any(folder.glob("libggml-cpu-*.so")):
        lib._lib.ggml_backend_load_all_from_path(str(folder).encode())


lib.llama_log_set(_logged, None)
_load_processors(Path(lib.__file__).parent / "lib")
lib.llama_backend_init()


_loaded_models: weakref.WeakSet[Model] = weakref.WeakSet()


def weights_in_memory() -> int:
    """Bytes of the weights of all models that are loaded now. Linux says that they are free, because it could read
    them again from their files; but they are needed for every word."""
    return sum(model.shape.weights_bytes for model in list(_loaded_models))


class Model:
    """A GGUF file, loaded; freed when nobody has it any more, neither a context nor a thread that reads."""

    def __init__(self, path: Path, *, vocabulary_only: bool = False) -> None:
        """`vocabulary_only`: to look at it, without its weights. Raises `StartupError` when it is no model that
        llama.cpp can run."""
        parameters = lib.llama_model_default_params()
        parameters.vocab_only = vocabulary_only
        _told.first = ""
        self.handle = lib.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.handle:
            cause = f" ({_told.first})" if _told.first else ""
            raise StartupError(
                f"The language model {path} cannot be loaded: it is no GGUF file that llama.cpp runs{cause}."
            )
        freed = weakref.finalize(self, lib.llama_model_free, self.handle)
        freed.atexit = False  # a thread may still compute then
        self.vocabulary = lib.llama_model_get_vocab(self.handle)
        self.size = int(lib.llama_vocab_n_tokens(self.vocabulary))
        self.trained_for = int(self.metadata("{architecture}.context_length") or 0)
        self.path = path
        self._pieces: dict[int, bytes] = {}
        if not vocabulary_only:
            _loaded_models.add(self)

    def require_generative(self) -> None:
        """Raises `StartupError` for a model that reads texts and writes none: one for embeddings sees what follows a
        word too, or is made to sum up a text."""
        pools = self.metadata("{architecture}.pooling_type") or "0"
        causal = self.metadata("{architecture}.attention.causal") != "false"
        if lib.llama_model_has_encoder(self.handle) or not causal or pools != "0":
            raise StartupError(f"The model {self.path} is no language model: it reads texts and writes none.")

    def metadata(self, key: str) -> str | None:
        """What the file says under a key, `{architecture}` in it filled in; None: nothing."""
        if "{architecture}" in key:
            key = key.replace("{architecture}", self.metadata("general.architecture") or "")
        buffer = ctypes.create_string_buffer(256)
        length = lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return None if length < 0 else buffer.value.decode(errors="replace")

    @cached_property
    def template(self) -> str | None:
        """The chat template that the file brings."""
        text = lib.llama_model_chat_template(self.handle, None)
        return None if text is None else text.decode(errors="replace")

    @cached_property
    def bos(self) -> str:
        """The text of the token that begins every text, "" if there is none."""
        return self._text(lib.llama_vocab_bos(self.vocabulary))

    @cached_property
    def eos(self) -> str:
        """The text of the token that ends a text."""
        return self._text(lib.llama_vocab_eos(self.vocabulary))

    @cached_property
    def shape(self) -> Shape:
        """What its memory depends on. Layers that remember by other means than keys and values count like the rest."""
        heads = int(lib.llama_model_n_head(self.handle))
        usual = int(lib.llama_model_n_embd(self.handle)) // max(1, heads)
        sizes = [self.metadata(f"{{architecture}}.attention.{each}_length") for each in ("key", "value")]
        key, value = (int(size) if size and size.isdigit() else usual for size in sizes)
        layers, groups = int(lib.llama_model_n_layer(self.handle)), int(lib.llama_model_n_head_kv(self.handle))
        return Shape(layers, heads, groups, key, value, int(lib.llama_model_size(self.handle)))

    @cached_property
    def control_texts(self) -> re.Pattern[str]:
        """Finds the texts of control tokens: read as tokens, they would change who speaks."""
        tokens = (token for token in range(self.size) if self._is_control(token))
        texts = sorted({self._text(token) for token in tokens} - {""}, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, texts)) or r"(?!)")

    def tokens(self, text: str) -> list[int]:
        """A text's tokens; those of control are read as such. Begins as the model wants it."""
        data = text.encode(errors="replace")
        begins = bool(lib.llama_vocab_get_add_bos(self.vocabulary)) and not (self.bos and text.startswith(self.bos))
        room = len(data) + 2
        found = (ctypes.c_int32 * room)()
        count = lib.llama_tokenize(self.vocabulary, data, len(data), found, room, begins, True)
        if count < 0:
            raise ModelError("The language model cannot read its prompt")
        return list(found[:count])

    def piece(self, token: int) -> bytes:
        """What a token adds to a text, perhaps a part of a character. Control tokens add nothing, unless they tell
        tool calls and thoughts apart."""
        if token not in self._pieces:
            text = self._raw(token)
            self._pieces[token] = (
                b"" if self._is_control(token) and not is_marker(text.decode(errors="replace")) else text
            )
        return self._pieces[token]

    def is_end(self, token: int) -> bool:
        """True if an answer is over with this token."""
        return bool(lib.llama_vocab_is_eog(self.vocabulary, token))

    def _is_control(self, token: int) -> bool:
        return bool(lib.llama_vocab_get_attr(self.vocabulary, token) & _CONTROL)

    def _text(self, token: int) -> str:
        return "" if token < 0 else self._raw(token).decode(errors="replace")

    def _raw(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(256)
        length = lib.llama_token_to_piece(self.vocabulary, token, buffer, len(buffer), 0, True)
        if length < 0:
            buffer = ctypes.create_string_buffer(-length)
            length = lib.llama_token_to_piece(self.vocabulary, token, buffer, len(buffer), 0, True)
        return buffer.raw[:length]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens to evaluate in a sequence, from its position `at` on; with `answers` it is asked what follows them."""

    sequence: int
    at: int
    tokens: Sequence[int]
    answers: bool


class Context:
    """A model's memory: `sequences` texts of up to `capacity` tokens, each in a place of its own."""

    def __init__(
        self,
        model: Model,
        *,
        sequences: int,
        capacity: int,
        batch_tokens: int = 512,
        threads: int = 1,
        exact: bool = False,
    ) -> None:
        """With `exact` it remembers in 32 bits, in place of 16: an answer then does not depend on who else is in the
        batch. Raises `StartupError` when it does not fit."""
        parameters = lib.llama_context_default_params()
        parameters.n_ctx, parameters.n_seq_max = sequences * capacity, sequences
        parameters.n_batch = parameters.n_ubatch = batch_tokens
        parameters.n_threads = parameters.n_threads_batch = threads
        # Each text in a place of its own, and no flash attention: on a CPU a token then costs a quarter of what it does
        # with flash attention for each token of its talk, and nothing for those of other talks, which share a pool
        # otherwise. To share a beginning takes a copy: as long as to read some ten tokens.
        parameters.kv_unified = False
        parameters.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.no_perf = True
        if exact:
            parameters.type_k = parameters.type_v = lib.GGML_TYPE_F32
        self.handle = lib.llama_init_from_model(model.handle, parameters)
        if not self.handle:
            raise StartupError(f"No memory for {sequences} talks of {capacity} tokens: ask for less.")
        self.sequences, self.capacity = sequences, int(lib.llama_n_ctx_seq(self.handle))
        self.batch_tokens = batch_tokens
        self._model = model
        self._memory = lib.llama_get_memory(self.handle)
        self._batch = lib.llama_batch_init(batch_tokens, 0, 1)

    def close(self) -> None:
        """Free it. Idempotent."""
        if self.handle:
            lib.llama_batch_free(self._batch)
            lib.llama_free(self.handle)
            self.handle = None

    def evaluate(self, chunks: Sequence[Chunk]) -> list[int]:
        """Read all chunks at once, best in the order of their sequences: those whose numbers follow each other are
        computed together. For each its row to sample from, -1 without an answer. Raises `ModelError`: what the
        sequences hold is not known then."""
        batch, count, rows = self._batch, 0, []
        for chunk in chunks:
            for offset, token in enumerate(chunk.tokens):
                batch.token[count], batch.pos[count] = token, chunk.at + offset
                batch.n_seq_id[count], batch.seq_id[count][0], batch.logits[count] = 1, chunk.sequence, 0
                count += 1
            if chunk.answers:
                batch.logits[count - 1] = 1
            rows.append(count - 1 if chunk.answers else -1)
        batch.n_tokens = count
        if (code := lib.llama_decode(self.handle, batch)) != 0:
            raise ModelError(f"The language model failed (llama_decode: {code})")
        return rows

    def copy(self, source: int, target: int) -> None:
        """Let `target` hold what `source` holds; the copy is made with the next step."""
        lib.llama_memory_seq_rm(self._memory, target, -1, -1)
        lib.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def truncate(self, sequence: int, tokens: int) -> bool:
        """Forget all but the first `tokens`. False: this kind of model cannot; nothing is held any more."""
        if lib.llama_memory_seq_rm(self._memory, sequence, tokens, -1):
            return True
        lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        return tokens == 0

    def logits(self, row: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """`float32[vocabulary]` for a row of the last step: a view, good until the next step."""
        return np.ctypeslib.as_array(lib.llama_get_logits_ith(self.handle, row), (self._model.size,))
