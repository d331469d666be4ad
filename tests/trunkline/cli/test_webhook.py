"""`trunkline webhook`: the webhook endpoints of an organization, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trunkline.cli import main

SECRET = "hush-hush"
URL = "https://crm.example/calls"


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Commands may block the event loop."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The current folder: an organization, and files with JSON."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs
    (tmp_path / "crm.json").write_text(json.dumps({"url": URL, "secret": SECRET, "events": ["call.started"]}))
    (tmp_path / "wrong.json").write_text('{"url": "ftp://x", "events": ["call.ended"]}')
    (tmp_path / "changes.json").write_text('{"enabled": false}')
    assert main.main(["org", "create", "Bay", "--plan", "paid"]) == 0
    capsys.readouterr()


def run(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main.main(["webhook", *arguments]) == status
    out, err = capsys.readouterr()
    assert SECRET not in out + err
    return out if status == 0 else err


def test_an_endpoint_is_created_listed_changed_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    endpoint_id = run(capsys, "create", "crm.json").strip().splitlines()[-1]
    headings, row = run(capsys, "list").splitlines()[-2:]
    assert headings.split()[:4] == ["ID", "URL", "EVENTS", "ENABLED"]
    assert row.split()[:4] == [endpoint_id, URL, "call.started", "yes"]
    assert run(capsys, "edit", URL, "changes.json", "--org", "Bay") == f"changed {URL}\n"
    shown = json.loads(run(capsys, "show", endpoint_id))
    assert (shown["id"], shown["enabled"], shown["secretSet"]) == (endpoint_id, False, True)
    assert json.loads(run(capsys, "list", "--json")) == shown
    assert "is not deleted" in run(capsys, "delete", URL, status=1)
    assert run(capsys, "delete", URL, "--yes") == f"deleted {URL}\n"
    assert run(capsys, "list", "--json") == ""


def test_errors_are_those_of_the_api_in_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    told = run(capsys, "create", "wrong.json", status=1)
    assert " url: " in told
    assert " events.0: " in told
    assert f"Bay has no webhook endpoint {URL!r}: see `trunkline webhook list`" in run(capsys, "show", URL, status=1)
