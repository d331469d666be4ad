"""Turns a tool's result into speech: text as it is, JSON as a sentence, an error as an apology. English only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from models.protocols import ChatMessage, ToolCall
from models.rule_based.tool_arguments import readable, spoken_name
from models.text.sentence_splitter import split_sentences
from models.text.word_lists import word_set

SORRY: Final = "I am sorry, that did not work just now. Please try again later, or ask me something else."
NOTHING: Final = "I am sorry, I found nothing about that."
DONE: Final = "That is done."
_MAX_SENTENCES: Final = 2
"""Sentences of a text that are spoken."""
_MAX_SPOKEN_CHARACTERS: Final = 300
"""Characters of a text without full stops: half a minute of speech."""
_MAX_FACTS: Final = 4
"""Values of an object that are spoken."""
_MAX_FACT_CHARACTERS: Final = 80
"""Characters of one value of an object or a list."""
_SENTENCE_FIELDS: Final = ("message", "answer", "text", "summary")
"""Fields that hold a sentence for the caller."""
_UNSPEAKABLE_RESULT: Final = re.compile(r"(?:error\b|\((?:no text|an answer in|an answer that is)\b)", re.IGNORECASE)
"""Beginnings of results that hold nothing for the caller."""
_EMPTY_SUCCESS: Final = re.compile(r"(?:done: the tool answered|the keys were pressed|the call ends)", re.IGNORECASE)
_NO_PASSAGE: Final = "The documents say nothing"
_SOURCE: Final = re.compile(r"From the document .*:$")
_UNSPEAKABLE_FIELD: Final = re.compile(r"(?:^|_)(?:u?u?id|guid|url|uri|link|href|hash|token|cursor|etag)s?$")
_UNSPEAKABLE_VALUE: Final = re.compile(r"\w+://|^www\.|\[hidden\]|^[0-9a-f]{8}-[0-9a-f]{4}-")
_SUCCESS_FIELDS: Final = word_set("ok success successful succeeded")
_NOT_PLURAL: Final = re.compile(r"(?:ss|us|is|as)$")


def speak_result(result: ChatMessage, call: ToolCall) -> str:
    """The text to speak for the result of a call."""
    text = result.content.strip()
    if not result.ok or _UNSPEAKABLE_RESULT.match(text):
        return SORRY
    if not text or _EMPTY_SUCCESS.match(text):
        return DONE
    try:
        value = json.loads(text)
    except RecursionError:  # nested too deeply to be spoken
        return SORRY
    except ValueError:
        return SORRY if text[0] in "{[" else _first_sentences(text)
    return _speak_value(value, call)


def passage_sentences(result: ChatMessage) -> list[str]:
    """The sentences of the passages that a document search found, without the documents' names; empty if it found none
    or failed."""
    text = result.content.strip()
    if not result.ok or text.startswith(_NO_PASSAGE):
        return []
    return [sentence for line in text.splitlines() if not _SOURCE.match(line) for sentence in split_sentences(line)]


def _first_sentences(text: str) -> str:
    """The first sentences; a text without sentences is cut."""
    return _cut(" ".join(split_sentences(text)[:_MAX_SENTENCES]), _MAX_SPOKEN_CHARACTERS)


def _cut(text: str, most: int) -> str:
    """The first `most` characters, up to the end of a word."""
    if len(text) <= most:
        return text
    tool_words, space, _ = text[: most + 1].rpartition(" ")
    return tool_words.rstrip(" ,;:-") if space else text[:most]


def _speak_value(value: Any, call: ToolCall) -> str:
    match value:
        case dict():
            return _speak_object(value, call)
        case list():
            return _speak_list(value, call)
        case bool():
            return "Yes." if value else "No."
        case str() if value.strip():
            return _first_sentences(value)
        case int() | float():
            return f"It is {value}."
    return NOTHING


def _speak_list(value: list[Any], call: ToolCall) -> str:
    names = [item for item in map(_name_of, value) if item]
    if len(names) > 1:
        return f"I found {_listed(names[:_MAX_FACTS])}."
    return _speak_value(value[0], call) if value else NOTHING


def _name_of(item: Any) -> str | None:
    """The name of an item in a list; None if it has none."""
    if isinstance(item, Mapping):
        item = next((item[key] for key in ("name", "title", "label") if key in item), None)
    if not isinstance(item, str | int | float) or isinstance(item, bool):
        return None
    return _cut(str(item), _MAX_FACT_CHARACTERS)


def _speak_object(result: dict[str, Any], call: ToolCall) -> str:
    fields = {_snake(key): value for key, value in result.items()}
    if fields.get("error") or fields.get("errors") or any(fields.get(verdict) is False for verdict in _SUCCESS_FIELDS):
        return SORRY
    for key in _SENTENCE_FIELDS:
        if isinstance(fields.get(key), str) and fields[key].strip():
            return _first_sentences(fields[key])
    facts = list(_facts(fields, call))[:_MAX_FACTS]
    if facts:
        sentence = facts[0] if len(facts) == 1 else ", ".join(facts[:-1]) + f", and {facts[-1]}"
        return f"{sentence[0].upper()}{sentence[1:]}."
    nested = [value for value in fields.values() if isinstance(value, dict | list)]
    if nested:
        return _speak_value(nested[0], call)
    return DONE if any(fields.get(verdict) for verdict in _SUCCESS_FIELDS) else NOTHING


def _facts(fields: Mapping[str, Any], call: ToolCall) -> Iterator[str]:
    """A clause for each value that can be spoken and was not an argument of the call."""
    given_values = list(json.loads(call.arguments).values())
    for key, value in fields.items():
        if key in _SUCCESS_FIELDS or key == "error" or _UNSPEAKABLE_FIELD.search(key) or value in given_values:
            continue
        name = _full_name(spoken_name(key), call.name)
        match value:
            case bool():
                yield _boolean_clause(spoken_name(key), value)
            case int() | float():
                yield f"the {name} {_is_or_are(name)} {value}"
            case str() if value.strip() and len(value) <= _MAX_FACT_CHARACTERS and not _UNSPEAKABLE_VALUE.search(value):
                yield f"the {name} {_is_or_are(name)} {readable(value) if '_' in value else value.strip(' .')}"


def _boolean_clause(name: str, holds: bool) -> str:
    """A boolean: `is_open` is "it is open", `in_stock` "it is in stock"."""
    if name.startswith("has "):
        return f"it has {name[4:]}" if holds else f"it has no {name[4:]}"
    name = name.removeprefix("is ")
    return f"it is {name}" if holds else f"it is not {name}"


def _full_name(name: str, tool: str) -> str:
    """The name with the tool's noun: `status` from `order_status` is "order status"."""
    tool_words = readable(tool)
    return tool_words if tool_words.endswith(f" {name}") and len(tool_words.split()) == 2 else name


def _is_or_are(name: str) -> str:
    return "are" if name.endswith("s") and not _NOT_PLURAL.search(name) else "is"


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def _snake(key: str) -> str:
    return readable(key).replace(" ", "_")
