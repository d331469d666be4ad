"""What holds for every parser: it takes linear time, and what it returns can be stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from zlib import crc32

STRETCHED: Final = 12_000
"""Characters or bytes of an input that is repeated."""
LONGEST_S: Final = 8.0
"""Processor time of one input: a linear parser needs some hundredths of a second; one whose time grows with the square
of the length does not come to an end of a stretched input."""


class TooSlow(AssertionError):
    """An input took longer than a linear parser takes."""


@contextmanager
def within_bounds(what: str) -> Iterator[None]:
    """Raises `TooSlow` when the block took more than `LONGEST_S` of processor time."""
    began_s = time.process_time()
    yield
    took_s = time.process_time() - began_s
    if took_s > LONGEST_S:
        raise TooSlow(f"{what} took {took_s:.1f} s")


def stretched(text: bytes) -> bytes:
    """The text again and again: what a parser does badly with once takes it for ever then."""
    return text * max(1, STRETCHED // max(1, len(text)))


def storable(text: str) -> None:
    """Raises `UnicodeEncodeError` for what no database takes."""
    text.encode("utf-8")


def bounded(check: Callable[[bytes], None], *, stretch_one_in: int = 1) -> Callable[[bytes], None]:
    """The same check in bounded time; of every so many inputs one is also repeated, which takes far longer."""

    def checked(data: bytes) -> None:
        with within_bounds(f"an input of {len(data)} bytes"):
            check(data)
        if crc32(data) % stretch_one_in == 0:
            with within_bounds(f"an input of {len(data)} bytes that is repeated"):
                check(stretched(data))

    return checked
