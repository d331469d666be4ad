"""HTML that is safe by construction: text is escaped, and only what was made here counts as markup."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from typing import Any, Final

VOID: Final = frozenset({"meta", "wbr"})
UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
"""Control characters and lone surrogates: HTML and UTF-8 have no place for them."""


class Html(str):
    """Markup that goes into a page as it is. What is made of it by `+` or an f-string is text again."""

    __slots__ = ()


def together(*content: str | None) -> Html:
    """The parts one after the other; text is escaped, None is nothing."""
    return Html("".join(each if isinstance(each, Html) else _text(each) for each in content if each is not None))


def lined(content: Iterable[str], between: str = "\n") -> Html:
    """Parts with `between` between them."""
    return Html(_text(between).join(together(each) for each in content))


def tag(name: str, /, *content: str | None, **attributes: str | None) -> Html:
    """An element. `class_` and `aria_label` become `class` and `aria-label`; an attribute that is None is left out."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    opening = "".join(f' {key}="{_text(value)}"' for key, value in given.items())
    if name in VOID:
        return Html(f"<{name}{opening}>")
    return Html(f"<{name}{opening}>{together(*content)}</{name}>")


def anchor(text: str) -> str:
    """Text as a name that an address can end with."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-") or "part"


def code(text: str) -> Html:
    """A literal."""
    return tag("code", text)


def json_text(value: Any, indent: int = 0) -> Html:
    """A JSON value over several lines, with its keys, texts and other values marked."""
    inner, end = "\n" + "  " * (indent + 1), "\n" + "  " * indent
    match value:
        case dict() if value:
            pairs = [
                together(inner, tag("b", _literal(key)), ": ", json_text(each, indent + 1))
                for key, each in value.items()
            ]
            return together("{", lined(pairs, ","), end, "}")
        case list() if value:
            return together("[", lined((together(inner, json_text(each, indent + 1)) for each in value), ","), end, "]")
        case str():
            return tag("i", _literal(value))
        case _:
            return together(_literal(value))


def _literal(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _text(text: str) -> str:
    return escape(UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text))
