"""Which streams are terminals, and what is shown on them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console


def is_terminal(stream: TextIO) -> bool:
    """True if a person reads the stream on a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb")


def shows_colour(stream: TextIO) -> bool:
    """True if the stream is a terminal, and the user has not asked for none (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def console(stream: TextIO) -> Console:
    """A console on a terminal."""
    from rich.console import Console

    return Console(
        file=stream, force_terminal=True, no_color=not shows_colour(stream), highlight=False, markup=False, emoji=False
    )


def shows_marks(stream: TextIO) -> bool:
    """True if the stream is a terminal that can show ✓ and ✗."""
    return is_terminal(stream) and "utf" in (stream.encoding or "").lower()


def discard_stdout() -> None:
    """Send what remains of the output to nowhere, after the reader has gone (`| head`): Python flushes it at the
    exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
