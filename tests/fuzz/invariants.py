"""Invariants of every parser: it takes linear time, and its results can be stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from zlib import crc32

REPEATED_BYTES: Final = 12_000
"""Size of a repeated input."""
MAX_CPU_S: Final = 8.0
"""Largest CPU time for one input: a linear parser takes some hundredths of a second; one whose time is quadratic in the
length takes longer for a repeated input."""


class TooSlow(AssertionError):
    """A parser took more than `MAX_CPU_S` for an input."""


@contextmanager
def cpu_time_limit(what: str) -> Iterator[None]:
    """Raises `TooSlow` if the block took more than `MAX_CPU_S`."""
    began_s = time.process_time()
    yield
    took_s = time.process_time() - began_s
    if took_s > MAX_CPU_S:
        raise TooSlow(f"{what} took {took_s:.1f} s")


def repeated(data: bytes) -> bytes:
    """The input repeated up to `REPEATED_BYTES`, which multiplies the time of a parser that is not linear."""
    return data * max(1, REPEATED_BYTES // max(1, len(data)))


def check_storable(text: str) -> None:
    """Raises `UnicodeEncodeError` for a text that the database cannot store."""
    text.encode("utf-8")


def with_time_limit(check: Callable[[bytes], None], *, repeat_one_in: int = 1) -> Callable[[bytes], None]:
    """The check with `cpu_time_limit`; one of `repeat_one_in` inputs is also checked repeated, which takes far
    longer."""

    def checked(data: bytes) -> None:
        with cpu_time_limit(f"an input of {len(data)} bytes"):
            check(data)
        if crc32(data) % repeat_one_in == 0:
            with cpu_time_limit(f"a repeated input of {len(data)} bytes"):
                check(repeated(data))

    return checked
