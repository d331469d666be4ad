"""Splits a stream of text into pieces for speech synthesis as soon as their end is certain: the first clause first, so
that speech starts before the sentence is complete, then whole sentences.

The ends of the pieces depend on the text alone, not on the chunks of the stream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from models.text.word_lists import word_set

MAX_CHARACTERS: Final = 250
"""Maximum characters of a piece; a longer sentence is cut at the last clause that ends before."""
MIN_CLAUSE_CHARACTERS: Final = 20
"""Minimum characters of a clause that is a piece of its own. Once this much text has been returned, whole sentences
follow."""
_MIN_CLAUSE_WORDS: Final = 4
_MIN_CLAUSE_CJK: Final = 8
"""Minimum characters of a clause in a script without spaces."""

_CLOSERS: Final = "\"'“”\u2019»)\\]*_"
_CJK_CLOSERS: Final = "」』”\u2019\uff09"
_BOUNDARY: Final = re.compile(
    rf"(?P<sentence>[.!?…\u061f\u0964]+[{_CLOSERS}]*(?=\s)"
    rf"|[。\uff01\uff1f]+[{_CJK_CLOSERS}]*(?=[^。\uff01\uff1f{_CJK_CLOSERS}])"
    r"|(?<=\S)[ \t]*\n)"
    rf"|(?P<clause>[,;:\u060c][{_CLOSERS}]*(?=\s)|(?<=\s)[-\u2013\u2014](?=\s)|(?<=\w)\u2014(?=[^\u2014])"
    rf"|[\uff0c\uff1b\uff1a、][{_CJK_CLOSERS}]*(?=[^{_CJK_CLOSERS}]))"
)
_CJK: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_OPENERS: Final = "\"'“\u2018„«([*_¿¡"

_ABBREVIATIONS: Final = word_set(
    "mr mrs ms dr prof st vs e.g i.e approx dept tel bzw sra mme mt gov gen rev hon capt sgt"
)
_ABBREVIATIONS_BY_LANGUAGE: Final[Mapping[str, frozenset[str]]] = {
    "de": word_set("hr hrn fr str tel bzw z.b d.h u.a ca evtl ggf inkl exkl zzgl vgl sog stk bspw dipl ing i.d.r z.zt"),
    "fr": word_set("mme mlle mm me dr pr env av bd tél p.ex c.-à-d cf apr min max"),
    "es": word_set("sr sra srta dra d dña ud uds vd vds p.ej ej aprox avda pza tel ee lic ing"),
    "it": word_set("sig sigg sig.ra dott dott.ssa prof.ssa avv arch ing geom es p.es tel ca p.zza v.le spett gent"),
    "nl": word_set("dhr mevr mw drs ir ing bijv d.w.z m.a.w o.a i.v.m ca t.a.v a.s evt incl excl"),
    "pt": word_set("sr sra srta dra d exmo exma p.ex ex aprox av tel eng"),
}
"""Abbreviations that do not end a sentence: a name, a number or an explanation follows."""
_DOTTED_ABBREVIATIONS: Final = frozenset(
    word for known in _ABBREVIATIONS_BY_LANGUAGE.values() for word in known if "." in word
)
"""Abbreviations that are not words in any other language."""
_AMBIGUOUS_ABBREVIATIONS: Final = word_set(
    """a.m p.m etc inc ltd co corp jr sr usw u.s u.k no nr nos fig vol ext art abs kap abb núm num nº n.º pág pag ecc
    enz uu std mio mrd str tel min max jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun
    febr mrt okt dez janv févr avr juil déc ene abr ago dic gen giu lug ott mag set out dez uhr"""
)
"""Abbreviations, months and days that end a sentence if a capital letter follows, as do German street names."""
_ORDINAL_LANGUAGES: Final = word_set("de da nb no nn fi cs sk pl hu hr sl sr et lv is fo tr")
"""Languages that write an ordinal as a number and a full stop."""
_MONTHS: Final = word_set(
    "januar jänner februar märz april mai juni juli august september oktober november dezember jan feb okt nov dez"
)
_ARTICLES: Final = word_set(
    """der die das den dem des am im vom zum zur beim ins ein eine einem einen einer mein meine dein ihr ihre ihren
    ihrem unser unsere unserem unseren jeder jede jedes jedem jeden bis ab seit und oder"""
)
"""German words before an ordinal."""


class SentenceSplitter:
    """Collects text and returns pieces of it, without white space around them. `language` is a BCP 47 tag. Without
    `clauses` the pieces are sentences, however long."""

    def __init__(self, language: str | None = None, *, clauses: bool = True) -> None:
        primary = (language or "en").lower().replace("_", "-").partition("-")[0]
        self._abbreviations = (
            _ABBREVIATIONS | _DOTTED_ABBREVIATIONS | _ABBREVIATIONS_BY_LANGUAGE.get(primary, frozenset())
        )
        self._has_ordinals = primary in _ORDINAL_LANGUAGES
        self._clauses = clauses
        self._text = ""
        self._returned_characters = 0

    def feed(self, delta: str) -> list[str]:
        """Add a chunk of text; returns the pieces that are complete, in order."""
        self._text += delta
        pieces = []
        while (end := self._next_end()) is not None:
            pieces.append(self._cut(end))
        return pieces

    def flush(self) -> str:
        """Return all remaining text, "" for none. The stream continues after it."""
        return self._cut(len(self._text))

    def finish(self) -> str:
        """The remaining text at the end of the stream, "" for none; the next stream starts empty."""
        rest = self.flush()
        self._returned_characters = 0
        return rest

    def _cut(self, end: int) -> str:
        piece, self._text = self._text[:end].strip(), self._text[end:].lstrip()
        self._returned_characters += len(piece)
        return piece

    def _next_end(self) -> int | None:
        """The end of the next piece; None while that depends on text that is still to come."""
        text = self._text
        start = len(text) - len(text.lstrip())
        limit, last_clause = start + MAX_CHARACTERS, None
        for match in _BOUNDARY.finditer(text, start):
            end = match.end()
            if end > limit and self._clauses:
                break
            candidate, following = text[start:end], text[end:].lstrip().lstrip(_OPENERS)
            if match["sentence"]:
                verdict = self._sentence_ends(candidate, following, text[end:])
            else:
                verdict = _clause_ends(candidate, following)
                last_clause = end if verdict else last_clause
                verdict = verdict if self._clauses and self._returned_characters < MIN_CLAUSE_CHARACTERS else False
            if verdict is None:
                return None
            if verdict:
                return end
        if len(text) <= limit + 1 or not self._clauses:
            return None
        return last_clause or max(text.rfind(" ", start, limit), text.rfind("\n", start, limit)) + 1 or limit

    def _sentence_ends(self, candidate: str, following: str, behind: str) -> bool | None:
        """True if a sentence ends after `candidate`, None if undecided; `following` is the text after it without
        opening quotation marks and brackets."""
        if candidate.endswith("\n"):
            return True
        ended = candidate.rstrip(_CLOSERS + _CJK_CLOSERS)
        if not ended.endswith((".", "…")):
            return None if ended != candidate and not following else not (ended != candidate and following[0].islower())
        if candidate.endswith(("...", "…")):
            return None if not following else following[0].isupper()
        last = ended.rstrip(".…").split()[-1:] or [""]
        word = last[0].lstrip(_OPENERS).lower()
        if word in self._abbreviations or (word.isdecimal() and ended == f"{word}."):
            return False
        if len(word) == 1 and word.isalpha() and word != "i":
            return False
        if word in _AMBIGUOUS_ABBREVIATIONS or word.endswith("str"):
            return None if not following else following[0].isupper()
        if self._has_ordinals and word.isdecimal() and len(word) <= 2:
            return _ends_with_number(ended, behind)
        return True


def split_sentences(text: str, language: str | None = None) -> list[str]:
    """All sentences of a complete text."""
    splitter = SentenceSplitter(language, clauses=False)
    pieces = [*splitter.feed(text), splitter.finish()]
    return [piece for piece in pieces if piece]


def _ends_with_number(candidate: str, behind: str) -> bool | None:
    """True if "3." at the end of `candidate` ends a sentence and is not an ordinal; None until the next word is
    complete."""
    following = behind.lstrip()
    next_word = re.match(r"\w*", following)
    assert next_word is not None
    if not following or next_word.end() == len(following):
        return None
    before = candidate.split()[-2:-1]
    if before and before[0].lower() in _ARTICLES:
        return False
    return not (following[0].islower() or next_word.group().lower() in _MONTHS)


def _clause_ends(candidate: str, following: str) -> bool | None:
    """True if a clause that can be spoken alone ends after `candidate`; None if the next character decides."""
    enough = len(candidate) >= MIN_CLAUSE_CHARACTERS and len(candidate.split()) >= _MIN_CLAUSE_WORDS
    if not enough and not (_CJK.search(candidate) and len(candidate) >= _MIN_CLAUSE_CJK):
        return False
    if _has_unclosed_pair(candidate):
        return False
    if candidate.rstrip(",;:").endswith(tuple("0123456789")):
        return None if not following else not following[0].isdecimal()
    return True


def _has_unclosed_pair(text: str) -> bool:
    """True if a bracket, a quotation or markup that began in `text` is not closed."""
    pairs = (("(", ")"), ("[", "]"), ("«", "»"), ("「", "」"), ("„", "“") if "„" in text else ("“", "”"))
    if any(text.count(left) > text.count(right) for left, right in pairs):
        return True
    return any(text.count(mark) % 2 for mark in ('"', "`", "**"))
