"""Speaks a tool's result: plain text as it is, JSON as a sentence, an error without its text. English only."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from models.protocols import ChatMessage, ToolCall
from models.rule_based.tool_arguments import called, readable
from models.text.sentence_splitter import split_sentences
from models.text.word_lists import words

SORRY: Final = "I am sorry, that did not work just now. Please try again later, or ask me something else."
NOTHING: Final = "I am sorry, I found nothing about that."
DONE: Final = "That is done."
_SENTENCES: Final = 2
"""Of a text; more would be a reading."""
_LONGEST_SAID: Final = 300
"""Characters of a text: half a minute of speech when nobody has put full stops into it."""
_FACTS: Final = 4
"""Values of an object that are said."""
_LONGEST_FACT: Final = 80
"""Characters of a value among others."""
_SAID: Final = ("message", "answer", "text", "summary")
"""Fields that hold a sentence for the caller."""
_NO_TEXT: Final = re.compile(r"(?:error\b|\((?:no text|an answer in|an answer that is)\b)", re.IGNORECASE)
"""How a result begins that says nothing to a caller."""
_EMPTY_SUCCESS: Final = re.compile(r"(?:done: the tool answered|the keys were pressed|the call ends)", re.IGNORECASE)
_NO_PASSAGE: Final = "The documents say nothing"
_SOURCE: Final = re.compile(r"From the document .*:$")
_NO_FACT: Final = re.compile(r"(?:^|_)(?:u?u?id|guid|url|uri|link|href|hash|token|cursor|etag)s?$")
_ADDRESS: Final = re.compile(r"\w+://|^www\.|\[hidden\]|^[0-9a-f]{8}-[0-9a-f]{4}-")
_VERDICTS: Final = words("ok success successful succeeded")
_NOT_PLURAL: Final = re.compile(r"(?:ss|us|is|as)$")


def said_result(result: ChatMessage, call: ToolCall) -> str:
    """What to tell the caller of a tool's line, the result of this call."""
    text = result.content.strip()
    if not result.ok or _NO_TEXT.match(text):
        return SORRY
    if not text or _EMPTY_SUCCESS.match(text):
        return DONE
    try:
        found = json.loads(text)
    except RecursionError:  # nested deeper than anybody could be told
        return SORRY
    except ValueError:
        return SORRY if text[0] in "{[" else _beginning(text)
    return _said(found, call)


def sentences_of(result: ChatMessage) -> list[str]:
    """The sentences of what a search in the documents has told, without the documents' names; none when it found
    nothing or failed."""
    text = result.content.strip()
    if not result.ok or text.startswith(_NO_PASSAGE):
        return []
    return [sentence for line in text.splitlines() if not _SOURCE.match(line) for sentence in split_sentences(line)]


def _beginning(text: str) -> str:
    """The first sentences; what has no end is cut."""
    return _cut(" ".join(split_sentences(text)[:_SENTENCES]), _LONGEST_SAID)


def _cut(text: str, most: int) -> str:
    """At most so many characters of it, up to the end of a word if there is one."""
    if len(text) <= most:
        return text
    whole, space, _ = text[: most + 1].rpartition(" ")
    return whole.rstrip(" ,;:-") if space else text[:most]


def _said(found: Any, call: ToolCall) -> str:
    match found:
        case dict():
            return _said_object(found, call)
        case list():
            return _said_list(found, call)
        case bool():
            return "Yes." if found else "No."
        case str() if found.strip():
            return _beginning(found)
        case int() | float():
            return f"It is {found}."
    return NOTHING


def _said_list(found: list[Any], call: ToolCall) -> str:
    plain = [item for item in map(_name_of, found) if item]
    if len(plain) > 1:
        return f"I found {_listed(plain[:_FACTS])}."
    return _said(found[0], call) if found else NOTHING


def _name_of(item: Any) -> str | None:
    """How an item of a list is called."""
    if isinstance(item, Mapping):
        item = next((item[key] for key in ("name", "title", "label") if key in item), None)
    if not isinstance(item, str | int | float) or isinstance(item, bool):
        return None
    return _cut(str(item), _LONGEST_FACT)


def _said_object(found: dict[str, Any], call: ToolCall) -> str:
    fields = {_snake(key): value for key, value in found.items()}
    if fields.get("error") or fields.get("errors") or any(fields.get(verdict) is False for verdict in _VERDICTS):
        return SORRY
    for key in _SAID:
        if isinstance(fields.get(key), str) and fields[key].strip():
            return _beginning(fields[key])
    facts = list(_facts(fields, call))[:_FACTS]
    if facts:
        sentence = facts[0] if len(facts) == 1 else ", ".join(facts[:-1]) + f", and {facts[-1]}"
        return f"{sentence[0].upper()}{sentence[1:]}."
    inner = [value for value in fields.values() if isinstance(value, dict | list)]
    if inner:
        return _said(inner[0], call)
    return DONE if any(fields.get(verdict) for verdict in _VERDICTS) else NOTHING


def _facts(fields: Mapping[str, Any], call: ToolCall) -> Iterator[str]:
    """A clause for each value that can be said, and that the caller did not give."""
    given = list(json.loads(call.arguments).values())
    for key, value in fields.items():
        if key in _VERDICTS or key == "error" or _NO_FACT.search(key) or value in given:
            continue
        name = _full_name(called(key), call.name)
        match value:
            case bool():
                yield _verdict(called(key), value)
            case int() | float():
                yield f"the {name} {_be(name)} {value}"
            case str() if value.strip() and len(value) <= _LONGEST_FACT and not _ADDRESS.search(value):
                yield f"the {name} {_be(name)} {readable(value) if '_' in value else value.strip(' .')}"


def _verdict(name: str, holds: bool) -> str:
    """A boolean: `is_open` is "it is open", `in_stock` "it is in stock"."""
    if name.startswith("has "):
        return f"it has {name[4:]}" if holds else f"it has no {name[4:]}"
    name = name.removeprefix("is ")
    return f"it is {name}" if holds else f"it is not {name}"


def _full_name(name: str, tool: str) -> str:
    """The status that a tool `order_status` tells is the order status."""
    whole = readable(tool)
    return whole if whole.endswith(f" {name}") and len(whole.split()) == 2 else name


def _be(name: str) -> str:
    return "are" if name.endswith("s") and not _NOT_PLURAL.search(name) else "is"


def _listed(items: list[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def _snake(key: str) -> str:
    return readable(key).replace(" ", "_")
