"""How long a test has waited for a processor.

Tests of calls and models measure sound and time as they pass. Where a machine gives them no processor, a failure tells
of the machine, not of the server: such a test runs once more, and the end of the run tells how it failed. Where there
are processors enough, as on a developer's own machine, every failure counts.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import pytest

ENOUGH: Final = 0.02
"""Share of a test's time that all its threads, and those of the processes that it started and that still run, together
may wait and still have had a machine of their own."""
IN_REAL_TIME: Final = ("tests/calls/", "tests/models/", "tests/sipcore/", "tests/trunkline/")

_begun: tuple[float, dict[str, int]] = (0.0, {})


def begin() -> None:
    """A test begins."""
    global _begun
    _begun = time.monotonic(), _waited_ns()


def happened() -> bool:
    """Whether the test that runs had to wait for processors."""
    began_s, before = _begun
    waited_ns = sum(waited - before.get(thread, 0) for thread, waited in _waited_ns().items())
    return waited_ns / 1e9 > ENOUGH * (time.monotonic() - began_s)


def concerns(item: pytest.Item) -> bool:
    """Whether a test runs in real time."""
    return item.nodeid.startswith(IN_REAL_TIME)


def mark(item: pytest.Item) -> None:
    """A test that runs in real time may run twice."""
    if concerns(item):
        item.add_marker(pytest.mark.flaky(reruns=1, condition=happened))


def tell(terminal: pytest.TerminalReporter) -> None:
    """Why tests ran twice, at the end of the run."""
    for report in terminal.getreports("rerun"):
        terminal.section(f"ran twice: {report.nodeid}", sep="_")
        terminal.line(report.longreprtext)


def _waited_ns() -> dict[str, int]:
    """For how long each thread was ready and did not run (Linux: /proc/PID/task/TID/schedstat)."""
    waited = {}
    processes = ["self"]
    for process in processes:
        for thread in _threads(process):
            try:
                waited[thread.name] = int((thread / "schedstat").read_text().split()[1])
                processes += (thread / "children").read_text().split()
            except OSError:  # it has just ended
                continue
    return waited


def _threads(process: str) -> list[Path]:
    try:
        return list(Path("/proc", process, "task").iterdir())
    except OSError:
        return []
