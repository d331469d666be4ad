"""Log lines go their own way: whoever logs waits for nobody."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from config import log_writer
from config.log_writer import LogWriter


def test_lines_come_out_whole_and_in_their_order() -> None:
    stream = io.StringIO()
    with LogWriter(stream) as writer:
        assert [writer.write(f"{number}\n") for number in (1, 22)] == [2, 3]
    assert stream.getvalue() == "1\n22\n"


def test_a_reader_that_stands_still_holds_up_nobody_and_learns_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_writer, "MOST_BYTES", 100)
    goes_on, stands = threading.Event(), threading.Event()

    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            stands.set()
            goes_on.wait(10)
            return super().write(text)

    stream = Slow()
    with capture_logs() as events, LogWriter(stream) as writer:
        writer.write("first\n")
        assert stands.wait(10)
        for _ in range(30):
            writer.write("123456789\n")
        goes_on.set()
    assert stream.getvalue() == "first\n" + 10 * "123456789\n"
    assert [(event["event"], event["count"]) for event in events] == [("log.lines_left_out", 20)]


def test_a_full_disk_ends_nothing_and_is_told_when_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    class Disk(io.StringIO):
        full = True

        def write(self, text: str) -> int:
            if self.full:
                tried.set()
                raise OSError(28, "No space left on device")
            return super().write(text)

    tried, stream = threading.Event(), Disk()
    with capture_logs() as events, LogWriter(stream) as writer:
        writer.write("lost\nlost\n")
        assert tried.wait(10)
        stream.full = False
        writer.write("kept\n")
    assert stream.getvalue() == "kept\n"
    assert sum(event["count"] for event in events) == 2


def test_closing_waits_for_the_last_lines_but_not_for_a_reader_that_never_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "LAST_S", 0.2)
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
