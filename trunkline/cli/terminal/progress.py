"""Progress on stderr: a bar on a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, Protocol

from trunkline.cli.terminal.streams import console, is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_INTERVAL_S: Final = 30.0
"""Time between two lines, unless a command prints each step."""
STEP_PERCENT: Final = 10
"""Progress between two lines."""
STEP_BYTES: Final = 10**8
"""The same where the total is unknown."""
Unit = Literal["bytes", "items"]


class ProgressDisplay(Protocol):
    """What is shown while a command works."""

    def show(self, text: str, done: int, total: int | None) -> None:
        """Show that `done` of `total` (None if unknown) are done. `text` says of what."""


@contextmanager
def progress(unit: Unit = "bytes", *, line_interval_s: float | None = LINE_INTERVAL_S) -> Iterator[ProgressDisplay]:
    """A display for the block; the bar is removed at its end. `line_interval_s`: the shortest time between two lines,
    where stderr is no terminal; None: no lines, for a command whose results show its progress."""
    if not is_terminal(sys.stderr):
        yield _Nothing() if line_interval_s is None else _Lines(unit, line_interval_s)
        return
    with _bar(unit) as bar:
        yield _Bar(bar)


def format_size(count: int) -> str:
    """A number of bytes in GB, MB, kB or B."""
    for unit, step in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= step:
            return f"{count / step:.3g} {unit}"
    return f"{count} B"


class _Nothing:
    def show(self, text: str, done: int, total: int | None) -> None:
        pass


class _Lines:
    def __init__(self, unit: Unit, interval_s: float) -> None:
        self._unit = unit
        self._interval_s = interval_s
        self._shown: tuple[str, int] | None = None
        """The text and the step that were printed last."""
        self._shown_s = time.monotonic() if interval_s else float("-inf")

    def show(self, text: str, done: int, total: int | None) -> None:
        percent = done * 100 // total if total else 0
        step = percent // STEP_PERCENT if total else done // STEP_BYTES
        now_s = time.monotonic()
        if (text, step) == self._shown or now_s - self._shown_s < self._interval_s:
            return
        self._shown, self._shown_s = (text, step), now_s
        number = format_size if self._unit == "bytes" else str
        of = f" of {number(total)}, {percent} %" if total else ""
        print(f"{text}: {number(done)}{of}", file=sys.stderr, flush=True)


class _Bar:
    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None)
        self._text = ""

    def show(self, text: str, done: int, total: int | None) -> None:
        if text != self._text:  # with a speed of its own
            self._text = text
            self._bar.reset(self._task, description=text, completed=done, total=total)
        self._bar.update(self._task, completed=done, total=total)


def _bar(unit: Unit) -> Progress:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    numbers: list[ProgressColumn] = (
        [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()] if unit == "bytes" else [MofNCompleteColumn()]
    )
    return Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), *numbers,
        console=console(sys.stderr), transient=True, redirect_stdout=sys.stdout.isatty(), redirect_stderr=True,
    )  # fmt: skip
