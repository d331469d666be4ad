"""Sampling of the next token: by temperature and seed, and by a grammar."""

from __future__ import annotations

import codecs
import ctypes
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from config.errors import ModelError
from models.llm.llama.bindings import Context, Model
from models.llm.llama.native import lib

_CANDIDATE: Final = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)], align=True)

_LENGTHS: Final = {0xC: 2, 0xD: 2, 0xE: 3, 0xF: 4}
"""Bytes of a letter in UTF-8, by the upper half of the first."""


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn; `temperature` 0 takes the likeliest. The same `seed` draws the same."""

    temperature: float = 0.7
    top_k: int = 20
    top_p: float = 0.8
    min_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Grammar:
    """What may be written, in llama.cpp's notation (GBNF) from the rule `root` on: all of the answer, or what follows
    the first `after` in it."""

    rules: str
    after: bytes = b""


class Sampler:
    """Draws one answer's tokens."""

    def __init__(self, model: Model, sampling: Sampling, grammar: Grammar | None = None) -> None:
        """Raises `ModelError` when the grammar is broken."""
        self._model = model
        # Made at once, so that a broken one is found before the answer begins.
        self._grammar = None if grammar is None else _grammar(model, grammar.rules)
        self._after = grammar.after if grammar is not None else b""
        self._holds = grammar is not None and not grammar.after
        self._written = b""
        self._text = codecs.getincrementaldecoder("utf-8")()
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        for part in _parts(sampling):
            lib.llama_sampler_chain_add(self._chain, part)

    def close(self) -> None:
        """Free it. Idempotent."""
        if self._chain:
            lib.llama_sampler_free(self._chain)
            if self._grammar:
                lib.llama_sampler_free(self._grammar)
            self._chain = self._grammar = None

    def draw(self, context: Context, row: int) -> int:
        """The next token, from a row of the last step."""
        if self._holds:
            return self._draw_by_grammar(context, row)
        token = int(lib.llama_sampler_sample(self._chain, context.handle, row))
        if self._grammar:
            # Only where a token ends with the mark: llama.cpp ends the process when it is fed what does not fit.
            self._written = (self._written + self._model.piece(token))[-len(self._after) :]
            self._holds = self._written == self._after
        return token

    def _draw_by_grammar(self, context: Context, row: int) -> int:
        """llama.cpp ends the process when a grammar is fed what does not fit, and takes bytes for letters that are
        none: both is looked at before."""
        # To ask the grammar about the whole vocabulary takes long: mostly the drawn token is right.
        token = _drawn(_candidates(context.logits(row)), self._chain)
        only = np.array([(token, 1.0, 0.0)], _CANDIDATE)
        _apply(only, self._grammar)
        if np.isneginf(only["logit"][0]) or not self._is_text(token):
            token = self._draw_from_all(context, row)
        lib.llama_sampler_accept(self._grammar, token)
        lib.llama_sampler_accept(self._chain, token)
        self._text.decode(self._model.piece(token))
        return token

    def _draw_from_all(self, context: Context, row: int) -> int:
        """Of all tokens that fit. Raises `ModelError` when there is none."""
        candidates = _candidates(context.logits(row))
        _apply(candidates, self._grammar)
        while not np.isneginf(candidates["logit"]).all():
            token = _drawn(candidates.copy(), self._chain)
            if not np.isneginf(candidates["logit"][token]) and self._is_text(token):
                return token
            candidates["logit"][token] = -np.inf
        raise ModelError("The model has no token that its grammar takes")

    def _is_text(self, token: int) -> bool:
        """True if what is written stays UTF-8 with this token."""
        state = self._text.getstate()
        try:
            self._text.decode(self._model.piece(token))
            begun, _ = self._text.getstate()
            if len(begun) > 1:  # of no letter, if not even this can end it
                (begun + b"\x80" * (_LENGTHS[begun[0] >> 4] - len(begun))).decode()
        except UnicodeDecodeError:
            return False
        finally:
            self._text.setstate(state)
        return True


def _parts(sampling: Sampling) -> list[Any]:
    if sampling.temperature <= 0:
        return [lib.llama_sampler_init_greedy()]
    return [
        lib.llama_sampler_init_top_k(sampling.top_k),
        lib.llama_sampler_init_top_p(sampling.top_p, 1),
        lib.llama_sampler_init_min_p(sampling.min_p, 1),
        lib.llama_sampler_init_temp(sampling.temperature),
        lib.llama_sampler_init_dist(sampling.seed & 0x7FFFFFFF),
    ]


def _grammar(model: Model, rules: str) -> Any:
    sampler = lib.llama_sampler_init_grammar(model.vocabulary, rules.encode(), b"root")
    if not sampler:
        raise ModelError("The grammar of the answer is broken")
    return sampler


def _candidates(logits: np.ndarray[tuple[int], np.dtype[np.float32]]) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    candidates = np.zeros(len(logits), _CANDIDATE)
    candidates["id"] = np.arange(len(logits))
    candidates["logit"] = logits
    return candidates


def _apply(candidates: np.ndarray[tuple[int], np.dtype[np.void]], *samplers: Any) -> Any:
    """Let samplers work on `candidates`; what they leave."""
    data = candidates.ctypes.data_as(ctypes.POINTER(lib.llama_token_data))
    array = lib.llama_token_data_array(data, len(candidates), -1, False)
    for sampler in samplers:
        lib.llama_sampler_apply(sampler, ctypes.byref(array))
    return array


def _drawn(candidates: np.ndarray[tuple[int], np.dtype[np.void]], *samplers: Any) -> int:
    array = _apply(candidates, *samplers)
    return int(array.data[array.selected].id)
