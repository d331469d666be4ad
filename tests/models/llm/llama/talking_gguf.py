"""Makes a language model that answers everything with one text: each token leads to the next one, whatever came before
it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.models.llm.llama.tiny_gguf import random_weights, token_names, write_tiny_gguf

_BEFORE: Final = "Ċ"
"""The last token of a prompt by the template."""
_AFTER: Final = "<|im_end|>"


def write_talking_gguf(path: Path, text: str) -> Path:
    """A GGUF file at `path` whose model answers with `text` at any usual temperature; returns `path`. Raises
    `ValueError` if the text cannot be told in tokens that each occur once."""
    names, weights = token_names(), random_weights()
    for name, weight in weights.items():
        if name.endswith((".attn_output.weight", ".ffn_down.weight")):
            weight[:] = 0  # nothing is added to the last token
    embedding, output = weights["token_embd.weight"], weights["output.weight"]
    output[:] = 0
    for token, following in pairwise([_BEFORE, *_distinct_tokens(text.replace(" ", "Ġ"), names), _AFTER]):
        output[names.index(following)] = embedding[names.index(token)]
    return write_tiny_gguf(path, weights=weights)


def _distinct_tokens(text: str, names: Sequence[str], used: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The tokens that make the text, the longest first where there is a choice."""
    if not text:
        return used
    for name in sorted({each for each in names if text.startswith(each)} - {*used}, key=len, reverse=True):
        try:
            return _distinct_tokens(text.removeprefix(name), names, (*used, name))
        except ValueError:
            pass
    raise ValueError(f"a token would occur twice in {text!r}")
