"""Splits a stream of text into pieces to be spoken, as early as it is sure of them: the first clause first, so that
speech starts before the sentence is complete, then whole sentences.

Where a piece ends follows from the text alone, not from how the stream deals it out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from models.text.word_lists import words

MAX_CHARACTERS: Final = 250
"""Characters of a piece; a longer sentence is cut at the last clause that ends before."""
MIN_CLAUSE_CHARACTERS: Final = 20
"""Characters of a clause that can stand alone. Once as many have been given out, whole sentences follow."""
_ENOUGH_WORDS: Final = 4
_ENOUGH_CJK: Final = 8
"""Characters of a clause in a script without spaces."""

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

_NEVER: Final = words("mr mrs ms dr prof st vs e.g i.e approx dept tel bzw sra mme mt gov gen rev hon capt sgt")
_BY_LANGUAGE: Final[Mapping[str, frozenset[str]]] = {
    "de": words("hr hrn fr str tel bzw z.b d.h u.a ca evtl ggf inkl exkl zzgl vgl sog stk bspw dipl ing i.d.r z.zt"),
    "fr": words("mme mlle mm me dr pr env av bd tél p.ex c.-à-d cf apr min max"),
    "es": words("sr sra srta dra d dña ud uds vd vds p.ej ej aprox avda pza tel ee lic ing"),
    "it": words("sig sigg sig.ra dott dott.ssa prof.ssa avv arch ing geom es p.es tel ca p.zza v.le spett gent"),
    "nl": words("dhr mevr mw drs ir ing bijv d.w.z m.a.w o.a i.v.m ca t.a.v a.s evt incl excl"),
    "pt": words("sr sra srta dra d exmo exma p.ex ex aprox av tel eng"),
}
"""Abbreviations that do not end a sentence: a name, a number or an explanation follows."""
_DOTTED: Final = frozenset(word for known in _BY_LANGUAGE.values() for word in known if "." in word)
"""Those that no other language can mistake for a word."""
_PERHAPS: Final = words(
    """a.m p.m etc inc ltd co corp jr sr usw u.s u.k no nr nos fig vol ext art abs kap abb núm num nº n.º pág pag ecc
    enz uu std mio mrd str tel min max jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun
    febr mrt okt dez janv févr avr juil déc ene abr ago dic gen giu lug ott mag set out dez uhr"""
)
"""Abbreviations, months and days that end one when a capital letter follows, as do German street names."""
_ORDINALS: Final = words("de da nb no nn fi cs sk pl hu hr sl sr et lv is fo tr")
"""Languages that write an ordinal as a number and a full stop."""
_MONTHS: Final = words(
    "januar jänner februar märz april mai juni juli august september oktober november dezember jan feb okt nov dez"
)
_ARTICLES: Final = words(
    """der die das den dem des am im vom zum zur beim ins ein eine einem einen einer mein meine dein ihr ihre ihren
    ihrem unser unsere unserem unseren jeder jede jedes jedem jeden bis ab seit und oder"""
)
"""German words before an ordinal."""


class SentenceSplitter:
    """Collects text and gives out pieces of it, without white space around them. `language` is a BCP 47 tag. Without
    `clauses` the pieces are sentences, however long."""

    def __init__(self, language: str | None = None, *, clauses: bool = True) -> None:
        primary = (language or "en").lower().replace("_", "-").partition("-")[0]
        self._never = _NEVER | _DOTTED | _BY_LANGUAGE.get(primary, frozenset())
        self._ordinals = primary in _ORDINALS
        self._clauses = clauses
        self._text = ""
        self._given = 0

    def feed(self, delta: str) -> list[str]:
        """Add a piece of text; what can be spoken now, in order."""
        self._text += delta
        pieces = []
        while (end := self._end()) is not None:
            pieces.append(self._take(end))
        return pieces

    def flush(self) -> str:
        """Cut here: all that is left by now, "" for nothing. The stream goes on behind it."""
        return self._take(len(self._text))

    def finish(self) -> str:
        """What is left at the end of the stream, "" for nothing; the next stream starts empty."""
        rest = self.flush()
        self._given = 0
        return rest

    def _take(self, end: int) -> str:
        piece, self._text = self._text[:end].strip(), self._text[end:].lstrip()
        self._given += len(piece)
        return piece

    def _end(self) -> int | None:
        """Where the next piece ends; None when that depends on text that is still to come."""
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
                verdict = verdict if self._clauses and self._given < MIN_CLAUSE_CHARACTERS else False
            if verdict is None:
                return None
            if verdict:
                return end
        if len(text) <= limit + 1 or not self._clauses:
            return None
        return last_clause or max(text.rfind(" ", start, limit), text.rfind("\n", start, limit)) + 1 or limit

    def _sentence_ends(self, candidate: str, following: str, behind: str) -> bool | None:
        """Whether a sentence ends behind `candidate`; `following` is the text behind without what opens a quotation."""
        if candidate.endswith("\n"):
            return True
        ended = candidate.rstrip(_CLOSERS + _CJK_CLOSERS)
        if not ended.endswith((".", "…")):
            return None if ended != candidate and not following else not (ended != candidate and following[0].islower())
        if candidate.endswith(("...", "…")):
            return None if not following else following[0].isupper()
        last = ended.rstrip(".…").split()[-1:] or [""]
        word = last[0].lstrip(_OPENERS).lower()
        if word in self._never or (word.isdecimal() and ended == f"{word}."):
            return False
        if len(word) == 1 and word.isalpha() and word != "i":
            return False
        if word in _PERHAPS or word.endswith("str"):
            return None if not following else following[0].isupper()
        if self._ordinals and word.isdecimal() and len(word) <= 2:
            return _ends_with_number(ended, behind)
        return True


def split_sentences(text: str, language: str | None = None) -> list[str]:
    """All sentences of a text that is known whole."""
    sentences = SentenceSplitter(language, clauses=False)
    whole = [*sentences.feed(text), sentences.finish()]
    return [sentence for sentence in whole if sentence]


def _ends_with_number(candidate: str, behind: str) -> bool | None:
    """Whether "3." at the end of `candidate` is the end of a sentence and not an ordinal; None until the next word is
    whole."""
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
    """Whether a clause that can be spoken alone ends behind `candidate`; None when the next character decides."""
    enough = len(candidate) >= MIN_CLAUSE_CHARACTERS and len(candidate.split()) >= _ENOUGH_WORDS
    if not enough and not (_CJK.search(candidate) and len(candidate) >= _ENOUGH_CJK):
        return False
    if _is_open(candidate):
        return False
    if candidate.rstrip(",;:").endswith(tuple("0123456789")):
        return None if not following else not following[0].isdecimal()
    return True


def _is_open(text: str) -> bool:
    """True if a bracket, a quotation or markup that began in `text` goes on behind it."""
    pairs = (("(", ")"), ("[", "]"), ("«", "»"), ("「", "」"), ("„", "“") if "„" in text else ("“", "”"))
    if any(text.count(left) > text.count(right) for left, right in pairs):
        return True
    return any(text.count(mark) % 2 for mark in ('"', "`", "**"))
