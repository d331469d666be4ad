"""Extractive summary without a language model: the highest-scoring sentences of a transcript, verbatim and in order.

A sentence scores by the words that the call repeats (Luhn, "The Automatic Creation of Literature Abstracts", 1958), by
numbers, and as the caller's first request. Deterministic.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from models.text.bm25 import STOP_WORDS, stem, tokenize
from models.text.word_lists import word_set

MAX_SENTENCES: Final = 4
MAX_CHARACTERS: Final = 500
"""Characters of a summary."""
_MAX_SENTENCE_CHARACTERS: Final = 220
_MAX_OVERLAP: Final = 0.6
"""Share of common words from which a sentence repeats another one."""
_MIN_SCORE_SHARE: Final = 0.3
"""Least share of the best sentence's score."""
_NUMBER: Final = re.compile(r"\d")
_END: Final = re.compile(r"(?<=[.!?\u2026\u3002\uff01\uff1f])\s+|(?<=[\u3002\uff01\uff1f])")
_COURTESY_WORDS: Final = word_set(
    """bye goodbye hello hi hey morning afternoon evening good thanks thank welcome help helping calling call great
    perfect fine moment sorry repeat assist anything else today speak hallo guten tag danke tschüss auf wiederhören
    bitte merci bonjour revoir gracias hola adiós buenos días grazie ciao buongiorno"""
)
"""Words that occur in any call."""
_SPEAKERS: Final[Mapping[str, tuple[str, str]]] = {
    "en": ("Caller", "Agent"),
    "de": ("Anrufer", "Agent"),
    "fr": ("Appelant", "Agent"),
    "es": ("Cliente", "Agente"),
    "it": ("Cliente", "Agente"),
    "nl": ("Beller", "Agent"),
    "pt": ("Cliente", "Agente"),
}


@dataclass(frozen=True)
class _Sentence:
    position: int
    is_caller: bool
    text: str
    stems: frozenset[str]


def summarize(transcript: Sequence[tuple[str, str]], language: str | None = None) -> str:
    """The highest-scoring sentences of both sides; "" for an empty transcript. `transcript`: role ("user",
    "assistant") and text of each line. `language` is that of the speakers' names."""
    sentences = _sentences(transcript)
    if not sentences:
        return ""
    stem_counts = Counter(each for sentence in sentences for each in sentence.stems)
    first_request = next(
        (sentence.position for sentence in sentences if sentence.is_caller and len(sentence.stems) > 1), -1
    )
    scores = {sentence.position: _score(sentence, stem_counts, first_request) for sentence in sentences}
    ranked = sorted(sentences, key=lambda sentence: (-scores[sentence.position], sentence.position))
    min_score = _MIN_SCORE_SHARE * scores[ranked[0].position]
    chosen = _select([sentence for sentence in ranked if scores[sentence.position] >= min_score] or ranked, ranked)
    return _format(sorted(chosen, key=lambda sentence: sentence.position), language)


def _sentences(transcript: Sequence[tuple[str, str]]) -> list[_Sentence]:
    texts = [(role == "user", text) for role, line in transcript for text in _END.split(" ".join(line.split()))]
    return [
        _Sentence(position, is_caller, _cut(text), frozenset(stem(word) for word in _content_words(text)))
        for position, (is_caller, text) in enumerate(texts)
        if text
    ]


def _content_words(text: str) -> list[str]:
    return [word for word in tokenize(text) if word not in STOP_WORDS and word not in _COURTESY_WORDS and len(word) > 1]


def _cut(text: str) -> str:
    return (
        text
        if len(text) <= _MAX_SENTENCE_CHARACTERS
        else f"{text[: _MAX_SENTENCE_CHARACTERS - 1].rsplit(' ', 1)[0]}\u2026"
    )


def _score(sentence: _Sentence, stem_counts: Mapping[str, int], request: int) -> float:
    """The score of a sentence: repeated words weigh more, logarithmically; length alone does not win; a question weighs
    less than a statement, and what precedes the caller's first `request` is a greeting."""
    if not sentence.stems:
        return 0.0
    weight = sum(1 + math.log(stem_counts[each]) for each in sentence.stems) / math.sqrt(len(sentence.stems) + 2)
    weight *= 1.3 if _NUMBER.search(sentence.text) else 1.0
    weight *= 0.5 if sentence.text.endswith("?") and sentence.position != request else 1.0
    weight *= 0.3 if sentence.position < request else 1.0
    return weight * (2.0 if sentence.position == request else 1.1 if sentence.is_caller else 1.0)


def _select(candidates: Sequence[_Sentence], ranked: Sequence[_Sentence]) -> list[_Sentence]:
    """The best sentence of each side, then the best of the `candidates`, without repetitions."""
    sides = [
        next((sentence for sentence in ranked if sentence.is_caller is is_caller and sentence.stems), None)
        for is_caller in (True, False)
    ]
    chosen = [sentence for sentence in sides if sentence is not None] or list(ranked[:1])
    remaining = MAX_CHARACTERS - sum(len(sentence.text) for sentence in chosen)
    for sentence in candidates:
        if len(chosen) >= MAX_SENTENCES:
            break
        is_new = sentence.stems and all(_overlap(sentence, other) < _MAX_OVERLAP for other in chosen)
        if is_new and sentence not in chosen and len(sentence.text) <= remaining:
            chosen.append(sentence)
            remaining -= len(sentence.text)
    return chosen


def _overlap(one: _Sentence, other: _Sentence) -> float:
    return len(one.stems & other.stems) / max(min(len(one.stems), len(other.stems)), 1)


def _format(chosen: Sequence[_Sentence], language: str | None) -> str:
    """The summary's text, with the speaker's name at each change of speaker."""
    caller, agent = _SPEAKERS.get((language or "en").lower().split("-")[0], _SPEAKERS["en"])
    parts, speaker = [], ""
    for sentence in chosen:
        name = caller if sentence.is_caller else agent
        parts.append(sentence.text if name == speaker else f"{name}: {sentence.text}")
        speaker = name
    return " ".join(parts)
