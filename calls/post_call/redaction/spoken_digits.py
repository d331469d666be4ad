"""Tokenizer of spoken digits and letters in text, with their positions: "four one one one", "41 11", "double five" and
"4111" are all digits. English, German, French, Spanish, Italian, Dutch and Portuguese words of 0 to 99."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from models.tts.text_normalization.lexicon import cardinal

LANGUAGES: Final = ("en", "de", "fr", "es", "it", "nl")
_EXTRA_WORDS: Final = {
    "oh": "0",
    "o": "0",
    "nought": "0",
    "naught": "0",
    "zwo": "2",
    "ein": "1",
    "une": "1",
    "un": "1",
    "una": "1",
    "fuenf": "5",
    "zwoelf": "12",
    "cinquante": "50",
    "septante": "70",
    "huitante": "80",
    "nonante": "90",
    "seis": "6",
    "meia": "6",
}
_MULTIPLIERS: Final = {
    **dict.fromkeys(("double", "doppel", "doppelt", "doble", "doppio", "dubbel", "duplo"), 2),
    **dict.fromkeys(("triple", "treble", "dreifach", "tripel", "triplo"), 3),
}
_HOMOPHONES: Final = {"to": "2", "too": "2", "for": "4", "won": "1", "ate": "8"}
"""Words that speech recognition returns for digits; they count only between two digits."""
_MAX_HOMOPHONES: Final = 4
_FILLERS: Final = frozenset(
    (
        *("uh", "um", "er", "erm", "ah", "hm", "hmm", "ahm", "aeh", "euh", "eh", "ehm", "okay", "ok", "yes"),
        *("and", "then", "und", "dann", "y", "et", "puis", "e", "ed", "poi", "en", "ja", "so"),
        *("dash", "hyphen", "space", "bindestrich", "strich", "tiret", "guion", "trattino"),
    )
)
"""Case-folded and without accents, as are all words in this module."""
_WORD: Final = re.compile(r"\d+|[^\W\d_]+")
_BETWEEN: Final = re.compile(r"[\s\u00a0\u202f\-\u2010-\u2014,.;/·…'\u2019]*")
_TIGHT: Final = re.compile(r"[.,/;'\u2019]")
"""Between two figures without a space it joins them to one number, date or price, which is no run of digits."""
_MAX_LETTERS: Final = 4
"""Letters of one token, because the bank code in an IBAN has four."""
_MAX_NUMBER_WORDS: Final = 5
"""Words of a number below a hundred."""


@dataclass(frozen=True)
class SpokenToken:
    """Digits or letters at `text[start:end]` of the text with number `item`. `joined`: only pauses and fillers are
    between it and the previous token; `plus`: a plus sign is before it."""

    characters: str
    item: int
    start: int
    end: int
    joined: bool
    plus: bool

    @property
    def is_digits(self) -> bool:
        """True for digits, spoken in any way."""
        return self.characters.isdecimal()

    @property
    def continues_run(self) -> bool:
        """True if it belongs to the run of the previous token: a plus sign begins another number."""
        return self.joined and not self.plus


@dataclass(frozen=True)
class NumberWords:
    """Numbers as digits, by their words; and the first words of numbers."""

    numbers: Mapping[tuple[str, ...], str]
    firsts: frozenset[str]


def tokenize(texts: Iterable[tuple[int, str]], vocabulary: NumberWords) -> list[SpokenToken]:
    """Returns the tokens of numbered texts. The end of one text joins the beginning of the next."""
    tokens: list[SpokenToken] = []
    broken = True
    for item, text in texts:
        tokenizer = _Tokenizer(item, text, vocabulary, broken)
        tokens += tokenizer.tokens()
        broken = tokenizer.broken
    return tokens


@cache
def number_words(*languages: str) -> NumberWords:
    """Returns the number words of these languages."""
    cardinals: dict[tuple[str, ...], str] = {
        tuple(_words(cardinal(number, each))): str(number) for each in languages for number in range(100)
    }
    extra: dict[tuple[str, ...], str] = {(word,): digits for word, digits in _EXTRA_WORDS.items()}
    numbers = extra | cardinals
    return NumberWords(numbers, frozenset(words[0] for words in numbers))


def _words(text: str) -> list[str]:
    return [_folded(each) for each in _WORD.findall(text)]


def _folded(word: str) -> str:
    """Returns the word in lower case, without accents."""
    if word.isascii():
        return word.lower()
    return "".join(each for each in unicodedata.normalize("NFKD", word.casefold()) if not unicodedata.combining(each))


class _Tokenizer:
    """Tokenizer of one text. `broken`: the next token does not join the previous one."""

    def __init__(self, item: int, text: str, vocabulary: NumberWords, broken: bool) -> None:
        self.broken = broken
        self._item = item
        self._text = text
        self._vocabulary = vocabulary
        self._word_spans = [match.span() for match in _WORD.finditer(text)]
        self._words = [_folded(text[start:end]) for start, end in self._word_spans]
        self._tokens: list[SpokenToken] = []
        self._last_end = 0

    def tokens(self) -> Sequence[SpokenToken]:
        """Returns all tokens of the text."""
        at = 0
        while at < len(self._words):
            self._check_gap(at)
            at = self._read(at)
        if _BETWEEN.fullmatch(self._text, self._last_end) is None:
            self.broken = True
        return self._tokens

    def _check_gap(self, at: int) -> None:
        """Set `broken` if the text before this word does not join it to the previous token."""
        start = self._word_spans[at][0]
        between = self._text[self._last_end : start].rstrip("+")
        if _BETWEEN.fullmatch(between) is None:
            self.broken = True
        figures = at > 0 and self._words[at].isdecimal() and self._words[at - 1].isdecimal()
        if figures and _TIGHT.fullmatch(between) and not self._is_group(at, between):
            self.broken = True

    def _is_group(self, at: int, between: str) -> bool:
        """True for a full stop between groups of four, as in 4111.1111."""
        return between == "." and len(self._words[at - 1]) == 4

    def _read(self, at: int) -> int:
        """Add the token that begins with this word, if it is one. Returns the index of the next word."""
        digits, after = self._digits(at)
        word = self._words[at]
        if digits:
            return self._add_token(digits, at, after)
        if word in _FILLERS and len(word) > 1:
            self._last_end = self._word_spans[at][1]
            return at + 1
        if len(word) <= _MAX_LETTERS and word.isascii():
            return self._add_token(word.upper(), at, at + 1)
        self.broken, self._last_end = True, self._word_spans[at][1]
        return at + 1

    def _add_token(self, characters: str, at: int, after: int) -> int:
        start, end = self._word_spans[at][0], self._word_spans[after - 1][1]
        plus = self._text[:start].endswith("+")
        self._tokens.append(SpokenToken(characters, self._item, start, end, not self.broken, plus))
        self.broken, self._last_end = False, end
        return after

    def _digits(self, at: int) -> tuple[str, int]:
        """Returns the digits that begin with this word, and the index of the word after them; "" if there are none."""
        word, has_next = self._words[at], at + 1 < len(self._words)
        if word in _MULTIPLIERS and has_next:
            digits, after = self._number(at + 1)
            if len(digits) == 1:
                return digits * _MULTIPLIERS[word], after
        if word in _HOMOPHONES and self._is_between_digits(at):
            return _HOMOPHONES[word], at + 1
        return self._number(at)

    def _is_between_digits(self, at: int) -> bool:
        """True if digits precede the word, and follow it or further homophones."""
        if self.broken or not self._tokens or not self._tokens[-1].is_digits:
            return False
        after = at + 1
        while after < min(at + _MAX_HOMOPHONES, len(self._words) - 1) and self._words[after] in _HOMOPHONES:
            after += 1
        return after < len(self._words) and bool(self._number(after)[0])

    def _number(self, at: int) -> tuple[str, int]:
        """Returns `_digits` of one number, in figures or in words."""
        word = self._words[at]
        if word.isdecimal():
            return word if word.isascii() else "".join(str(int(each)) for each in word), at + 1
        max_length = _MAX_NUMBER_WORDS if word in self._vocabulary.firsts else 0
        for length in range(min(max_length, len(self._words) - at), 0, -1):
            digits = self._vocabulary.numbers.get(tuple(self._words[at : at + length]), "")
            if digits and self._is_unbroken(at, at + length):
                return digits, at + length
        return "", at

    def _is_unbroken(self, at: int, after: int) -> bool:
        """True if only spaces and hyphens are between the words."""
        pairs = zip(self._word_spans[at : after - 1], self._word_spans[at + 1 : after], strict=True)
        return all(not self._text[left[1] : right[0]].strip(" -\u2010\u2011") for left, right in pairs)
