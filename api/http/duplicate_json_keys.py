"""Finds a name that occurs twice in one object of a JSON text. Parsers silently keep the last value, so that a proxy
before this server may have judged another value than the one that counts here (RFC 8259, 4)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final

_AFTER_NAME: Final = re.compile(rb"[ \t\r\n]*:")
_MARK: Final = re.compile(rb'["{}\[\],]')
_REST_OF_STRING: Final = re.compile(rb'(?:[^"\\]|\\.)*+"', re.DOTALL)
_BACKSLASH: Final = b"\\"
_BACKSLASH_BYTE: Final = ord(_BACKSLASH)


@dataclass
class _OpenContainer:
    """An object (`names` are those seen so far) or a list that has begun and not ended. `at` is the name or the index
    of the value being read."""

    names: set[str] | None
    at: str | int = field(default=0)


def duplicate_key(text: bytes) -> list[str] | None:
    """Returns the JSON path of the first name that occurs twice in an object; None when there is none. `text` must be
    valid JSON. Strings are skipped without being decoded."""
    opened: list[_OpenContainer] = []
    found = _MARK.search(text)
    while found is not None:
        position = found.end()
        match found[0]:
            case b'"':
                end = _end_of_string(text, position)
                if opened and (current := opened[-1]).names is not None and _is_name(text, end):
                    name = _name(text[position : end - 1])
                    if name in current.names:
                        return [*(str(each.at) for each in opened[:-1]), name]
                    current.names.add(name)
                    current.at = name
                position = end
            case b"{":
                opened.append(_OpenContainer(set()))
            case b"[":
                opened.append(_OpenContainer(None))
            case b",":
                if opened and isinstance(index := opened[-1].at, int):
                    opened[-1].at = index + 1
            case _:
                opened.pop()
        found = _MARK.search(text, position)
    return None


def _end_of_string(text: bytes, begin: int) -> int:
    """The position after the closing quotation mark of the string whose content begins at `begin`. Mostly that is the
    next quotation mark, which is found without holding the GIL for long, however long the string is."""
    quote = text.index(b'"', begin)
    if text[quote - 1] != _BACKSLASH_BYTE:
        return quote + 1
    rest = _REST_OF_STRING.match(text, begin)
    assert rest is not None, "the text is valid JSON"
    return rest.end()


def _is_name(text: bytes, end: int) -> bool:
    """True if a colon follows the string that ends here."""
    return _AFTER_NAME.match(text, end) is not None


def _name(raw: bytes) -> str:
    """Two spellings of a name, as `a` and `\\u0061`, are one name."""
    return str(json.loads(b'"%b"' % raw)) if _BACKSLASH in raw else raw.decode("utf-8", "replace")
