"""The words that callers of an agent are likely to say and that a recognizer may not know: names above all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from calls.call_record.context_variables import PLACEHOLDER, ContextValue
from models.protocols import ToolDefinition

MOST: Final = 60
"""Phrases for one call: the more there are, the likelier one is heard that nobody said."""
_LONGEST_WORDS: Final = 5
_LONGEST_NESTING: Final = 4
_WORD: Final = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")
_TITLE: Final = re.compile(r"\b(Dr|Mr|Mrs|Ms|Prof|St|Hr|Fr|Sr|Sra|Mme|M)\.\s+")
_SENTENCE: Final = re.compile(r"[.!?:;\u2026|>*#\u2022\u2013\u201c\u201e\"(\[\n]\s*(?:-\s+)?|^-\s+")
_PLAIN: Final = frozenset(("i", "agent", "assistant", "bot", "ai", "test", "demo", "copy", "the", "you", "your"))
"""Capitalised or not, no names."""


def hot_words(
    name: str, instructions: str, values: Iterable[ContextValue], tools: Sequence[ToolDefinition]
) -> list[str]:
    """For an agent of that `name` with its prompt, in a call with these context values: short values as they are, the
    values that its tools list, names of several words of their parameters ("order_number"), and words that have a
    capital letter in the middle of a sentence of the prompt. The likeliest first, each once, at most `MAX_HOSTS`."""
    texts = [*_of_values(values), *_names_in(f"the {name}"), *_of_tools(tools), *_names_in(instructions)]
    found: dict[str, str] = {}
    for text in texts:
        found.setdefault(text.casefold(), text)
    return list(found.values())[:MOST]


def _of_values(values: Iterable[object]) -> Iterator[str]:
    """Values that can be said in a breath: names and things, not addresses, numbers, ids or prose."""
    for value in values:
        if isinstance(value, str):
            words = value.split()
            if 0 < len(words) <= _LONGEST_WORDS and all(_WORD.fullmatch(word.strip(".,")) for word in words):
                yield " ".join(word.strip(".,") for word in words)


def _of_tools(tools: Sequence[ToolDefinition]) -> Iterator[str]:
    for tool in tools:
        yield from _of_schema(tool.parameters, _LONGEST_NESTING)


def _of_schema(schema: Mapping[str, Any], depth: int) -> Iterator[str]:
    listed = schema.get("enum")
    if isinstance(listed, list):
        yield from _of_values(value.replace("_", " ") for value in listed if isinstance(value, str))
    properties = schema.get("properties")
    if depth and isinstance(properties, Mapping):
        for name, inner in properties.items():
            words = re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", str(name)).lower().split()
            if len(words) > 1:
                yield from _of_values([" ".join(words)])
            if isinstance(inner, Mapping):
                yield from _of_schema(inner, depth - 1)
    items = schema.get("items")
    if depth and isinstance(items, Mapping):
        yield from _of_schema(items, depth - 1)


def _names_in(text: str) -> Iterator[str]:
    """Runs of words with a capital first letter. One that begins a sentence counts if it has two words, and without its
    first word too. Words of capitals alone are shouted."""
    plain = _TITLE.sub(r"\1 ", PLACEHOLDER.sub(" ", text))
    for sentence in _SENTENCE.split(plain):
        name: list[str] = []
        end = began = 0
        for found in _WORD.finditer(sentence):
            word = found.group()
            if name and not (_is_name(word) and sentence[end : found.start()].isspace()):
                yield from _whole(name, began)
                name = []
            if _is_name(word):
                began = began if name else found.start()
                name.append(word)
            end = found.end()
        yield from _whole(name, began)


def _whole(name: Sequence[str], began: int) -> Iterator[str]:
    if len(name) > 1 or (name and began):
        yield " ".join(name)
    if len(name) > 1 and not began:
        yield " ".join(name[1:])


def _is_name(word: str) -> bool:
    return word[0].isupper() and not word.isupper() and word.casefold() not in _PLAIN
