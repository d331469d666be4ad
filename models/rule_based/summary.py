"""A summary without a language model: the most telling sentences of a transcript, as they were said, in their order.

Sentences count for the words that the talk comes back to (Luhn, "The Automatic Creation of Literature Abstracts",
1958), for numbers, and what the caller says first for what it asks for. The same talk always gives the same summary.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from models.text.bm25 import STOP_WORDS, stem, tokens
from models.text.word_lists import words

MOST_SENTENCES: Final = 4
LONGEST: Final = 500
"""Characters, all together."""
_LONGEST_SENTENCE: Final = 220
_ALIKE: Final = 0.6
"""Share of a sentence's words that another one holds, from which it says nothing new."""
_WORTH: Final = 0.3
"""Share of the best sentence's score."""
_NUMBER: Final = re.compile(r"\d")
_END: Final = re.compile(r"(?<=[.!?\u2026\u3002\uff01\uff1f])\s+|(?<=[\u3002\uff01\uff1f])")
_COURTESY: Final = words(
    """bye goodbye hello hi hey morning afternoon evening good thanks thank welcome help helping calling call great
    perfect fine moment sorry repeat assist anything else today speak hallo guten tag danke tschüss auf wiederhören
    bitte merci bonjour revoir gracias hola adiós buenos días grazie ciao buongiorno"""
)
"""What is said in any call."""
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
    place: int
    user: bool
    text: str
    stems: frozenset[str]


def summarize(transcript: Sequence[tuple[str, str]], language: str | None = None) -> str:
    """The most telling sentences of both sides; "" when nobody said anything. `transcript`: role ("user",
    "assistant") and text of each line. `language` names the speakers."""
    sentences = _sentences(transcript)
    if not sentences:
        return ""
    often = Counter(each for sentence in sentences for each in sentence.stems)
    first_wish = next((each.place for each in sentences if each.user and len(each.stems) > 1), -1)
    scores = {each.place: _score(each, often, first_wish) for each in sentences}
    ranked = sorted(sentences, key=lambda each: (-scores[each.place], each.place))
    least = _WORTH * scores[ranked[0].place]
    chosen = _chosen([each for each in ranked if scores[each.place] >= least] or ranked, ranked)
    return _told(sorted(chosen, key=lambda each: each.place), language)


def _sentences(transcript: Sequence[tuple[str, str]]) -> list[_Sentence]:
    texts = [(role == "user", text) for role, line in transcript for text in _END.split(" ".join(line.split()))]
    return [
        _Sentence(place, user, _cut(text), frozenset(stem(word) for word in _telling(text)))
        for place, (user, text) in enumerate(texts)
        if text
    ]


def _telling(text: str) -> list[str]:
    return [word for word in tokens(text) if word not in STOP_WORDS and word not in _COURTESY and len(word) > 1]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SENTENCE else f"{text[: _LONGEST_SENTENCE - 1].rsplit(' ', 1)[0]}\u2026"


def _score(sentence: _Sentence, often: Mapping[str, int], wish: int) -> float:
    """Words that come back count more, up to a point; long sentences do not win by their length alone; what is asked
    tells less than what is said, and what comes before the caller's `wish` is a greeting."""
    if not sentence.stems:
        return 0.0
    weight = sum(1 + math.log(often[each]) for each in sentence.stems) / math.sqrt(len(sentence.stems) + 2)
    weight *= 1.3 if _NUMBER.search(sentence.text) else 1.0
    weight *= 0.5 if sentence.text.endswith("?") and sentence.place != wish else 1.0
    weight *= 0.3 if sentence.place < wish else 1.0
    return weight * (2.0 if sentence.place == wish else 1.1 if sentence.user else 1.0)


def _chosen(worth: Sequence[_Sentence], ranked: Sequence[_Sentence]) -> list[_Sentence]:
    """The best of each side, then the best of those that are `worth` it, none that repeats another one."""
    sides = [next((each for each in ranked if each.user is user and each.stems), None) for user in (True, False)]
    chosen = [each for each in sides if each is not None] or list(ranked[:1])
    room = LONGEST - sum(len(each.text) for each in chosen)
    for sentence in worth:
        if len(chosen) >= MOST_SENTENCES:
            break
        news = sentence.stems and all(_shared(sentence, each) < _ALIKE for each in chosen)
        if news and sentence not in chosen and len(sentence.text) <= room:
            chosen.append(sentence)
            room -= len(sentence.text)
    return chosen


def _shared(one: _Sentence, other: _Sentence) -> float:
    return len(one.stems & other.stems) / max(min(len(one.stems), len(other.stems)), 1)


def _told(chosen: Sequence[_Sentence], language: str | None) -> str:
    """Each speaker is named where the speaker changes."""
    user, agent = _SPEAKERS.get((language or "en").lower().split("-")[0], _SPEAKERS["en"])
    told, speaker = [], ""
    for sentence in chosen:
        name = user if sentence.user else agent
        told.append(sentence.text if name == speaker else f"{name}: {sentence.text}")
        speaker = name
    return " ".join(told)
