"""Duplicate keys in JSON objects (RFC 8259, 4). Parsers silently keep the last value, so that a proxy in front of this
server may have checked another value than the one that is used here."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final

_COLON: Final = re.compile(rb"[ \t\r\n]*:")
_TOKEN: Final = re.compile(rb'["{}\[\],]')
_REST_OF_STRING: Final = re.compile(rb'(?:[^"\\]|\\.)*+"', re.DOTALL)
_BACKSLASH: Final = b"\\"
_BACKSLASH_BYTE: Final = ord(_BACKSLASH)


@dataclass
class _OpenContainer:
    """An object or a list that has begun and not ended. `keys` are the keys of the object so far, None for a list; `at`
    is the key or the index of the current value."""

    keys: set[str] | None
    at: str | int = field(default=0)


def duplicate_key(text: bytes) -> list[str] | None:
    """Returns the JSON path of the first key that occurs twice in an object; None if there is none. `text` must be
    valid JSON. Strings are skipped without being decoded."""
    containers: list[_OpenContainer] = []
    token = _TOKEN.search(text)
    while token is not None:
        position = token.end()
        match token[0]:
            case b'"':
                end = _end_of_string(text, position)
                if containers and (current := containers[-1]).keys is not None and _is_key(text, end):
                    key = _decoded_key(text[position : end - 1])
                    if key in current.keys:
                        return [*(str(each.at) for each in containers[:-1]), key]
                    current.keys.add(key)
                    current.at = key
                position = end
            case b"{":
                containers.append(_OpenContainer(set()))
            case b"[":
                containers.append(_OpenContainer(None))
            case b",":
                if containers and isinstance(index := containers[-1].at, int):
                    containers[-1].at = index + 1
            case _:
                containers.pop()
        token = _TOKEN.search(text, position)
    return None


def _end_of_string(text: bytes, begin: int) -> int:
    """The position after the closing quotation mark of the string whose content begins at `begin`. Mostly that is the
    next quotation mark, which is found fast, so that other threads do not wait for the GIL."""
    quote = text.index(b'"', begin)
    if text[quote - 1] != _BACKSLASH_BYTE:
        return quote + 1
    rest = _REST_OF_STRING.match(text, begin)
    assert rest is not None, "the text is valid JSON"
    return rest.end()


def _is_key(text: bytes, end: int) -> bool:
    """True if a colon follows the string that ends here."""
    return _COLON.match(text, end) is not None


def _decoded_key(raw: bytes) -> str:
    """The key without escapes: `a` and `\\u0061` are the same key."""
    return str(json.loads(b'"%b"' % raw)) if _BACKSLASH in raw else raw.decode("utf-8", "replace")
