"""Samples the next token, by temperature and seed, constrained by a grammar."""

from __future__ import annotations

import codecs
import ctypes
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from config.errors import ModelError
from models.llm.llama.bindings import LlamaContext, LlamaModel
from models.llm.llama.c_api import lib

_CANDIDATE: Final = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)], align=True)

_UTF8_LENGTHS: Final = {0xC: 2, 0xD: 2, 0xE: 3, 0xF: 4}
"""Bytes of a UTF-8 character, by the upper half of its first byte."""


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters. `temperature` 0 is greedy; the same `seed` gives the same tokens."""

    temperature: float = 0.7
    top_k: int = 20
    top_p: float = 0.8
    min_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Grammar:
    """A GBNF grammar with the rule `root`, for all of the response, or for what follows the first `after` in it."""

    rules: str
    after: bytes = b""


class Sampler:
    """Samples the tokens of one response."""

    def __init__(self, model: LlamaModel, sampling: Sampling, grammar: Grammar | None = None) -> None:
        """Raises `ModelError` for an invalid grammar."""
        self._model = model
        # Compiled at once, so that an invalid grammar is found before the response begins.
        self._grammar = None if grammar is None else _grammar(model, grammar.rules)
        self._trigger = grammar.after if grammar is not None else b""
        self._is_constrained = grammar is not None and not grammar.after
        self._recent = b""
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._chain = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        for part in _samplers(sampling):
            lib.llama_sampler_chain_add(self._chain, part)

    def close(self) -> None:
        """Free it. Idempotent."""
        if self._chain:
            lib.llama_sampler_free(self._chain)
            if self._grammar:
                lib.llama_sampler_free(self._grammar)
            self._chain = self._grammar = None

    def sample(self, context: LlamaContext, row: int) -> int:
        """Sample the next token from a logits row of the last step."""
        if self._is_constrained:
            return self._sample_constrained(context, row)
        token = int(lib.llama_sampler_sample(self._chain, context.handle, row))
        if self._grammar:
            # Only if a token ends with the trigger: llama.cpp aborts the process on a token that its grammar rejects.
            self._recent = (self._recent + self._model.token_to_piece(token))[-len(self._trigger) :]
            self._is_constrained = self._recent == self._trigger
        return token

    def _sample_constrained(self, context: LlamaContext, row: int) -> int:
        """Sample a token that the grammar accepts and that keeps the text valid UTF-8. Both are checked before, because
        llama.cpp aborts the process on a token that its grammar rejects."""
        # Applying the grammar to the whole vocabulary is slow, and the sampled token is mostly valid.
        token = _run_samplers(_candidates(context.logits(row)), self._chain)
        only = np.array([(token, 1.0, 0.0)], _CANDIDATE)
        _apply(only, self._grammar)
        if np.isneginf(only["logit"][0]) or not self._is_text(token):
            token = self._sample_from_all(context, row)
        lib.llama_sampler_accept(self._grammar, token)
        lib.llama_sampler_accept(self._chain, token)
        self._utf8.decode(self._model.token_to_piece(token))
        return token

    def _sample_from_all(self, context: LlamaContext, row: int) -> int:
        """Sample from all tokens that the grammar accepts. Raises `ModelError` if there is none."""
        candidates = _candidates(context.logits(row))
        _apply(candidates, self._grammar)
        while not np.isneginf(candidates["logit"]).all():
            token = _run_samplers(candidates.copy(), self._chain)
            if not np.isneginf(candidates["logit"][token]) and self._is_text(token):
                return token
            candidates["logit"][token] = -np.inf
        raise ModelError("The model has no token that its grammar accepts")

    def _is_text(self, token: int) -> bool:
        """True if the text stays valid UTF-8 with this token."""
        state = self._utf8.getstate()
        try:
            self._utf8.decode(self._model.token_to_piece(token))
            partial, _ = self._utf8.getstate()
            if len(partial) > 1:  # invalid if no continuation byte can complete it
                (partial + b"\x80" * (_UTF8_LENGTHS[partial[0] >> 4] - len(partial))).decode()
        except UnicodeDecodeError:
            return False
        finally:
            self._utf8.setstate(state)
        return True


def _samplers(sampling: Sampling) -> list[Any]:
    if sampling.temperature <= 0:
        return [lib.llama_sampler_init_greedy()]
    return [
        lib.llama_sampler_init_top_k(sampling.top_k),
        lib.llama_sampler_init_top_p(sampling.top_p, 1),
        lib.llama_sampler_init_min_p(sampling.min_p, 1),
        lib.llama_sampler_init_temp(sampling.temperature),
        lib.llama_sampler_init_dist(sampling.seed & 0x7FFFFFFF),
    ]


def _grammar(model: LlamaModel, rules: str) -> Any:
    sampler = lib.llama_sampler_init_grammar(model.vocabulary, rules.encode(), b"root")
    if not sampler:
        raise ModelError("The grammar of the response is invalid")
    return sampler


def _candidates(logits: np.ndarray[tuple[int], np.dtype[np.float32]]) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    candidates = np.zeros(len(logits), _CANDIDATE)
    candidates["id"] = np.arange(len(logits))
    candidates["logit"] = logits
    return candidates


def _apply(candidates: np.ndarray[tuple[int], np.dtype[np.void]], *samplers: Any) -> Any:
    """Apply samplers to `candidates`. Returns their result."""
    data = candidates.ctypes.data_as(ctypes.POINTER(lib.llama_token_data))
    array = lib.llama_token_data_array(data, len(candidates), -1, False)
    for sampler in samplers:
        lib.llama_sampler_apply(sampler, ctypes.byref(array))
    return array


def _run_samplers(candidates: np.ndarray[tuple[int], np.dtype[np.void]], *samplers: Any) -> int:
    array = _apply(candidates, *samplers)
    return int(array.data[array.selected].id)
