"""Extracts field values from a transcript by rules: from answers to the agent's questions, and from what the caller
states by a field's name. An uncertain value is null; a later value overrides an earlier one.

Names and descriptions of fields are matched word by word. Spoken numbers are English; yes and no, days and "my name is"
are known in some more languages.
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
from models.text.bm25 import STOP_WORDS, stem, tokenize
from models.text.word_lists import word_set

Value = str | float | bool
MAX_VALUE_CHARACTERS: Final = 200
_MAX_ANSWER_WORDS: Final = 6
"""Words of an answer that is taken as the value in full."""
_MAX_LINE_CHARACTERS: Final = 4000
"""Characters of one line of the transcript."""
_MAX_WORK: Final = 4_000_000
"""Characters of the caller times fields, which take some seconds; the rest of a longer transcript is left out."""
_LINE_WORK: Final = 100
"""The fixed work for a line, in characters."""
_MAX_GAP: Final = 4
"""Words between a field's name and a number after it."""
_MAX_NAME_WORDS: Final = 60
"""Words of a name and of a description."""
_GENERIC_WORDS: Final = word_set(
    """caller caller's callers customer customer's customers client user person value field number whether which they
    he she his her wants want wanted asked said gave full contact requested preferred der die das des ein eine ob
    anrufer anrufers kunde kunden wie viele le la les el los il un une una"""
)
"""Words of a description that do not distinguish fields."""


def _stems(text: str) -> frozenset[str]:
    return frozenset(map(stem, word_set(text)))


_GENERIC_STEMS: Final = frozenset(map(stem, _GENERIC_WORDS))
_QUESTION_CUES: Final[Mapping[str, tuple[str, ...]]] = {
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
"""Other phrases that ask for a field, by a word of its name."""
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+")
_CLAUSE: Final = re.compile(r"[,;.!?]|\b(?:and|but|und|aber)\b", re.I)
_IS: Final = (
    r"(?:is|was|are|will be|would be|should be|ist|wäre|lautet|sind|est|es|è|é|:|=)(?: (?:now|actually|called|for|to))?"
)
_NO_VALUE_WORDS: Final = word_set("no none nothing nope nein non ninguno niente null idea")
_LEAD_IN_WORDS: Final = word_set(
    """a actually an and at by er for hm i i'd i'm im in is it it's its like my of oh okay on please so sure that that's
    the think to uh um was well will would yes yeah ja also den der die das am um mein name ist ich bin je m'appelle me
    llamo call called name named with from speaking this"""
)
_COURTESY_WORDS: Final = word_set(
    "please thanks thank you now then speaking here bitte danke merci gracias grazie too as well"
)
_NAME_INTRODUCTION: Final = re.compile(
    r"\b(?:my (?:full )?name is|my name's|the name is|mein name ist|ich heiße|je m'appelle|me llamo|mi chiamo)\s+"
    r"(?P<name>[^\W\d_][\w'\u2019-]*(?: (?!and\b|from\b|und\b|i\b|with\b)[^\W\d_][\w'\u2019-]*){0,3})",
    re.I,
)
_NEGATED: Final = re.compile(
    r"\b(?:not|no|n't|never|without|isn't|don't|doesn't|didn't|wasn't|haven't|nicht|kein|keine|pas|no)\b"
)
_CORRECTION: Final = re.compile(r"\b(?:no|actually|sorry|rather|make (?:it|that)|nein|doch)\b")
_REQUEST_WORD: Final = re.compile(
    r"\b(?:like|want|need|book|make it|make that|on|for|at|come|possible|please|works?|am|um|für|gerne|bitte)\b", re.I
)
_PAST_WORD: Final = re.compile(
    r"\b(?:last|ago|was|were|had|called|came|bought|ordered|since|already|yesterday|hatte|war|gestern)\b", re.I
)
"""A day or time in such a sentence is in the past and not the requested one."""
_YES_NO_QUESTION: Final = re.compile(
    r"\W*(?:(?:and|so|well|und) )?"
    r"(?:is|are|do|does|did|can|could|will|may i|have you|ist|sind|kann|können|haben|gibt)\b",
    re.I,
)
_WH_QUESTION: Final = re.compile(
    r"\W*(?:(?:and|so|well|und) )?"
    r"(?:what|what's|when|where|who|why|how|which|was|wann|wo|wer|warum|wie|welche[rs]?)\b",
    re.I,
)
"""Beginnings of questions, because transcripts have no question marks."""
_TELEPHONE_WORD: Final = re.compile(r"\b(?:number|phone|mobile|telefon|nummer|call me)\b", re.I)
_YES_NO_STEMS: Final = _stems("is has was wants want needs need should flag caller customer client does are")
"""Words of a field's name that only mark it as boolean."""
_PERSON_STEMS: Final = _stems("name caller customer full client guest user")
"""A name of these words alone is too common to be matched in a statement."""
_IDENTIFIER_STEMS: Final = _stems("number code id reference")
_KIND_STEMS: Final[Mapping[str, frozenset[str]]] = {
    "email": _stems("email mail"),
    "phone": _stems("phone telephone mobile callback"),
    "day": _stems("day date"),
    "time": _stems("time hour"),
    "name": _stems("name"),
}
"""The kind of a text field, by the words of its name."""
_CONDITION: Final = re.compile(r"\b(?:if|when|whether|would|could|might|wenn|falls|ob)\b")


@dataclass(frozen=True)
class FieldSpec:
    """A field to extract: name, description and type."""

    name: str
    description: str
    kind: Literal["string", "boolean", "number"]


@dataclass(frozen=True)
class _Field:
    """A field and the stems of its name and description; `number_stems` are those that may accompany a number."""

    spec: FieldSpec
    name: tuple[str, ...]
    stems: frozenset[str]
    number_stems: frozenset[str]
    kind: Literal["yes or no", "number", "email", "phone", "day", "time", "name", "text"]
    cues: tuple[str, ...] = ()
    """Other phrases that ask for it."""
    only_of_kind: bool = True
    """True if no other field is of this kind."""
    words: tuple[str, ...] = ()
    """The words of its name, if a caller may state the value by it."""


@dataclass(frozen=True)
class _FieldSet:
    """All fields. `stem_counts`: number of fields with a stem. `numbers`: indexes of the fields that may hold a number,
    by `number_stems`."""

    fields: list[_Field]
    stem_counts: Mapping[str, int]
    numbers: Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class _Sentence:
    """A sentence of the caller. `numbers`: each number with its distance in words to the fields, by index."""

    text: str
    is_question: bool
    is_wh_question: bool
    """True for a question with what, when, how, ..."""
    is_unsure: bool
    clauses: list[tuple[str, frozenset[str]]]
    numbers: list[tuple[SpokenNumber, dict[int, int]]]


def extract_values(specs: Sequence[FieldSpec], transcript: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The value of each field by name: text, number or boolean; None if uncertain. `transcript`: role ("user",
    "assistant") and text of each line."""
    field_set = _field_set(specs)
    found: dict[str, Any] = {item.name: None for item in specs}
    remaining = _MAX_WORK
    for (speaker_before, text_before), (speaker, text) in pairwise((("assistant", ""), *transcript)):
        if speaker != "user":
            continue
        user_text = text[:_MAX_LINE_CHARACTERS]
        remaining -= len(specs) * (len(user_text) + _LINE_WORK)
        if remaining < 0:
            break
        sentences = [_sentence(item, field_set) for item in _SENTENCE.split(user_text) if item.strip()]
        asked_field = (
            _asked_field(field_set, text_before[-_MAX_LINE_CHARACTERS:]) if speaker_before == "assistant" else None
        )
        for index, field in enumerate(field_set.fields):
            value = (
                _answer_value(field, user_text)
                if field is asked_field and sentences and not _is_question(sentences[0])
                else None
            )
            value = _stated_value(field, index, sentences) if value is None else value
            if value is not None:
                found[field.spec.name] = value[:MAX_VALUE_CHARACTERS] if isinstance(value, str) else value
    return found


def _field_set(specs: Sequence[FieldSpec]) -> _FieldSet:
    fields = [_field(item) for item in specs]
    kind_counts = Counter(item.kind for item in fields)
    numbers: dict[str, list[int]] = {}
    for index, field in enumerate(fields):
        if field.kind in ("number", "phone") or not _IDENTIFIER_STEMS.isdisjoint(field.name):
            for item in field.number_stems:
                numbers.setdefault(item, []).append(index)
    return _FieldSet(
        [replace(item, only_of_kind=kind_counts[item.kind] == 1) for item in fields],
        Counter(item for field in fields for item in field.stems),
        numbers,
    )


def _field(spec: FieldSpec) -> _Field:
    name = readable(spec.name).split()[:_MAX_NAME_WORDS]
    name_stems = [stem(part) for word in name for part in tokenize(word)]
    content = [
        stem(word) for word in tokenize(spec.description)[:_MAX_NAME_WORDS] if word not in STOP_WORDS | _GENERIC_WORDS
    ]
    stems = frozenset((*content, *name_stems))
    cues = tuple(cue for kind, known in _QUESTION_CUES.items() if stem(kind) in name_stems for cue in known)
    spoken_name = tuple(name) if name_stems and not set(name_stems) <= _PERSON_STEMS else ()
    number_stems = (stems - _GENERIC_STEMS) or stems
    return _Field(spec, tuple(name_stems), stems, number_stems, _kind(spec, name_stems), cues, words=spoken_name)


def _kind(spec: FieldSpec, name: Sequence[str]) -> Any:
    if spec.kind != "string":
        return "yes or no" if spec.kind == "boolean" else "number"
    return next((kind for kind, called in _KIND_STEMS.items() if not called.isdisjoint(name)), "text")


def _sentence(text: str, field_set: _FieldSet) -> _Sentence:
    spoken, numbers = numbers_in(text)
    stems = [stem(word) for word in spoken]
    clauses = [part for part in _CLAUSE.split(text.lower().replace("\u2019", "'")) if part.strip()]
    return _Sentence(
        text,
        text.rstrip().endswith("?") or _YES_NO_QUESTION.match(text) is not None,
        _WH_QUESTION.match(text) is not None,
        is_unsure(text),
        [(clause, frozenset(stem(word) for word in tokenize(clause))) for clause in clauses],
        [(number, _word_gaps(number, stems, field_set.numbers)) for number in numbers],
    )


def _is_question(sentence: _Sentence) -> bool:
    return sentence.is_question or sentence.is_wh_question


def _word_gaps(number: SpokenNumber, stems: Sequence[str], known: Mapping[str, Sequence[int]]) -> dict[int, int]:
    """The distance in words between a number and each field's stems: directly after it, or some words before."""
    before = ((index, number.start - index - 1) for index in range(max(number.start - _MAX_GAP - 1, 0), number.start))
    behind = ((index, index - number.end) for index in range(number.end, min(number.end + 2, len(stems))))
    gaps: dict[int, int] = {}
    for index, gap in (*before, *behind):
        for field in known.get(stems[index], ()):
            gaps[field] = min(gap, gaps.get(field, gap))
    return gaps


def _asked_field(field_set: _FieldSet, agent_text: str) -> _Field | None:
    """The field that the agent asked for last; None if it asked for none, or if several match equally."""
    questions = [text for text in _SENTENCE.split(agent_text) if text.rstrip().endswith("?")]
    if not questions:
        return None
    question = questions[-1].lower().replace("\u2019", "'")
    question_stems = {stem(word) for word in tokenize(question)}
    scores = [_score(field, question, question_stems, field_set.stem_counts) for field in field_set.fields]
    best = max(scores, default=0.0)
    if best < 1 or scores.count(best) > 1:
        return None
    return field_set.fields[scores.index(best)]


def _score(field: _Field, question: str, question_stems: set[str], stem_counts: Mapping[str, int]) -> float:
    """How well a question matches a field: a stem that several fields share weighs less."""
    own = set(field.name)
    score = sum(
        (2.0 if item in own else 1.0) / stem_counts[item] for item in (field.stems & question_stems) - _GENERIC_STEMS
    )
    score += 0.5 * len(field.stems & question_stems & _GENERIC_STEMS)
    return score + (1.5 if any(cue in question for cue in field.cues) else 0.0)


def _answer_value(field: _Field, answer_text: str) -> Value | None:
    """The value in the caller's answer to a question for the field."""
    if is_unsure(answer_text):
        return None
    if field.spec.kind == "boolean":
        return yes_or_no(answer_text)
    if field.spec.kind == "number":
        return _answered_number(answer_text)
    value, is_typed = _typed_text(field, answer_text)
    return value if is_typed else _short_answer(answer_text)


def _answered_number(answer_text: str) -> float | None:
    """The number in an answer; of several, the last one if it corrects the others."""
    spoken, numbers = numbers_in(answer_text)
    amounts = [item for item in numbers if _amount(item) is not None]
    if len(amounts) > 1:
        amounts = [item for item in amounts if spoken[item.start : item.end] != ["one"]]
    if len(amounts) == 1 or (amounts and _CORRECTION.search(answer_text.lower())):
        return _amount(amounts[-1])
    return None


def _typed_text(field: _Field, answer_text: str) -> tuple[str | None, bool]:
    """The text that has the form of the field's kind, and True if the kind has a form."""
    match field.kind:
        case "email":
            return email_in(answer_text), True
        case "phone":
            return telephone_in(answer_text), True
        case "day":
            return day_in(answer_text), True
        case "time":
            return time_in(answer_text), True
        case "name" if named := _NAME_INTRODUCTION.search(answer_text):
            return named["name"], True
    return None, False


def _short_answer(answer_text: str) -> str | None:
    """A short answer without its lead-in; None for a long answer or for no value."""
    first = _SENTENCE.split(answer_text.strip())[0]
    clauses = re.split(r"[,;:]\s+", first)
    while len(clauses) > 1 and all(word in _LEAD_IN_WORDS for word in tokenize(clauses[0])):
        clauses = clauses[1:]
    remaining = clauses[0].split()
    while remaining and _normalized(remaining[0]) in _LEAD_IN_WORDS:
        remaining = remaining[1:]
    while remaining and _normalized(remaining[-1]) in _COURTESY_WORDS:
        remaining.pop()
    content = [_normalized(word) for word in remaining]
    if (
        not remaining
        or len(remaining) > _MAX_ANSWER_WORDS
        or not _NO_VALUE_WORDS.isdisjoint(content)
        or _NEGATED.search(" ".join(content))
    ):
        return None
    return " ".join(remaining).strip(" .,;:!?\"'")[:MAX_VALUE_CHARACTERS] or None


def _normalized(word: str) -> str:
    return word.lower().replace("\u2019", "'").strip(".,;:!?\"'")


def _stated_value(field: _Field, index: int, sentences: Sequence[_Sentence]) -> Value | None:
    """The value that the caller states by the field's name, without being asked; the last of several."""
    found: Value | None = None
    for sentence in sentences:
        if sentence.is_unsure or (sentence.is_wh_question and field.kind not in ("email", "phone")):
            continue
        match field.kind:
            case "yes or no":
                value: Value | None = None if _is_question(sentence) else _stated_boolean(field, sentence)
            case "number":
                value = _nearest_number(index, sentence)
            case _:
                value = _named_text(field, sentence)
        found = value if value is not None else found
    return found


def _stated_boolean(field: _Field, sentence: _Sentence) -> bool | None:
    """The truth value that a sentence states: one clause has all words of the name and no condition. None if none."""
    name = set(field.name) - _YES_NO_STEMS
    for clause, clause_stems in sentence.clauses:
        if name and name <= clause_stems and not _CONDITION.search(clause):
            return _NEGATED.search(clause) is None and "n't" not in clause
    return None


def _nearest_number(index: int, sentence: _Sentence) -> float | None:
    """The number that is nearer to the stems of the field at `index` than to any other field's."""
    best = [
        (gaps[index], order)
        for order, (number, gaps) in enumerate(sentence.numbers)
        if index in gaps
        and _amount(number) is not None
        and all(gap > gaps[index] for other, gap in gaps.items() if other != index)
    ]
    return _amount(sentence.numbers[min(best)[1]][0]) if best else None


def _amount(number: SpokenNumber) -> float | None:
    if number.amount is None or not math.isfinite(number.amount):
        return None
    return int(number.amount) if number.amount.is_integer() else number.amount


def _named_text(field: _Field, sentence: _Sentence) -> str | None:
    """The text after the field's name ("my booking code is K7", "the reason: ..."), or the text of the field's form if
    no other field has that form."""
    text = sentence.text
    if field.kind == "phone" and not _TELEPHONE_WORD.search(text):
        return None
    if field.kind in ("day", "time") and (_PAST_WORD.search(text) or not _REQUEST_WORD.search(text)):
        return None
    value, is_typed = _typed_text(field, text)
    if is_typed:
        return value if field.only_of_kind else None
    value = None if sentence.is_question else _behind_name(field, text)
    return None if value is None else _short_answer(_CLAUSE.split(value)[0])


def _behind_name(field: _Field, text: str) -> str | None:
    """The text after "NAME is"."""
    lower = text.lower()
    if not field.words or not all(word in lower for word in field.words):
        return None
    spoken = r"[\s_-]+".join(re.escape(word) for word in field.words)
    found = re.search(rf"\b{spoken}(?:\s+{_IS}\s+|\s*[:=]\s*)(?P<value>.+)", text, re.I)
    return None if found is None else found["value"]
