"""Hot words, as sherpa-onnx takes them: words that a call is likely to bring up are recognized more readily."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from models.stt.sherpa.tokens import Case, Tokens

MOST: Final = 100
"""Phrases of one call: each makes the search a little slower."""
LONGEST: Final = 64
"""Characters of a phrase."""
SCORE: Final = 1.5
"""What each token of a hot word adds to a hypothesis, in nats: sherpa-onnx's own default."""
_QUOTE: Final = "\u2019"
_WORD: Final = re.compile(rf"[^\W_]+(?:['{_QUOTE}-][^\W_]+)*")


def phrases_of(hot_words: Sequence[str]) -> Iterator[str]:
    """The words of each phrase, without marks: those would be commands to sherpa-onnx. At most `MOST`, each once."""
    seen: set[str] = set()
    for phrase in hot_words:
        plain = " ".join(_WORD.findall(phrase.replace(_QUOTE, "'")))
        if plain and len(plain) <= LONGEST and plain.casefold() not in seen:
            seen.add(plain.casefold())
            yield plain
            if len(seen) == MOST:
                return


def encoded(hot_words: Sequence[str], tokens: Tokens) -> str:
    """For `create_stream`: phrases in the model's case with `/` between them; those that its tokens cannot spell are
    left out. "" when none is left."""
    fitting = []
    for phrase in phrases_of(hot_words):
        words = _cased(phrase, tokens.case).replace("-", " ").split()
        if all(tokens.encodes(word) for word in words):
            fitting.append(" ".join(words))
    return "/".join(fitting)


def _cased(phrase: str, case: Case) -> str:
    match case:
        case "upper":
            return phrase.upper()
        case "lower":
            return phrase.lower()
        case "mixed":
            return phrase
