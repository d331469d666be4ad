"""Progress: a bar on a terminal, lines at steps or now and then elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from trunkline.cli.terminal.progress import progress

SHOW = """
import sys
from trunkline.cli.terminal.progress import progress
with progress("bytes") as display:
    for done in range(0, 101):
        display.show("backup", done * 1000, 100_000)
print("the end")
"""


def test_a_terminal_shows_a_bar_and_the_output_stays_apart() -> None:
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "90", "LINES": "20"}
    done = subprocess.run(
        [sys.executable, "-c", SHOW], stdout=subprocess.PIPE, stderr=theirs, env=env, check=True, timeout=60
    )
    os.close(theirs)
    shown = os.read(ours, 1 << 20).decode()
    os.close(ours)
    assert done.stdout == b"the end\n"
    assert "backup" in shown and "━" in shown and "100.0/100.0 kB" in shown


def test_lines_are_printed_at_steps(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(line_interval_s=0) as display:
        for done in range(101):
            display.show("file", done * 1000, 100_000)
        display.show("stream", 250_000_000, None)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == "" and len(lines) == 12
    assert (lines[0], lines[5]) == ("file: 0 B of 100 kB, 0 %", "file: 50 kB of 100 kB, 50 %")
    assert lines[-1] == "stream: 250 MB"


def test_lines_come_now_and_then_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    with progress("items") as display:
        for done in range(100):
            now_s += 1
            display.show("checking", done, 100)
    with progress("items", line_interval_s=None) as display:
        now_s += 1000
        display.show("silent", 1, 2)
    expected = ["checking: 29 of 100, 29 %", "checking: 59 of 100, 59 %", "checking: 89 of 100, 89 %"]
    assert capsys.readouterr().err.splitlines() == expected
