"""What holds for every test: our code must not block the event loop; log lines are plain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog
from blockbuster import BlockBuster, blockbuster_ctx

from tests import cpu_starvation

OUR_PACKAGES = ["trunkline", "api", "calls", "sipcore", "models", "storage", "media", "config"]


structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        cpu_starvation.mark(item)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if cpu_starvation.concerns(item):
        cpu_starvation.begin()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    cpu_starvation.tell(terminalreporter)


@contextmanager
def blocking_fails() -> Iterator[BlockBuster]:
    """A call that blocks (files, sleep, sockets) raises `BlockingError` when our code makes it in an event loop."""
    with blockbuster_ctx(OUR_PACKAGES) as blockbuster:
        blockbuster.functions["os.path.abspath"].deactivate()  # asks for the current folder, touches no disk
        for method in ("execute", "fetchall"):
            # looks at shared memory only
            blockbuster.functions[f"sqlite3.Cursor.{method}"].can_block_in(
                "storage/database/change_counter.py", "number"
            )
        blockbuster.functions["sqlite3.Connection.execute"].can_block_in("storage/database/change_counter.py", "number")
        yield blockbuster


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> Iterator[BlockBuster]:
    """In every test."""
    with blocking_fails() as blockbuster:
        yield blockbuster
