"""Markdown (CommonMark and tables), read by markdown-it-py."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from storage.document_reader.base.blocks import Block, heading, paragraph, table
from storage.document_reader.formats.html import blocks_from_html

_FRONT_MATTER: Final = re.compile(r"---[ \t]*\n(?P<facts>(?:(?!---).*\n)*?)(?:---|\.\.\.)[ \t]*(?:\n|$)")
_MAX_BRACKETS: Final = 20_000
"""Opening brackets up to which links are parsed as CommonMark defines, because an unclosed one costs the parser tens of
microseconds, and more in a long paragraph."""
_PLAIN_LINK: Final = re.compile(r"!?\[([^\[\]]*)\](?:\([^()\n]*\)|\[[^\[\]]*\])")
"""A link or image without brackets in its text and address. Takes linear time: no attempt passes the next bracket."""
_LINK_RULES: Final = ("link", "image", "reference")
_TITLE: Final = re.compile(r"^title:[ \t]*(.+)$", re.MULTILINE | re.IGNORECASE)


def blocks_from_markdown(text: str) -> Iterator[Block]:
    """Returns headings, paragraphs, list items, code and table rows, without markup; embedded HTML is read as HTML."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    front = _FRONT_MATTER.match(text)
    if front:
        title = _TITLE.search(front["facts"])
        if title:
            yield heading(title[1].strip("\"' "), 0)
        text = text[front.end() :]
    parser = MarkdownIt("commonmark").enable("table")
    if text.count("[") > _MAX_BRACKETS:
        text = _PLAIN_LINK.sub(r"\1", text)
        parser.disable(_LINK_RULES)
    yield from _Reader().blocks(parser.parse(text))


class _Reader:
    """Turns the parser's flat list of tokens into blocks."""

    def __init__(self) -> None:
        self._level = 0
        self._mark = ""
        self._rows: list[list[str]] | None = None

    def blocks(self, tokens: Sequence[Token]) -> Iterator[Block]:
        """Returns the blocks of a parsed text."""
        for token in tokens:
            match token.type:
                case "heading_open":
                    self._level = int(token.tag[1:])
                case "heading_close":
                    self._level = 0
                case "list_item_open":
                    self._mark = f"{token.info}. " if token.info else "- "
                case "inline":
                    yield from self._inline(token)
                case "fence" | "code_block":
                    yield paragraph(token.content)
                case "html_block":
                    yield from blocks_from_html(token.content)
                case _:
                    yield from self._table(token)

    def _inline(self, token: Token) -> Iterator[Block]:
        text = _plain(token.children or [])
        if self._rows is not None:
            self._rows[-1].append(text)
        elif self._level:
            yield heading(text, self._level)
        else:
            yield paragraph(self._mark + text)
            self._mark = ""

    def _table(self, token: Token) -> Iterator[Block]:
        if token.type == "table_open":
            self._rows = []
        elif token.type == "tr_open" and self._rows is not None:
            self._rows.append([])
        elif token.type == "table_close" and self._rows is not None:
            yield from table(self._rows, has_header=True)
            self._rows = None


def _plain(tokens: Sequence[Token]) -> str:
    """The text of a line without emphasis and link addresses; of an image, its description."""
    parts: list[str] = []
    for token in tokens:
        match token.type:
            case "text" | "code_inline":
                parts.append(token.content)
            case "image":
                parts.append(_plain(token.children or []))
            case "softbreak" | "hardbreak":
                parts.append("\n")
            case _:
                pass
    return "".join(parts)
