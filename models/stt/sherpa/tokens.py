"""A model's tokens: their case, and how words are encoded with them."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from config.errors import StartupError
from models.runtime.protobuf import fields_of

WORD_START: Final = "▁"
"""First character of the first token of a word."""
_SPECIAL: Final = re.compile(r"<.*>|#\d+")
_MAX_TOKEN_CHARACTERS: Final = 64

Case = Literal["upper", "lower", "mixed"]
Unit = Literal["bpe", "cjkchar", "cjkchar+bpe"]


class Tokens:
    """The tokens of a model without its special ones, in the order of their ids."""

    def __init__(self, symbols: Sequence[str]) -> None:
        self.count = len(symbols)
        self.symbols = tuple(symbol for symbol in symbols if not _SPECIAL.fullmatch(symbol))
        self._known = frozenset(self.symbols)
        self.case: Case = _case_of(self.symbols)
        self.unit: Unit = _unit_of(self.symbols)

    def can_encode(self, word: str) -> bool:
        """True if a word without spaces, in the model's case, can be put together from tokens."""
        if self.unit == "bpe":
            return self._joins(WORD_START + word)
        parts = re.findall(r"[A-Za-z']+|.", word) if self.unit == "cjkchar+bpe" else list(word)
        return all(part in self._known or (part.isascii() and self._joins(WORD_START + part)) for part in parts)

    def _joins(self, text: str) -> bool:
        reached = [True] + [False] * len(text)
        for end in range(1, len(text) + 1):
            starts = range(max(0, end - _MAX_TOKEN_CHARACTERS), end)
            reached[end] = any(reached[start] and text[start:end] in self._known for start in starts)
        return reached[-1]


def read_tokens(path: Path) -> Tokens:
    """Read `tokens.txt`: a symbol and its id on each line, each id once. Raises `StartupError`."""
    numbers: dict[int, str] = {}
    try:
        # Not `splitlines`: a token may be a character that Python treats as the end of a line.
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            if fields := line.rsplit(maxsplit=1):
                numbers[int(fields[-1])] = fields[0].strip() if len(fields) > 1 else " "
    except (OSError, ValueError) as error:
        raise StartupError(f"{path} is not a list of a model's tokens: {error}: get the model again") from error
    if not numbers:
        raise StartupError(f"{path} has no tokens: get the model again")
    return Tokens([numbers[number] for number in sorted(numbers)])


def token_scores(tokens: Tokens, bpe_model: Path | None) -> Mapping[str, float]:
    """The log probability of each token: from the model's own segmenter if its file is there, else by its place in the
    list, because segmenters number their tokens from the most to the least frequent (Zipf's law). Raises
    `StartupError`."""
    if bpe_model is not None:
        try:
            scores = dict(_pieces(bpe_model.read_bytes()))
        except (OSError, ValueError, IndexError) as error:
            raise StartupError(f"{bpe_model} is not a SentencePiece model: get the model again") from error
        return {symbol: scores[symbol] for symbol in tokens.symbols if symbol in scores}
    return {symbol: -math.log(1 + place) for place, symbol in enumerate(tokens.symbols)}


def _case_of(symbols: Iterable[str]) -> Case:
    letters = "".join(symbols)
    if letters == letters.upper():
        return "upper"
    return "lower" if letters == letters.lower() else "mixed"


def _unit_of(symbols: Iterable[str]) -> Unit:
    has_words = any(symbol.startswith(WORD_START) for symbol in symbols)
    has_cjk = any("\u3400" <= symbol.lstrip(WORD_START)[:1] <= "\u9fff" for symbol in symbols)
    return "cjkchar+bpe" if has_words and has_cjk else "bpe" if has_words else "cjkchar"


def _pieces(model: bytes) -> Iterator[tuple[str, float]]:
    """Each piece and its score: field 1 of a SentencePiece `ModelProto`, a message of a string (1) and a float (2)."""
    for number, value in fields_of(model):
        if number == 1 and isinstance(value, bytes):
            piece = dict(fields_of(value))
            symbol, score = piece[1], piece.get(2, b"\0\0\0\0")
            if not (isinstance(symbol, bytes) and isinstance(score, bytes)):
                raise ValueError("a piece has no string and float")
            yield symbol.decode(), struct.unpack("<f", score)[0]
