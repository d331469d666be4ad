"""The paragraph styles of a DOCX document that are headings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_HEADING_NAME: Final = re.compile(r"heading ([1-9])", re.IGNORECASE)
_BODY_TEXT: Final = 9
"""The outline level of body text, which is no heading."""
_MAX_CHAIN: Final = 16


@dataclass
class _Style:
    name: str = ""
    based_on: str = ""
    level: int | None = None


class StylesHandler:
    """Reads the part `styles`. Built-in styles have English names in every language of the program."""

    def __init__(self) -> None:
        self._styles: dict[str, _Style] = {}
        self._current = _Style()

    def level_of(self, style_id: str) -> int | None:
        """The heading level of a style (0: the document's title), inherited from the styles that it is based on."""
        for _ in range(_MAX_CHAIN):
            style = self._styles.get(style_id)
            if style is None:
                return None
            level = _level_by_name(style.name) if style.level is None else style.level
            if level is not None:
                return level
            style_id = style.based_on
        return None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Records what defines headings."""
        value = attributes.get("val", "")
        match name:
            case "style":
                self._current = self._styles.setdefault(attributes.get("styleId", ""), _Style())
            case "name":
                self._current.name = value
            case "basedOn":
                self._current.based_on = value
            case "outlineLvl":
                self._current.level = outline_level(value)
            case _:
                pass

    def end(self, name: str) -> None:
        """Ignored."""

    def text(self, text: str) -> None:
        """Ignored."""


def outline_level(value: str) -> int | None:
    """The heading level of an outline level, which counts from 0; None for body text."""
    return int(value) + 1 if re.fullmatch("[0-8]", value) else None


def _level_by_name(name: str) -> int | None:
    found = _HEADING_NAME.fullmatch(name)
    if found:
        return int(found[1])
    return 0 if name.lower() == "title" else None
