"""Number and hash of the rows of each table, computed from one side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256

from storage.row_copy.copied_tables import CopiedTable, Row

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Contents:
    """What a table holds: the number of its rows, and the SHA-256 of all of them by their keys in byte order, in hex.
    Each row is a line with the values as Python writes them; the engine makes no difference."""

    rows: int
    sha256: str


@dataclass(frozen=True)
class Comparison:
    """A table on both sides."""

    table: str
    source: Contents
    target: Contents

    @property
    def differs(self) -> bool:
        """True if the sides hold different rows."""
        return self.source != self.target


def contents(rows: Iterable[Row]) -> Contents:
    """Returns number and hash of the rows."""
    digest, count = sha256(), 0
    for row in rows:
        digest.update(f"{row!r}\n".encode("utf-8", "surrogatepass"))
        count += 1
    return Contents(count, digest.hexdigest())


@dataclass(frozen=True)
class ReplacedNul:
    """A text with the character U+0000, which PostgreSQL does not store: the copy has U+FFFD instead. `key`: of its
    row."""

    table: str
    column: str
    key: Row


def without_nul(table: CopiedTable, rows: Iterable[Row], found: list[ReplacedNul] | None = None) -> Iterator[Row]:
    """Yields the rows with U+FFFD instead of U+0000; `found` gets what was replaced."""
    texts = [at for at, each in enumerate(table.columns) if each.kind in ("text", "json")]
    for row in rows:
        wrong = [at for at in texts if isinstance(text := row[at], str) and "\0" in text]
        if not wrong:
            yield row
            continue
        values = list(row)
        for at in wrong:
            values[at] = str(row[at]).replace("\0", REPLACEMENT)
            if found is not None:
                found.append(ReplacedNul(table.name, table.columns[at].name, table.key_of(row)))
        yield tuple(values)
