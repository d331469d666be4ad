"""Chunking: divides a document into passages that are short enough to be read out, and complete enough to be
understood."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from storage.document_reader.base.blocks import Block, Role
from storage.document_reader.terms.tokenizer import ENGLISH, SIGNS, UNSPACED, terms_of

MAX_WORDS: Final = 200
"""The maximum of words in a passage, without its headings."""
OVERLAP_WORDS: Final = 30
"""Words at the end of a passage that the next one repeats."""

_PIECE: Final = re.compile(f"(?:[{UNSPACED}][{SIGNS}]*){{1,2}}|[^\\s{UNSPACED}]{{1,60}}")
"""A word for counting and cutting: two characters where words have no spaces, else up to 60 characters."""
_SENTENCE_END: Final = re.compile(
    r"(?<!\b[A-Z]\.)(?<!\b(?:Mr|Ms|Dr|St|Nr|No|Jr|vs|ca)\.)(?<!\b(?:Mrs|Str|Inc|Ltd|Sra|bzw|tel|Tel|Fig)\.)"
    r"(?<!\bProf\.)"
    "(?<=[.!?\u2026])[\"'\u201d\u2019)\\]]{0,3}[ \n]+(?![a-z])"
    "|(?<=[\u3002\uff01\uff1f])[\u300d\u300f\u201d\u2019]{0,3}(?![\u3002\uff01\uff1f])[ \n]*|\n+"
)
_HEADING_CHARACTERS: Final = 120
_PATH_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage: its position in the document from 0 on, its text under its headings, and its search terms, separated
    by spaces."""

    position: int
    text: str
    terms: str


def chunks_of(
    blocks: Iterable[Block], words: int = MAX_WORDS, overlap: int = OVERLAP_WORDS, language: str = ENGLISH
) -> Iterator[Chunk]:
    """Yields the passages of a document, cut at headings, then at paragraphs, then at sentences, with at most `words`
    words; a longer sentence or table row is cut between words. Rows are not cut for an overlap. `language` is that of
    the stemmer (`tokenizer.language_of`)."""
    position = 0
    for path, atoms in _sections(blocks, words, overlap):
        for passage in _pack(atoms, words, overlap) if atoms else ("",):
            text = "\n".join(filter(None, (path, passage)))
            yield Chunk(position, text, " ".join(terms_of(text, language)))
            position += 1


@dataclass(frozen=True, slots=True)
class _Atom:
    """A sentence or a row. `gap` is the white space between it and the text before; a line end begins a paragraph."""

    text: str
    gap: str
    size: int
    is_row: bool = False


def _sections(blocks: Iterable[Block], words: int, overlap: int) -> Iterator[tuple[str, list[_Atom]]]:
    """Each path of headings with the atoms below it; a heading without text has none."""
    path: list[Block] = []
    atoms: list[_Atom] = []
    for block in blocks:
        if block.role is not Role.HEADING:
            atoms += _atoms(block, words, overlap)
            continue
        if atoms or (path and block.level <= path[-1].level):
            yield _path_text(path), atoms
        path = [above for above in path if above.level < block.level] + [block]
        atoms = _atoms(block, words, overlap) if len(block.text) > _HEADING_CHARACTERS else []
    if atoms or path:
        yield _path_text(path), atoms


def _path_text(path: Sequence[Block]) -> str:
    """The headings from the outermost to the innermost; outer ones are left out when the path is too long."""
    names: list[str] = []
    for block in reversed(path):
        name = " ".join(block.text.split())
        name = name if len(name) <= _HEADING_CHARACTERS else name[: _HEADING_CHARACTERS - 1] + "\u2026"
        if len(name) + sum(map(len, names)) > _PATH_CHARACTERS:
            break
        if not names or names[-1].casefold() != name.casefold():
            names.append(name)
    return " > ".join(reversed(names))


def _atoms(block: Block, words: int, overlap: int) -> list[_Atom]:
    """A paragraph's sentences, or a row as a whole; what has more than `words` words is cut into parts that leave space
    for an overlap."""
    texts = [(block.text, "\n")] if block.role is Role.ROW else _sentences(block.text)
    atoms: list[_Atom] = []
    for text, gap in texts:
        pieces = [match.span() for match in _PIECE.finditer(text)]
        is_whole = len(pieces) <= words
        most = words if is_whole else max(1, words - overlap)
        for first in range(0, len(pieces), most):
            last = min(first + most, len(pieces)) - 1
            start, end = pieces[first][0], pieces[last][1]
            if first:
                gap = " " if pieces[first - 1][1] < start else ""
            atoms.append(_Atom(text[start:end], gap, last + 1 - first, block.role is Role.ROW and is_whole))
    return atoms


def _sentences(text: str) -> Iterator[tuple[str, str]]:
    """Sentences and lines, each with the gap before it."""
    start, gap = 0, "\n"
    for match in _SENTENCE_END.finditer(text):
        ended = match.group().rstrip()
        end = match.start() + len(ended)
        if end > start:
            yield text[start:end], gap
            start, gap = match.end(), match.group()[len(ended) :][:1]
    if start < len(text):
        yield text[start:], gap


def _pack(atoms: Iterable[_Atom], words: int, overlap: int) -> Iterator[str]:
    """Fill passages up to `words` words, each beginning with the end of the one before."""
    passage: list[_Atom] = []
    size = repeated = 0
    for atom in atoms:
        while size + atom.size > words and len(passage) > repeated:
            cut = _best_cut(passage, repeated, words)
            yield _joined(passage[:cut])
            rest = passage[cut:]
            free = words - atom.size - sum(kept.size for kept in rest)
            tail = _tail(passage[:cut], min(overlap, free))
            passage, repeated = [*tail, *rest], len(tail)
            size = sum(kept.size for kept in passage)
        passage.append(atom)
        size += atom.size
    yield _joined(passage)


def _best_cut(passage: Sequence[_Atom], repeated: int, words: int) -> int:
    """The number of atoms to emit: up to the last beginning of a paragraph in the second half, else all."""
    size = sum(atom.size for atom in passage)
    for count in range(len(passage) - 1, repeated, -1):
        size -= passage[count].size
        if size < words / 2:
            break
        if passage[count].gap == "\n":
            return count
    return len(passage)


def _tail(passage: Sequence[_Atom], free: int) -> list[_Atom]:
    """The last sentences or rows that fit into `free` words; of a longer last sentence, its last words."""
    tail: list[_Atom] = []
    for atom in reversed(passage):
        if atom.size > free:
            break
        tail.insert(0, atom)
        free -= atom.size
    if tail or free <= 0 or passage[-1].is_row:
        return tail
    last = passage[-1].text
    start = [match.start() for match in _PIECE.finditer(last)][-free]
    return [_Atom(last[start:], "", free)]


def _joined(passage: Sequence[_Atom]) -> str:
    return passage[0].text + "".join(atom.gap + atom.text for atom in passage[1:])
