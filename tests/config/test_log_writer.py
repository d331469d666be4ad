"""The log writer: threads that log never wait for the stream."""

from __future__ import annotations

import gc
import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from config import log_writer
from config.log_writer import LogWriter
from config.logging import configure


@pytest.fixture
def quiet_root() -> Iterator[None]:
    """Restores the logging configuration after the test."""
    root = logging.getLogger()
    handlers, level, configuration = root.handlers[:], root.level, structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**configuration)


def test_lines_are_written_whole_and_in_order() -> None:
    stream = io.StringIO()
    with LogWriter(stream) as writer:
        assert [writer.write(f"{number}\n") for number in (1, 22)] == [2, 3]
    assert stream.getvalue() == "1\n22\n"


def test_a_blocked_reader_blocks_no_logger_and_missing_lines_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_writer, "MAX_WAITING_CHARACTERS", 100)
    released, blocked = threading.Event(), threading.Event()

    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            blocked.set()
            released.wait(10)
            return super().write(text)

    stream = Slow()
    with capture_logs() as events, LogWriter(stream) as writer:
        writer.write("first\n")
        assert blocked.wait(10)
        for _ in range(30):
            writer.write("123456789\n")
        released.set()
    assert stream.getvalue() == "first\n" + 10 * "123456789\n"
    assert [(event["event"], event["count"]) for event in events] == [("log.lines_left_out", 20)]


class Disk(io.StringIO):
    """A stream that raises ENOSPC while `full`."""

    def __init__(self) -> None:
        super().__init__()
        self.full = True
        self.tries = 0
        self.tried = threading.Event()

    def write(self, text: str) -> int:
        self.tries += 1
        self.tried.set()
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_full_disk_stops_no_logging_and_missing_lines_are_counted(quiet_root: None) -> None:
    disk = Disk()
    with LogWriter(disk) as writer:
        configure("info", "json", writer)
        for _ in range(3):
            disk.tried.clear()
            structlog.get_logger().info("lost")
            assert disk.tried.wait(10)
        disk.full = False
        structlog.get_logger().info("kept")
    assert disk.tries <= 6, "nothing is tried again before there is something new to write"
    written, warning = (json.loads(line) for line in disk.getvalue().splitlines())
    assert (written["event"], warning["event"], warning["count"]) == ("kept", "log.lines_left_out", 3)


def test_lines_after_close_are_written_at_once() -> None:
    stream = io.StringIO()
    writer = LogWriter(stream)
    writer.close()
    writer.write("late\n")
    assert stream.getvalue() == "late\n"


def test_logging_from_the_garbage_collection_does_not_deadlock(quiet_root: None) -> None:
    class Talkative:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            structlog.get_logger().info("collected")

    stream = io.StringIO()
    threshold = gc.get_threshold()
    with LogWriter(stream) as writer:
        configure("info", "json", writer)
        gc.set_threshold(1)
        try:
            for _ in range(200):
                Talkative()
                structlog.get_logger().info("said")
        finally:
            gc.set_threshold(*threshold)
    assert stream.getvalue().count('"said"') == 200
    assert '"collected"' in stream.getvalue()


def test_closing_waits_for_the_last_lines_up_to_a_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "CLOSE_TIMEOUT_S", 0.2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    with os.fdopen(os.open(pipe, os.O_WRONLY), "w") as stream:
        writer = LogWriter(stream)
        writer.write("x" * 1_000_000 + "\n")  # a pipe holds 64 KiB
        writer.close()
        writer.close()
        assert os.read(end, 10) == b"x" * 10
        while b"\n" not in os.read(end, 65536):
            pass
        writer._thread.join(10)
    os.close(end)
