"""Plain text: paragraphs between empty lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from storage.document_reader.base.blocks import Block, paragraph

_PARAGRAPH_END: Final = re.compile(r"\n(?:[^\S\n]*+\n)++|[\f\u2029]")


def blocks_from_text(text: str) -> Iterator[Block]:
    """Yields paragraphs with their line ends; a form feed ends one, too."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n")
    start = 0
    for end in _PARAGRAPH_END.finditer(text):
        yield paragraph(text[start : end.start()])
        start = end.end()
    yield paragraph(text[start:])
