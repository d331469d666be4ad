"""Layout of a PDF's lines: finds headings by font size, joins paragraphs, removes running heads.

A PDF has no paragraphs, only positions of pieces of text, so the rules are heuristics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from storage.document_reader.base.blocks import Block, heading, paragraph

_HEADING_SCALE: Final = 1.15
"""Font size of a heading relative to that of the body text, at least."""
_HEADING_CHARACTERS: Final = 120
_MAX_LEVELS: Final = 4
_WIDE_GAP: Final = 1.4
"""Line spacing relative to the median from which a new paragraph begins."""
_SHORT: Final = 0.75
"""Length relative to a full line below which a line that ends with a sentence ends a paragraph."""
_EDGE_LINES: Final = 2
"""Lines at the top and at the bottom of a page that may be running heads."""
_NEARBY: Final = 2
"""Pages before and after a page that are compared with it."""
_RUNNING: Final = 2
"""Number of nearby pages on which a running head must occur, too."""
_LONE_NUMBER: Final = re.compile(r"[-\u2013\u2014 ]*(?:\d{1,4}|[ivxlc]{1,8})[-\u2013\u2014 ]*")
_SENTENCE_END: Final = re.compile(r"[.!?:\u2026\u3002\uff01\uff1f][\"'\u201d\u2019)\]]*$")
_ITEM: Final = re.compile(r"(?:[\u2022\u25cf\u25e6\u25aa\u2023\u2013\u2014*-]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s")
_DIGITS: Final = re.compile(r"\d+")
_BROKEN_WORD: Final = re.compile(r"[^\W\d_]-$")


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of text, its font size in points, and its height on the page in points."""

    text: str
    size: float
    height: float


def blocks_from_lines(pages: Sequence[Sequence[TextLine]]) -> Iterator[Block]:
    """Returns headings and paragraphs of all pages; a paragraph may continue on the next page."""
    lines = [line for page in _without_running_heads(pages) for line in page]
    if not lines:
        return
    levels = _heading_levels(lines)
    usual_gap = _usual_gap(lines)
    width = _usual_width(lines)
    open_lines: list[TextLine] = []
    for line in lines:
        if open_lines and _parts(open_lines[-1], line, levels, usual_gap, width):
            yield _block(open_lines, levels)
            open_lines = []
        open_lines.append(line)
    yield _block(open_lines, levels)


def _without_running_heads(pages: Sequence[Sequence[TextLine]]) -> Iterator[Sequence[TextLine]]:
    """The pages without lone numbers at their edges, and without lines there that occur on several pages nearby,
    numbers apart: a chapter's head may be on every other page."""
    edges = [{_mark(page[place]) for place in _edge_places(page)} for page in pages]
    for number, page in enumerate(pages):
        nearby = edges[max(0, number - _NEARBY) : number] + edges[number + 1 : number + 1 + _NEARBY]
        seen = Counter(mark for marks in nearby for mark in marks)
        running = {
            place
            for place in _edge_places(page)
            if _LONE_NUMBER.fullmatch(page[place].text) or seen[_mark(page[place])] >= _RUNNING
        }
        yield [line for place, line in enumerate(page) if place not in running]


def _edge_places(page: Sequence[TextLine]) -> set[int]:
    """At most two thirds of a page."""
    count = min(_EDGE_LINES, len(page) // 3)
    return {*range(count), *range(len(page) - count, len(page))}


def _mark(line: TextLine) -> str:
    return _DIGITS.sub("#", line.text)


def _heading_levels(lines: Sequence[TextLine]) -> dict[float, int]:
    """Font sizes of headings, the largest as level 1. The body text's size is that of most characters."""
    weights: Counter[float] = Counter()
    for line in lines:
        weights[line.size] += len(line.text)
    body = weights.most_common(1)[0][0]
    sizes = sorted((size for size in weights if size >= body * _HEADING_SCALE), reverse=True)
    return {size: min(level, _MAX_LEVELS) for level, size in enumerate(sizes, 1)}


def _usual_gap(lines: Sequence[TextLine]) -> float:
    gaps = [above.height - below.height for above, below in pairwise(lines)]
    downwards = [gap for gap in gaps if gap > 0]
    return median(downwards) if downwards else 0.0


def _usual_width(lines: Sequence[TextLine]) -> float:
    """Characters of a full line."""
    lengths = sorted(len(line.text) for line in lines)
    return lengths[int(0.9 * (len(lengths) - 1))]


def _parts(above: TextLine, below: TextLine, levels: dict[float, int], usual_gap: float, width: float) -> bool:
    """True if a new block begins with `below`."""
    if above.size in levels or below.size in levels:
        return above.size != below.size
    gap = above.height - below.height
    if gap > _WIDE_GAP * usual_gap or _ITEM.match(below.text):
        return True
    return len(above.text) < _SHORT * width and _SENTENCE_END.search(above.text) is not None


def _block(lines: Sequence[TextLine], levels: dict[float, int]) -> Block:
    text = _joined(lines)
    level = levels.get(lines[0].size)
    if level is None or len(text) > _HEADING_CHARACTERS or not any(map(str.isalpha, text)):
        return paragraph(text)
    return heading(text, level)


def _joined(lines: Sequence[TextLine]) -> str:
    """The lines as one text; a hyphenated word at a line's end is joined when it continues in lower case."""
    text = lines[0].text
    for line in lines[1:]:
        is_broken = _BROKEN_WORD.search(text) and line.text[:1].islower()
        text = text[:-1] + line.text if is_broken else f"{text} {line.text}"
    return text
