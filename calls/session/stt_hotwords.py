"""Hot words for speech recognition: phrases that callers of an agent are likely to say, names above all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from calls.call_record.context_variables import PLACEHOLDER, ContextValue
from models.protocols import ToolDefinition

MAX_PHRASES: Final = 60
"""Phrases of one call. The more there are, the likelier is a false recognition of one."""
_MAX_WORDS: Final = 5
_MAX_DEPTH: Final = 4
_WORD: Final = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_TITLE: Final = re.compile(r"\b(Dr|Mr|Mrs|Ms|Prof|St|Hr|Fr|Sr|Sra|Mme|M)\.\s+")
_SENTENCE: Final = re.compile(r"[.!?:;\u2026|>*#\u2022\u2013\u201c\u201e\"(\[\n]\s*(?:-\s+)?|^-\s+")
_NOT_NAMES: Final = frozenset(("i", "agent", "assistant", "bot", "ai", "test", "demo", "copy", "the", "you", "your"))
"""Words that are no names, capitalized or not."""


def hot_words(
    name: str, instructions: str, values: Iterable[ContextValue], tools: Sequence[ToolDefinition]
) -> list[str]:
    """Returns the phrases of an agent of that `name` with these `instructions`, in a call with these context values:
    short values as they are, the enums of its tools, parameter names of several words ("order_number"), and words with
    a capital letter in the middle of a sentence. The likeliest first, each once, at most `MAX_PHRASES`."""
    texts = [*_from_values(values), *_names_in(f"the {name}"), *_from_tools(tools), *_names_in(instructions)]
    phrases: dict[str, str] = {}
    for text in texts:
        phrases.setdefault(text.casefold(), text)
    return list(phrases.values())[:MAX_PHRASES]


def _from_values(values: Iterable[object]) -> Iterator[str]:
    """Yields values of a few words: names and things, not addresses, numbers, ids or prose."""
    for value in values:
        if isinstance(value, str):
            words = value.split()
            if 0 < len(words) <= _MAX_WORDS and all(_WORD.fullmatch(word.strip(".,")) for word in words):
                yield " ".join(word.strip(".,") for word in words)


def _from_tools(tools: Sequence[ToolDefinition]) -> Iterator[str]:
    for tool in tools:
        yield from _from_schema(tool.parameters, _MAX_DEPTH)


def _from_schema(schema: Mapping[str, Any], depth: int) -> Iterator[str]:
    enum = schema.get("enum")
    if isinstance(enum, list):
        yield from _from_values(value.replace("_", " ") for value in enum if isinstance(value, str))
    properties = schema.get("properties")
    if depth and isinstance(properties, Mapping):
        for name, inner in properties.items():
            words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", str(name)).lower().split()
            if len(words) > 1:
                yield from _from_values([" ".join(words)])
            if isinstance(inner, Mapping):
                yield from _from_schema(inner, depth - 1)
    items = schema.get("items")
    if depth and isinstance(items, Mapping):
        yield from _from_schema(items, depth - 1)


def _names_in(text: str) -> Iterator[str]:
    """Yields sequences of capitalized words. One that begins a sentence counts if it has two words, and without its
    first word too. Words all in capitals do not count."""
    plain = _TITLE.sub(r"\1 ", PLACEHOLDER.sub(" ", text))
    for sentence in _SENTENCE.split(plain):
        name: list[str] = []
        end = start = 0
        for match in _WORD.finditer(sentence):
            word = match.group()
            if name and not (_is_name(word) and sentence[end : match.start()].isspace()):
                yield from _phrases(name, start)
                name = []
            if _is_name(word):
                start = start if name else match.start()
                name.append(word)
            end = match.end()
        yield from _phrases(name, start)


def _phrases(name: Sequence[str], start: int) -> Iterator[str]:
    """Yields the phrases of a name that starts at this position of its sentence."""
    if len(name) > 1 or (name and start):
        yield " ".join(name)
    if len(name) > 1 and not start:
        yield " ".join(name[1:])


def _is_name(word: str) -> bool:
    return word[0].isupper() and not word.isupper() and word.casefold() not in _NOT_NAMES
