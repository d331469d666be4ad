"""Tables: marks and colour on a terminal, plain text and JSON elsewhere."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from trunkline.cli import main
from trunkline.cli.terminal.table import print_table

ROWS = [{"name": "a" * 90, "state": "ready"}, {"name": "b", "state": "failed", "size": "-"}]
PRINT = (
    "from trunkline.cli.terminal.table import print_table; "
    f"print_table({ {'name': 'NAME', 'size': 'SIZE', 'state': 'STATE'} }, {ROWS})"
)


def on_a_terminal(environment: dict[str, str]) -> str:
    """What a command prints on a terminal of 60 columns."""
    ours, theirs = pty.openpty()
    env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLORTERM")}
    env |= {"COLUMNS": "60", "LINES": "20", "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **environment}
    subprocess.run([sys.executable, "-c", PRINT], stdout=theirs, env=env, check=True, timeout=60)
    os.close(theirs)
    text = b""
    try:
        while chunk := os.read(ours, 65536):
            text += chunk
    except OSError:  # Linux reports the end of a terminal as EIO
        pass
    os.close(ours)
    return text.decode()


def test_a_terminal_shows_headings_marks_and_colours_and_wraps() -> None:
    shown = on_a_terminal({})
    assert "\x1b[" in shown and "✓ ready" in shown and "✗ failed" in shown and "NAME" in shown and "SIZE" not in shown
    assert "a" * 90 not in shown


def test_no_color_keeps_the_layout_without_colours() -> None:
    shown = on_a_terminal({"NO_COLOR": "1"})
    assert "✓ ready" in shown and "\x1b[3" not in shown


def test_a_dumb_terminal_gets_plain_text() -> None:
    shown = on_a_terminal({"TERM": "dumb"})
    assert "\x1b" not in shown and "✓" not in shown and f"{'a' * 90}  ready" in shown


def test_piped_tables_are_plain_and_not_wrapped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_table({"name": "NAME", "size": "SIZE", "state": "STATE"}, ROWS)
    assert capsys.readouterr().out.splitlines() == [
        f"{'NAME':90}  STATE", f"{'a' * 90}  ready", f"{'b':90}  failed"
    ]  # fmt: skip


def test_organizations_and_keys_are_listed_with_headings_and_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs
    assert main.main(["org", "create", "Bay", "--plan", "paid", "--balance", "5"]) == 0
    organization_id = capsys.readouterr().out.strip()
    assert main.main(["key", "create", "--org", "Bay", "--name", "till", "--rate", "9"]) == 0
    key = capsys.readouterr().out.strip()
    assert main.main(["org", "list"]) == 0
    headings, row = capsys.readouterr().out.splitlines()
    assert headings.split()[:4] == ["ID", "NAME", "PLAN", "BALANCE"]
    assert row.split()[:4] == [organization_id, "Bay", "paid", "5.00"]
    assert main.main(["org", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["id"], listed["balance"], listed["outboundPrefixes"]) == (organization_id, "5.00", None)
    assert main.main(["key", "list"]) == 0
    headings, row = capsys.readouterr().out.splitlines()
    assert headings.split() == ["PREFIX", "STATE", "ORGANIZATION", "NAME", "RATE", "LAST", "USED"]
    assert row.split() == [key[:11], "active", "Bay", "till", "9", "a", "minute", "never", "used"]
    assert main.main(["key", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["prefix"], listed["organization"], listed["requestsPerMinute"]) == (key[:11], "Bay", 9)
    assert key not in json.dumps(listed)
