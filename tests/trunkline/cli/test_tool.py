"""`trunkline tool`: the tools of an organization, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trunkline.cli import main

SECRET = "Bearer hush-hush"
TOOL = {
    "name": "free_berths",
    "type": "http",
    "description": "Number of free berths on a day",
    "config": {
        "url": "https://harbour.example/api/berths",
        "method": "GET",
        "timeout": 3000,
        "headers": [{"key": "Authorization", "value": SECRET}],
        "body": [{"name": "day", "type": "string", "description": "As 2026-11-21", "required": True}],
    },
}


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Commands may block the event loop."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The current folder: an organization, and files with JSON."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs
    (tmp_path / "tool.json").write_text(json.dumps(TOOL))
    (tmp_path / "wrong.json").write_text('{"name": "", "type": "http", "config": {"url": "ftp://x", "method": "GET"}}')
    (tmp_path / "host.json").write_text('{"config": {"url": "https://{{customer_number}}.example/"}}')
    (tmp_path / "changes.json").write_text('{"config": {"timeout": 8000}}')
    assert main.main(["org", "create", "Bay", "--plan", "paid"]) == 0
    capsys.readouterr()
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main.main(["tool", *arguments]) == status
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    return out if status == 0 else err


@pytest.mark.usefixtures("folder")
def test_a_tool_is_created_listed_changed_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    tool_id = run(capsys, "create", "tool.json").strip().splitlines()[-1]
    headings, row = run(capsys, "list").splitlines()[-2:]
    assert headings.split() == ["ID", "NAME", "METHOD", "URL", "DESCRIPTION"]
    assert row.split()[:4] == [tool_id, "free_berths", "GET", "https://harbour.example/api/berths"]
    assert run(capsys, "edit", "free_berths", "changes.json", "--org", "Bay") == "changed free_berths\n"
    shown = json.loads(run(capsys, "show", tool_id))
    assert (shown["id"], shown["config"]["timeout"]) == (tool_id, 8000)
    assert shown["config"]["headers"] == [{"key": "Authorization", "value": "***"}]
    assert json.loads(run(capsys, "list", "--json")) == shown
    assert "is not deleted" in run(capsys, "delete", "free_berths", status=1)
    assert run(capsys, "delete", "free_berths", "--yes") == "deleted free_berths\n"
    assert run(capsys, "list", "--json") == ""


@pytest.mark.usefixtures("folder")
def test_errors_are_those_of_the_api_in_a_line_each(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = run(capsys, "create", "wrong.json", status=1).splitlines()
    assert len(lines) >= 2 and all(line.startswith("trunkline: ") for line in lines)
    assert any("config.url: " in line for line in lines) and any(" name: " in line for line in lines)
    run(capsys, "create", "tool.json")
    assert "config.url: Must not take its host from" in run(capsys, "edit", "free_berths", "host.json", status=1)
    assert "Bay has no tool 'free_berth': see `trunkline tool list`; did you mean free_berths?" in run(
        capsys, "show", "free_berth", status=1
    )
    assert "none.json cannot be read: No such file" in run(capsys, "create", "none.json", status=1)
    assert "name: This organization already has a tool with this name" in run(capsys, "create", "tool.json", status=1)
    assert main.main(["org", "set", "Bay", "--quota", "tools=1"]) == 0
    (tmp_path / "tool.json").write_text(json.dumps({**TOOL, "name": "fees"}))
    assert "Quota exceeded: tools, 1 of 1 used" in run(capsys, "create", "tool.json", status=1)
    assert main.main(["org", "create", "Cove"]) == 0
    assert "name the organization with --org: there are Bay, Cove" in run(capsys, "list", status=1)
