"""Hot words in sherpa-onnx's format: phrases that a call is likely to contain are recognized more readily (contextual
biasing)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from models.stt.sherpa.tokens import Case, Tokens

MAX_PHRASES: Final = 100
"""Maximum number of phrases of one call: each makes the search a little slower."""
MAX_PHRASE_CHARACTERS: Final = 64
"""Maximum characters of a phrase."""
SCORE: Final = 1.5
"""Bonus for each token of a hot word in a hypothesis, in nats: sherpa-onnx's own default."""
_QUOTE: Final = "\u2019"
_WORD: Final = re.compile(rf"[^\W_]+(?:['{_QUOTE}-][^\W_]+)*")


def normalized_phrases(hot_words: Sequence[str]) -> Iterator[str]:
    """The words of each phrase, without punctuation, which would be commands to sherpa-onnx. At most `MAX_PHRASES`,
    without duplicates."""
    seen: set[str] = set()
    for phrase in hot_words:
        plain = " ".join(_WORD.findall(phrase.replace(_QUOTE, "'")))
        if plain and len(plain) <= MAX_PHRASE_CHARACTERS and plain.casefold() not in seen:
            seen.add(plain.casefold())
            yield plain
            if len(seen) == MAX_PHRASES:
                return


def encode_hotwords(hot_words: Sequence[str], tokens: Tokens) -> str:
    """For `create_stream`: phrases in the model's case, separated by `/`; those that its tokens cannot spell are left
    out. "" for none."""
    spellable = []
    for phrase in normalized_phrases(hot_words):
        words = _cased(phrase, tokens.case).replace("-", " ").split()
        if all(tokens.can_encode(word) for word in words):
            spellable.append(" ".join(words))
    return "/".join(spellable)


def _cased(phrase: str, case: Case) -> str:
    match case:
        case "upper":
            return phrase.upper()
        case "lower":
            return phrase.lower()
        case "mixed":
            return phrase
