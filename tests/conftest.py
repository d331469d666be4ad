"""Rules of every test: the product's code must not block the event loop, and log lines have no colours."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, groupby
from operator import itemgetter

import hypothesis
import pytest
import structlog
from blockbuster import BlockBuster, blockbuster_ctx

from tests import cpu_starvation

LONGEST_TESTS = ("tests/trunkline/", "tests/web/")
PRODUCT_PACKAGES = ["trunkline", "api", "calls", "sipcore", "models", "storage", "media", "config"]
UMASK = os.umask(0o022)
os.umask(UMASK)

# how long an example takes says more of the machine than of the code
hypothesis.settings.register_profile("tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("tests")
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that the collection of the tests creates stays: the search for garbage in it takes a third of its time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files of tests in real time come first, so that none of them is left alone at the end of a run in
    several processes. The others, which have a lower priority, are spread among them, and take what they leave."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST_TESTS))
    files = [list(group) for _, group in groupby(items, key=lambda item: item.path)]
    in_real_time = [each for each in files if cpu_starvation.needs_priority(each[0])]
    others = [each for each in files if not cpu_starvation.needs_priority(each[0])]
    spread = sorted(chain(_with_position(in_real_time), _with_position(others)), key=itemgetter(0))
    items[:] = [item for _, file in spread for item in file]
    for item in items:
        cpu_starvation.mark_flaky(item)


def _with_position(files: Sequence[list[pytest.Item]]) -> Iterator[tuple[float, list[pytest.Item]]]:
    """The files with their positions in the run, 0 to 1."""
    return ((number / len(files), file) for number, file in enumerate(files))


def pytest_runtest_setup(item: pytest.Item) -> None:
    cpu_starvation.set_priority(item)
    if cpu_starvation.is_real_time(item):
        cpu_starvation.start_measuring()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    cpu_starvation.report_reruns(terminalreporter)


@contextmanager
def blocking_fails() -> Iterator[BlockBuster]:
    """Makes a blocking call (files, sleep, sockets) of the product's code in an event loop raise `BlockingError`."""
    with blockbuster_ctx(PRODUCT_PACKAGES) as blockbuster:
        blockbuster.functions["os.path.abspath"].deactivate()  # reads the current folder's path, not the disk
        for method in ("execute", "fetchall"):
            # reads shared memory only
            blockbuster.functions[f"sqlite3.Cursor.{method}"].can_block_in(
                "storage/database/sqlite/change_counter.py", "number"
            )
        blockbuster.functions["sqlite3.Connection.execute"].can_block_in(
            "storage/database/sqlite/change_counter.py", "number"
        )
        yield blockbuster


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> Iterator[BlockBuster]:
    """Applies `blocking_fails` to every test."""
    with blocking_fails() as blockbuster:
        yield blockbuster


@pytest.fixture(autouse=True)
def umask_stays() -> Iterator[None]:
    """A command sets the umask of its process, here that of all tests; so does one that a fixture of a module runs."""
    os.umask(UMASK)
    yield
    os.umask(UMASK)
