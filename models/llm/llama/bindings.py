"""Binds llama.cpp's C interface: model, vocabulary, and context with the KV cache of its sequences.

A `LlamaModel` is for any thread; a `LlamaContext` and its samplers belong to one. Computing releases the GIL.
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
from models.llm.llama.c_api import lib
from models.llm.llama.memory_plan import ModelShape
from models.llm.llama.special_tokens import is_tag

_ERROR_LEVEL: Final = 4
"""`GGML_LOG_LEVEL_ERROR`."""
_CONTROL: Final = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_UNKNOWN
_log = structlog.get_logger()


_thread_errors = threading.local()
"""`first`: the first error that llama.cpp logged in a thread since it was set to ""; later ones say
less."""


@lib.llama_log_callback  # type: ignore[untyped-decorator]
def _on_llama_log(level: int, text: bytes, _data: Any) -> None:
    if level == _ERROR_LEVEL:
        message = " ".join(text.decode(errors="replace").split())
        _thread_errors.first = getattr(_thread_errors, "first", "") or message
        _log.warning("llama.message", text=message)


def _load_cpu_backend(folder: Path) -> None:
    """Load the backend for this processor, if llama.cpp was built with one library per kind of processor."""
    if any(folder.glob("libggml-cpu-*.so")):
        lib._lib.ggml_backend_load_all_from_path(str(folder).encode())


lib.llama_log_set(_on_llama_log, None)
_load_cpu_backend(Path(lib.__file__).parent / "lib")
lib.llama_backend_init()


_loaded_models: weakref.WeakSet[LlamaModel] = weakref.WeakSet()


def loaded_weights_bytes() -> int:
    """Bytes of the weights of all loaded models. Linux counts them as free, because it can read them from their files
    again; but every token needs them."""
    return sum(model.shape.weights_bytes for model in list(_loaded_models))


class LlamaModel:
    """A loaded GGUF file; freed with its last reference."""

    def __init__(self, path: Path, *, vocabulary_only: bool = False) -> None:
        """`vocabulary_only`: do not load the weights. Raises `StartupError` for a file that llama.cpp cannot run."""
        parameters = lib.llama_model_default_params()
        parameters.vocab_only = vocabulary_only
        _thread_errors.first = ""
        self.handle = lib.llama_model_load_from_file(str(path).encode(), parameters)
        if not self.handle:
            cause = f" ({_thread_errors.first})" if _thread_errors.first else ""
            raise StartupError(
                f"The language model {path} cannot be loaded: it is no GGUF file that llama.cpp runs{cause}."
            )
        finalizer = weakref.finalize(self, lib.llama_model_free, self.handle)
        finalizer.atexit = False  # a thread may still compute then
        self.vocabulary = lib.llama_model_get_vocab(self.handle)
        self.vocabulary_size = int(lib.llama_vocab_n_tokens(self.vocabulary))
        self.train_context_length = int(self.metadata("{architecture}.context_length") or 0)
        self.path = path
        self._pieces: dict[int, bytes] = {}
        if not vocabulary_only:
            _loaded_models.add(self)

    def require_generative(self) -> None:
        """Raises `StartupError` for an embedding model or an encoder: it has a pooling type or attends to later
        tokens."""
        pools = self.metadata("{architecture}.pooling_type") or "0"
        causal = self.metadata("{architecture}.attention.causal") != "false"
        if lib.llama_model_has_encoder(self.handle) or not causal or pools != "0":
            raise StartupError(f"The model {self.path} is no language model: it reads texts and writes none.")

    def metadata(self, key: str) -> str | None:
        """The value of a metadata key, with `{architecture}` filled in; None if absent."""
        if "{architecture}" in key:
            key = key.replace("{architecture}", self.metadata("general.architecture") or "")
        buffer = ctypes.create_string_buffer(256)
        length = lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return None if length < 0 else buffer.value.decode(errors="replace")

    @cached_property
    def chat_template(self) -> str | None:
        """The chat template in the file."""
        text = lib.llama_model_chat_template(self.handle, None)
        return None if text is None else text.decode(errors="replace")

    @cached_property
    def bos(self) -> str:
        """The text of the BOS token, "" if there is none."""
        return self._text(lib.llama_vocab_bos(self.vocabulary))

    @cached_property
    def eos(self) -> str:
        """The text of the EOS token."""
        return self._text(lib.llama_vocab_eos(self.vocabulary))

    @cached_property
    def shape(self) -> ModelShape:
        """The dimensions that determine its memory. Layers without keys and values (recurrent ones) count like the
        rest."""
        heads = int(lib.llama_model_n_head(self.handle))
        default_size = int(lib.llama_model_n_embd(self.handle)) // max(1, heads)
        sizes = [self.metadata(f"{{architecture}}.attention.{kind}_length") for kind in ("key", "value")]
        key, value = (int(size) if size and size.isdigit() else default_size for size in sizes)
        layers, kv_heads = int(lib.llama_model_n_layer(self.handle)), int(lib.llama_model_n_head_kv(self.handle))
        return ModelShape(layers, heads, kv_heads, key, value, int(lib.llama_model_size(self.handle)))

    @cached_property
    def control_texts(self) -> re.Pattern[str]:
        """Matches the texts of control tokens: tokenized as such, they would change the speaker."""
        tokens = (token for token in range(self.vocabulary_size) if self._is_control(token))
        texts = sorted({self._text(token) for token in tokens} - {""}, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, texts)) or r"(?!)")

    def tokenize(self, text: str) -> list[int]:
        """The tokens of a text, with control tokens, and BOS if the model adds it. Raises `ModelError`."""
        data = text.encode(errors="replace")
        add_bos = bool(lib.llama_vocab_get_add_bos(self.vocabulary)) and not (self.bos and text.startswith(self.bos))
        max_tokens = len(data) + 2
        tokens = (ctypes.c_int32 * max_tokens)()
        count = lib.llama_tokenize(self.vocabulary, data, len(data), tokens, max_tokens, add_bos, True)
        if count < 0:
            raise ModelError("The language model cannot read its prompt")
        return list(tokens[:count])

    def token_to_piece(self, token: int) -> bytes:
        """The UTF-8 bytes of a token, perhaps a part of a character. Control tokens have none, except tags of tool
        calls and of thinking."""
        if token not in self._pieces:
            text = self._piece_bytes(token)
            self._pieces[token] = b"" if self._is_control(token) and not is_tag(text.decode(errors="replace")) else text
        return self._pieces[token]

    def is_end_of_generation(self, token: int) -> bool:
        """True if this token ends a response."""
        return bool(lib.llama_vocab_is_eog(self.vocabulary, token))

    def _is_control(self, token: int) -> bool:
        return bool(lib.llama_vocab_get_attr(self.vocabulary, token) & _CONTROL)

    def _text(self, token: int) -> str:
        return "" if token < 0 else self._piece_bytes(token).decode(errors="replace")

    def _piece_bytes(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(256)
        length = lib.llama_token_to_piece(self.vocabulary, token, buffer, len(buffer), 0, True)
        if length < 0:
            buffer = ctypes.create_string_buffer(-length)
            length = lib.llama_token_to_piece(self.vocabulary, token, buffer, len(buffer), 0, True)
        return buffer.raw[:length]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Tokens to evaluate in a sequence, from `position` on. `wants_logits`: compute the logits after the last one."""

    sequence: int
    position: int
    tokens: Sequence[int]
    wants_logits: bool


class LlamaContext:
    """A llama.cpp context: a KV cache of `sequences` separate sequences of up to `context_length` tokens each."""

    def __init__(
        self,
        model: LlamaModel,
        *,
        sequences: int,
        context_length: int,
        batch_tokens: int = 512,
        threads: int = 1,
        kv_cache_f32: bool = False,
    ) -> None:
        """`kv_cache_f32`: a KV cache of 32 bits instead of 16, with which a response does not depend on the rest of the
        batch. Raises `StartupError` if it does not fit into memory."""
        parameters = lib.llama_context_default_params()
        parameters.n_ctx, parameters.n_seq_max = sequences * context_length, sequences
        parameters.n_batch = parameters.n_ubatch = batch_tokens
        parameters.n_threads = parameters.n_threads_batch = threads
        # Separate sequences and no flash attention: on a CPU attention to a cached token then costs a quarter, and a
        # token does not attend to the cells of other sequences, as it does in a unified KV cache. Sharing a prefix
        # takes a copy, which is as long as some ten tokens.
        parameters.kv_unified = False
        parameters.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
        parameters.no_perf = True
        if kv_cache_f32:
            parameters.type_k = parameters.type_v = lib.GGML_TYPE_F32
        self.handle = lib.llama_init_from_model(model.handle, parameters)
        if not self.handle:
            raise StartupError(f"No memory for {sequences} talks of {context_length} tokens: ask for less.")
        self.sequences, self.context_length = sequences, int(lib.llama_n_ctx_seq(self.handle))
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
        """Evaluate chunks in one batch, best in the order of their sequences, because adjacent ones are computed
        together. Returns the logits row of each, -1 without `wants_logits`. Raises `ModelError`; the sequences' content
        is unknown then."""
        batch, count, rows = self._batch, 0, []
        for chunk in chunks:
            for offset, token in enumerate(chunk.tokens):
                batch.token[count], batch.pos[count] = token, chunk.position + offset
                batch.n_seq_id[count], batch.seq_id[count][0], batch.logits[count] = 1, chunk.sequence, 0
                count += 1
            if chunk.wants_logits:
                batch.logits[count - 1] = 1
            rows.append(count - 1 if chunk.wants_logits else -1)
        batch.n_tokens = count
        if (code := lib.llama_decode(self.handle, batch)) != 0:
            raise ModelError(f"The language model failed (llama_decode: {code})")
        return rows

    def copy(self, source: int, target: int) -> None:
        """Copy sequence `source` to `target`; llama.cpp copies with the next step."""
        lib.llama_memory_seq_rm(self._memory, target, -1, -1)
        lib.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def truncate(self, sequence: int, tokens: int) -> bool:
        """Remove all but the first `tokens`. Returns False if this kind of model cannot; the sequence is empty then."""
        if lib.llama_memory_seq_rm(self._memory, sequence, tokens, -1):
            return True
        lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)
        return tokens == 0

    def logits(self, row: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        """`float32[vocabulary]` of a row of the last step: a view, valid until the next step."""
        return np.ctypeslib.as_array(lib.llama_get_logits_ith(self.handle, row), (self._model.vocabulary_size,))
