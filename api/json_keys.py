"""Finds a name that an object of a JSON text has twice. Parsers keep the last one silently, so that a proxy or a reader
in front of us may have judged another value than the one that counts here (RFC 8259, 4)."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final

_MARK: Final = re.compile(rb'["{}\[\],]')
_BACKSLASH: Final = b"\\"
_USUAL_RUN: Final = 64
"""Bytes; longer runs of backslashes are no text that anybody writes."""


@dataclass
class _Open:
    """An object (`names` are those seen so far) or a list that has begun and not ended. `at` is the name or the index
    of the value that is being read."""

    names: set[str] | None
    at: str | int = field(default=0)


def repeated_key(text: bytes) -> list[str] | None:
    """The JSON path of the first name that stands twice in an object; None when there is none. `text` is valid JSON.
    Strings are passed over without looking into them; stops at what it finds."""
    opened: list[_Open] = []
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
                opened.append(_Open(set()))
            case b"[":
                opened.append(_Open(None))
            case b",":
                if opened and isinstance(index := opened[-1].at, int):
                    opened[-1].at = index + 1
            case _:
                opened.pop()
        found = _MARK.search(text, position)
    return None


def _end_of_string(text: bytes, begin: int) -> int:
    """Behind the closing quotation mark of the string whose content begins at `begin`."""
    at = begin
    while True:
        quote = text.index(b'"', at)
        if _backslashes_before(text, at, quote) % 2 == 0:
            return quote + 1
        at = quote + 1


def _backslashes_before(text: bytes, begin: int, end: int) -> int:
    run = text[max(begin, end - _USUAL_RUN) : end]
    count = len(run) - len(run.rstrip(_BACKSLASH))
    if count < len(run) or count < _USUAL_RUN:
        return count
    whole = text[begin:end]
    return len(whole) - len(whole.rstrip(_BACKSLASH))


def _is_name(text: bytes, end: int) -> bool:
    """Whether a colon follows on the string that ends here."""
    while text[end : end + 1] in (b" ", b"\t", b"\r", b"\n"):
        end += 1
    return text[end : end + 1] == b":"


def _name(raw: bytes) -> str:
    """Two ways of writing a name, as `a` and `\\u0061`, are one name."""
    return str(json.loads(b'"%b"' % raw)) if _BACKSLASH in raw else raw.decode("utf-8", "replace")
