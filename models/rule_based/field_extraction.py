"""Extracts values from a transcript without a language model: what the caller answered when the agent asked for it, and
what the caller named. An unsure value stays null. A later value counts more than an earlier one.

Names and descriptions of values are taken as words alone, whatever they hold. Numbers in words are English; yes and no,
days and "my name is" are known in some more languages.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal

from models.rule_based.spoken_numbers import SpokenNumber
from models.rule_based.tool_arguments import readable
from models.rule_based.value_parsers import day_in, email_in, is_unsure, numbers_in, telephone_in, time_in, yes_or_no
from models.text.bm25 import STOP_WORDS, stem, tokens
from models.text.word_lists import words

Value = str | float | bool
LONGEST_VALUE: Final = 200
_LONGEST_ANSWER: Final = 6
"""Words of a whole answer that is taken for the value."""
_LONGEST_LINE: Final = 4000
"""Characters of what one side says without a break."""
_MOST_WORK: Final = 4_000_000
"""Characters of callers times values: some seconds. Of a talk that takes more, only the beginning is looked through."""
_PER_LINE: Final = 100
"""Characters of a caller that take as long as what is looked at once in a line."""
_NEAR: Final = 4
"""Words between a value's name and a number behind it."""
_MOST_WORDS: Final = 60
"""Of a name and of a description."""
_GENERIC: Final = words(
    """caller caller's callers customer customer's customers client user person value field number whether which they
    he she his her wants want wanted asked said gave full contact requested preferred der die das des ein eine ob
    anrufer anrufers kunde kunden wie viele le la les el los il un une una"""
)
"""Words of a description that tell no value from another."""


def _stems(text: str) -> frozenset[str]:
    return frozenset(map(stem, words(text)))


_COMMON: Final = frozenset(map(stem, _GENERIC))
_CUES: Final[Mapping[str, tuple[str, ...]]] = {
    "day": ("when", "what day", "which day", "what date", "which date"),
    "date": ("when", "what day", "which day", "what date", "which date"),
    "time": ("what time", "which time", "when", "um wie viel uhr"),
    "name": ("who am i speaking", "who is calling", "wie heißen", "ihr name", "votre nom", "su nombre"),
    "email": ("e-mail", "mail address"),
    "phone": ("telephone", "call you back", "reach you", "mobile number", "telefonnummer"),
    "city": ("where",),
    "address": ("where do you live",),
    "budget": ("how much",),
    "amount": ("how much",),
    "age": ("how old",),
    "people": ("how many",),
    "guests": ("how many",),
    "persons": ("how many",),
    "quantity": ("how many",),
    "party": ("how many",),
}
"""How else it is asked for something."""
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+")
_CLAUSE: Final = re.compile(r"[,;.!?]|\b(?:and|but|und|aber)\b", re.I)
_IS: Final = (
    r"(?:is|was|are|will be|would be|should be|ist|wäre|lautet|sind|est|es|è|é|:|=)(?: (?:now|actually|called|for|to))?"
)
_DONT_KNOW: Final = words("no none nothing nope nein non ninguno niente null idea")
_LEAD_IN: Final = words(
    """a actually an and at by er for hm i i'd i'm im in is it it's its like my of oh okay on please so sure that that's
    the think to uh um was well will would yes yeah ja also den der die das am um mein name ist ich bin je m'appelle me
    llamo call called name named with from speaking this"""
)
_TAIL: Final = words("please thanks thank you now then speaking here bitte danke merci gracias grazie too as well")
_NAMED: Final = re.compile(
    r"\b(?:my (?:full )?name is|my name's|the name is|mein name ist|ich heiße|je m'appelle|me llamo|mi chiamo)\s+"
    r"(?P<name>[^\W\d_][\w'\u2019-]*(?: (?!and\b|from\b|und\b|i\b|with\b)[^\W\d_][\w'\u2019-]*){0,3})",
    re.I,
)
_NEGATED: Final = re.compile(
    r"\b(?:not|no|n't|never|without|isn't|don't|doesn't|didn't|wasn't|haven't|nicht|kein|keine|pas|no)\b"
)
_CORRECTED: Final = re.compile(r"\b(?:no|actually|sorry|rather|make (?:it|that)|nein|doch)\b")
_WISH: Final = re.compile(
    r"\b(?:like|want|need|book|make it|make that|on|for|at|come|possible|please|works?|am|um|für|gerne|bitte)\b", re.I
)
_PAST: Final = re.compile(
    r"\b(?:last|ago|was|were|had|called|came|bought|ordered|since|already|yesterday|hatte|war|gestern)\b", re.I
)
"""A day or an hour in such a sentence is not the one that is wanted."""
_ASKS: Final = re.compile(
    r"\W*(?:(?:and|so|well|und) )?"
    r"(?:is|are|do|does|did|can|could|will|may i|have you|ist|sind|kann|können|haben|gibt)\b",
    re.I,
)
_WONDERS: Final = re.compile(
    r"\W*(?:(?:and|so|well|und) )?"
    r"(?:what|what's|when|where|who|why|how|which|was|wann|wo|wer|warum|wie|welche[rs]?)\b",
    re.I,
)
"""How questions begin: recognizers write no question marks."""
_TELEPHONE: Final = re.compile(r"\b(?:number|phone|mobile|telefon|nummer|call me)\b", re.I)
_STATE: Final = _stems("is has was wants want needs need should flag caller customer client does are")
"""Words of a name that only say that it is a question of yes and no."""
_WHO: Final = _stems("name caller customer full client guest user")
"""Names of such words alone are said of many things."""
_NUMBERED: Final = _stems("number code id reference")
_KINDS: Final[Mapping[str, frozenset[str]]] = {
    "email": _stems("email mail"),
    "phone": _stems("phone telephone mobile callback"),
    "day": _stems("day date"),
    "time": _stems("time hour"),
    "name": _stems("name"),
}
"""What a text is, by the words of its name."""
_CONDITION: Final = re.compile(r"\b(?:if|when|whether|would|could|might|wenn|falls|ob)\b")


@dataclass(frozen=True)
class ExtractionField:
    """A value that is looked for."""

    name: str
    description: str
    kind: Literal["string", "boolean", "number"]


@dataclass(frozen=True)
class _Field:
    """A value that is wanted, and the stems of the words that it goes by: `near` those that may stand by a number."""

    wanted: ExtractionField
    name: tuple[str, ...]
    about: frozenset[str]
    near: frozenset[str]
    kind: Literal["yes or no", "number", "email", "phone", "day", "time", "name", "text"]
    cues: tuple[str, ...] = ()
    """How else it is asked for."""
    alone: bool = True
    """No other value is of this kind."""
    words: tuple[str, ...] = ()
    """Of its name, where a caller may give it by that."""


@dataclass(frozen=True)
class _Sought:
    """All of them. `shared`: how many go by a stem. `numbers`: the places of those that a number may stand for, by the
    stems that may stand by it."""

    fields: list[_Field]
    shared: Mapping[str, int]
    numbers: Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class _Sentence:
    """What a caller said. `numbers` with how many words away each field's name is, by its place among the fields."""

    text: str
    asks: bool
    wonders: bool
    """It asks for something that the caller does not know: what, when, how."""
    unsure: bool
    clauses: list[tuple[str, frozenset[str]]]
    numbers: list[tuple[SpokenNumber, dict[int, int]]]


def extract_values(wanted: Sequence[ExtractionField], transcript: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Each of the values that are `wanted`, by name: text, a number, yes or no; None unless it is sure. `transcript`:
    role ("user", "assistant") and text of each line."""
    sought = _sought(wanted)
    found: dict[str, Any] = {each.name: None for each in wanted}
    left = _MOST_WORK
    for (speaker_before, text_before), (speaker, text) in pairwise((("assistant", ""), *transcript)):
        if speaker != "user":
            continue
        said = text[:_LONGEST_LINE]
        left -= len(wanted) * (len(said) + _PER_LINE)
        if left < 0:
            break
        sentences = [_sentence(each, sought) for each in _SENTENCE.split(said) if each.strip()]
        asked = _asked(sought, text_before[-_LONGEST_LINE:]) if speaker_before == "assistant" else None
        for place, field in enumerate(sought.fields):
            value = _answer(field, said) if field is asked and sentences and not _is_question(sentences[0]) else None
            value = _told(field, place, sentences) if value is None else value
            if value is not None:
                found[field.wanted.name] = value[:LONGEST_VALUE] if isinstance(value, str) else value
    return found


def _sought(wanted: Sequence[ExtractionField]) -> _Sought:
    fields = [_field(each) for each in wanted]
    often = Counter(each.kind for each in fields)
    numbers: dict[str, list[int]] = {}
    for place, field in enumerate(fields):
        if field.kind in ("number", "phone") or not _NUMBERED.isdisjoint(field.name):
            for each in field.near:
                numbers.setdefault(each, []).append(place)
    return _Sought(
        [replace(each, alone=often[each.kind] == 1) for each in fields],
        Counter(each for field in fields for each in field.about),
        numbers,
    )


def _field(wanted: ExtractionField) -> _Field:
    name = readable(wanted.name).split()[:_MOST_WORDS]
    spelled = [stem(part) for word in name for part in tokens(word)]
    told = [stem(word) for word in tokens(wanted.description)[:_MOST_WORDS] if word not in STOP_WORDS | _GENERIC]
    about = frozenset((*told, *spelled))
    cues = tuple(cue for kind, known in _CUES.items() if stem(kind) in spelled for cue in known)
    words_of_it = tuple(name) if spelled and not set(spelled) <= _WHO else ()
    near = (about - _COMMON) or about
    return _Field(wanted, tuple(spelled), about, near, _kind(wanted, spelled), cues, words=words_of_it)


def _kind(wanted: ExtractionField, name: Sequence[str]) -> Any:
    if wanted.kind != "string":
        return "yes or no" if wanted.kind == "boolean" else "number"
    return next((kind for kind, called in _KINDS.items() if not called.isdisjoint(name)), "text")


def _sentence(text: str, sought: _Sought) -> _Sentence:
    said, numbers = numbers_in(text)
    stems = [stem(word) for word in said]
    clauses = [part for part in _CLAUSE.split(text.lower().replace("\u2019", "'")) if part.strip()]
    return _Sentence(
        text,
        text.rstrip().endswith("?") or _ASKS.match(text) is not None,
        _WONDERS.match(text) is not None,
        is_unsure(text),
        [(clause, frozenset(stem(word) for word in tokens(clause))) for clause in clauses],
        [(number, _gaps(number, stems, sought.numbers)) for number in numbers],
    )


def _is_question(sentence: _Sentence) -> bool:
    return sentence.asks or sentence.wonders


def _gaps(number: SpokenNumber, stems: Sequence[str], known: Mapping[str, Sequence[int]]) -> dict[int, int]:
    """Words between a number and the words that fields go by, for each field: right behind it, or some words before."""
    before = ((place, number.start - place - 1) for place in range(max(number.start - _NEAR - 1, 0), number.start))
    behind = ((place, place - number.end) for place in range(number.end, min(number.end + 2, len(stems))))
    gaps: dict[int, int] = {}
    for place, gap in (*before, *behind):
        for field in known.get(stems[place], ()):
            gaps[field] = min(gap, gaps.get(field, gap))
    return gaps


def _asked(sought: _Sought, said: str) -> _Field | None:
    """The value that the agent asked for last; None when it asked for none, or for several as much."""
    questions = [text for text in _SENTENCE.split(said) if text.rstrip().endswith("?")]
    if not questions:
        return None
    question = questions[-1].lower().replace("\u2019", "'")
    heard = {stem(word) for word in tokens(question)}
    scores = [_score(field, question, heard, sought.shared) for field in sought.fields]
    best = max(scores, default=0.0)
    if best < 1 or scores.count(best) > 1:
        return None
    return sought.fields[scores.index(best)]


def _score(field: _Field, question: str, heard: set[str], shared: Mapping[str, int]) -> float:
    """How much a question is one for this value: a word that other values go by as well tells little."""
    own = set(field.name)
    score = sum((2.0 if each in own else 1.0) / shared[each] for each in (field.about & heard) - _COMMON)
    score += 0.5 * len(field.about & heard & _COMMON)
    return score + (1.5 if any(cue in question for cue in field.cues) else 0.0)


def _answer(field: _Field, said: str) -> Value | None:
    """What the caller answered when asked for it."""
    if is_unsure(said):
        return None
    if field.wanted.kind == "boolean":
        return yes_or_no(said)
    if field.wanted.kind == "number":
        return _counted(said)
    value, typed = _typed(field, said)
    return value if typed else _whole(said)


def _counted(said: str) -> float | None:
    """The number of an answer; the last of several only when it takes back the ones before."""
    heard, numbers = numbers_in(said)
    amounts = [each for each in numbers if _amount(each) is not None]
    if len(amounts) > 1:
        amounts = [each for each in amounts if heard[each.start : each.end] != ["one"]]
    if len(amounts) == 1 or (amounts and _CORRECTED.search(said.lower())):
        return _amount(amounts[-1])
    return None


def _typed(field: _Field, said: str) -> tuple[str | None, bool]:
    """A text that looks like what its name says that it is; and whether it can be nothing else."""
    match field.kind:
        case "email":
            return email_in(said), True
        case "phone":
            return telephone_in(said), True
        case "day":
            return day_in(said), True
        case "time":
            return time_in(said), True
        case "name" if named := _NAMED.search(said):
            return named["name"], True
    return None, False


def _whole(said: str) -> str | None:
    """A short answer without what leads to it; None for a long one, and for none."""
    first = _SENTENCE.split(said.strip())[0]
    spoken = re.split(r"[,;:]\s+", first)
    while len(spoken) > 1 and all(word in _LEAD_IN for word in tokens(spoken[0])):
        spoken = spoken[1:]
    left = spoken[0].split()
    while left and _bare(left[0]) in _LEAD_IN:
        left = left[1:]
    while left and _bare(left[-1]) in _TAIL:
        left.pop()
    told = [_bare(word) for word in left]
    if not left or len(left) > _LONGEST_ANSWER or not _DONT_KNOW.isdisjoint(told) or _NEGATED.search(" ".join(told)):
        return None
    return " ".join(left).strip(" .,;:!?\"'")[:LONGEST_VALUE] or None


def _bare(word: str) -> str:
    return word.lower().replace("\u2019", "'").strip(".,;:!?\"'")


def _told(field: _Field, place: int, sentences: Sequence[_Sentence]) -> Value | None:
    """What the caller said by the value's name, without being asked; the last of it."""
    found: Value | None = None
    for sentence in sentences:
        if sentence.unsure or (sentence.wonders and field.kind not in ("email", "phone")):
            continue
        match field.kind:
            case "yes or no":
                value: Value | None = None if _is_question(sentence) else _stated(field, sentence)
            case "number":
                value = _nearest(place, sentence)
            case _:
                value = _named(field, sentence)
        found = value if value is not None else found
    return found


def _stated(field: _Field, sentence: _Sentence) -> bool | None:
    """Whether a sentence says so, in all the words of the value's name, in one clause and without conditions."""
    name = set(field.name) - _STATE
    for clause, heard in sentence.clauses:
        if name and name <= heard and not _CONDITION.search(clause):
            return _NEGATED.search(clause) is None and "n't" not in clause
    return None


def _nearest(place: int, sentence: _Sentence) -> float | None:
    """The number that stands by the name of the field at `place`, or by a word that tells of it, and nearer than by any
    other's."""
    best = [
        (gaps[place], order)
        for order, (number, gaps) in enumerate(sentence.numbers)
        if place in gaps
        and _amount(number) is not None
        and all(gap > gaps[place] for other, gap in gaps.items() if other != place)
    ]
    return _amount(sentence.numbers[min(best)[1]][0]) if best else None


def _amount(number: SpokenNumber) -> float | None:
    if number.amount is None or not math.isfinite(number.amount):
        return None
    return int(number.amount) if number.amount.is_integer() else number.amount


def _named(field: _Field, sentence: _Sentence) -> str | None:
    """A text behind the value's name: "my booking code is K7", "the reason: ..."; and what can be nothing else, when no
    other value is of its kind."""
    text = sentence.text
    if field.kind == "phone" and not _TELEPHONE.search(text):
        return None
    if field.kind in ("day", "time") and (_PAST.search(text) or not _WISH.search(text)):
        return None
    value, typed = _typed(field, text)
    if typed:
        return value if field.alone else None
    value = None if sentence.asks else _behind_name(field, text)
    return None if value is None else _whole(_CLAUSE.split(value)[0])


def _behind_name(field: _Field, text: str) -> str | None:
    """What follows on "the name is"."""
    lower = text.lower()
    if not field.words or not all(word in lower for word in field.words):
        return None
    spoken = r"[\s_-]+".join(re.escape(word) for word in field.words)
    found = re.search(rf"\b{spoken}(?:\s+{_IS}\s+|\s*[:=]\s*)(?P<value>.+)", text, re.I)
    return None if found is None else found["value"]
