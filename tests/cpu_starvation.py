"""CPU starvation of tests: the time that the threads of a test have waited for a processor.

Tests of calls and models measure audio and time in real time. On an overloaded machine a failure is that of the
machine, not of the product: such a test is run once more, and the end of the run reports its failure. On a machine with
enough processors every failure counts.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Final

import pytest

MAX_WAIT_SHARE: Final = 0.02
"""Share of a test's duration up to which its threads, and those of its running child processes, may wait in total
without starvation."""
REAL_TIME_TESTS: Final = ("tests/calls/", "tests/models/", "tests/sipcore/", "tests/trunkline/")

LOWER_PRIORITY: Final = 5
"""Nice value of tests that wait for nothing in real time."""

_start: tuple[float, dict[str, int]] = (0.0, {})


def start_measuring() -> None:
    """Starts to measure a test."""
    global _start
    _start = time.monotonic(), _waited_ns()


def was_starved() -> bool:
    """True if the current test has waited for processors for more than `MAX_WAIT_SHARE` of its duration."""
    began_s, before = _start
    waited_ns = sum(waited - before.get(thread, 0) for thread, waited in _waited_ns().items())
    return waited_ns / 1e9 > MAX_WAIT_SHARE * (time.monotonic() - began_s)


def is_real_time(item: pytest.Item) -> bool:
    """True if the test runs in real time."""
    return item.nodeid.startswith(REAL_TIME_TESTS)


def needs_priority(item: pytest.Item) -> bool:
    """True if the test waits for calls, models or a browser."""
    return is_real_time(item) or item.nodeid.startswith("tests/web/")


def set_priority(item: pytest.Item) -> None:
    """Give a test's thread, and the threads and processes that it starts, the priority that the test needs. Only root
    can raise a priority again: other users' tests all have the same."""
    thread, wanted = threading.get_native_id(), 0 if needs_priority(item) else LOWER_PRIORITY
    if os.geteuid() == 0 and os.getpriority(os.PRIO_PROCESS, thread) != wanted:
        os.setpriority(os.PRIO_PROCESS, thread, wanted)


def mark_flaky(item: pytest.Item) -> None:
    """Lets a test that runs in real time run once more if it fails and was starved."""
    if is_real_time(item):
        item.add_marker(pytest.mark.flaky(reruns=1, condition=was_starved))


def report_reruns(terminal: pytest.TerminalReporter) -> None:
    """Prints the failures of tests that were run once more, at the end of the run."""
    for report in terminal.getreports("rerun"):
        terminal.section(f"rerun: {report.nodeid}", sep="_")
        terminal.line(report.longreprtext)


def _waited_ns() -> dict[str, int]:
    """The time that each thread was runnable and did not run, ns (Linux: /proc/PID/task/TID/schedstat)."""
    waited = {}
    processes = ["self"]
    for process in processes:
        for thread in _threads(process):
            try:
                waited[thread.name] = int((thread / "schedstat").read_text().split()[1])
                processes += (thread / "children").read_text().split()
            except OSError:  # the thread has just ended
                continue
    return waited


def _threads(process: str) -> list[Path]:
    try:
        return list(Path("/proc", process, "task").iterdir())
    except OSError:
        return []
