"""The descriptions' Markdown as HTML.

Understood: headings, paragraphs, `-` lists, fenced code, tables with pipes; within a line code, **bold** and links. The
rest of CommonMark, HTML above all, stays the text that it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from api.reference.html import Html, anchor, code, lined, tag, together

INLINE: Final = re.compile(
    r"`(?P<code>[^`]+)`|\*\*(?P<bold>[^*]+)\*\*|\[(?P<label>[^\]]+)\]\((?P<target>(?:https?:/|[/#])[^\s()]*)\)"
)
FENCE: Final = re.compile(r"^```[^\n]*\n(.*?)\n```[ \t]*$", re.DOTALL | re.MULTILINE)
HEADING: Final = re.compile(r"#{1,6}\s+(?P<title>.+)")
ITEM: Final = re.compile(r"[-*]\s+")
RULE: Final = re.compile(r"\|?[\s:|-]*-[\s:|-]*")
PART: Final = re.compile(r"^##?[ \t]+(?P<title>.+)$", re.MULTILINE)


def parts(text: str) -> tuple[str, list[tuple[str, str]]]:
    """What stands before the first heading of the two highest levels, then each such heading with its text."""
    pieces = PART.split(text)
    return pieces[0], list(zip(pieces[1::2], pieces[2::2], strict=True))


def prose(text: str | None, heading: str = "h4") -> Html:
    """A description; its headings become `heading`."""
    return lined(_blocks(text or "", heading))


def line(text: str | None) -> Html:
    """A description of one line, without a block around it."""
    return together(*_inline(text or ""))


def _blocks(text: str, heading: str) -> Iterator[Html]:
    for number, piece in enumerate(FENCE.split(text)):
        if number % 2 == 1:
            yield tag("pre", code(piece), tabindex="0")
            continue
        for block in re.split(r"\n\s*\n", piece.strip()):
            if block:
                yield _block([each.strip() for each in block.split("\n")], heading)


def _block(lines: list[str], heading: str) -> Html:
    if title := HEADING.fullmatch(lines[0]):
        head = tag(heading, line(title["title"]), id=f"about-{anchor(title['title'].lower())}")
        return together(head, _block(lines[1:], heading) if lines[1:] else None)
    starts = [number for number, each in enumerate(lines) if ITEM.match(each)]
    if starts:
        before = lines[: starts[0]]
        ends = [*starts[1:], len(lines)]
        items = [" ".join(lines[start:end]) for start, end in zip(starts, ends, strict=True)]
        listed = tag("ul", *(tag("li", line(ITEM.sub("", each, count=1))) for each in items))
        return together(tag("p", line(" ".join(before))) if before else None, listed)
    if len(lines) > 1 and "|" in lines[0] and RULE.fullmatch(lines[1]):
        return _table(lines[0], lines[2:])
    return tag("p", line(" ".join(lines)))


def _table(head: str, body: list[str]) -> Html:
    titles = [tag("th", line(each), scope="col") for each in _cells(head)]
    rows = [tag("tr", *(tag("td", line(cell)) for cell in _cells(each))) for each in body]
    return tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *rows), class_="plain")


def _cells(row: str) -> list[str]:
    return [each.strip() for each in row.strip().strip("|").split("|")]


def _inline(text: str) -> Iterator[str]:
    at = 0
    for found in INLINE.finditer(text):
        yield text[at : found.start()]
        if found["code"] is not None:
            yield code(found["code"])
        elif found["bold"] is not None:
            yield tag("strong", found["bold"])
        else:
            yield tag("a", found["label"], href=found["target"])
        at = found.end()
    yield text[at:]
