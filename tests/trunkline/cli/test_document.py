"""`trunkline document`, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trunkline.cli.conftest import Run
from trunkline.cli import main


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Commands may block the event loop."""


@pytest.fixture
def fees(run: Run, bay: Path) -> Path:
    """A document, and the agent Reception that may have it."""
    run("agent", "create", "Reception", "--knowledge", "Fees and opening hours")
    (bay / "fees.txt").write_text("A berth costs twenty euros.")
    return bay / "fees.txt"


@pytest.mark.usefixtures("fees")
def test_a_document_waits_for_the_next_server(run: Run, bay: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["document", "add", "fees.txt", "--agent", "Reception", "--name", "Fees"]) == 0
    out, err = capsys.readouterr()
    assert err == "note: no server runs: the next one that starts reads it\n"
    shown = json.loads(run("document", "show", "Fees"))
    assert (shown["id"], shown["status"], shown["mimeType"]) == (out.strip(), "pending", "text/plain")
    assert json.loads(run("document", "list", "--agent", "Reception", "--json")) == shown
    assert [path.read_text() for path in (bay / "data/knowledge").rglob("*") if path.is_file()] == [
        "A berth costs twenty euros."
    ]
    run("document", "add", "fees.txt", "--agent", "Reception", "--type", "text/markdown", "--no-wait")
    assert [line.split()[1:] for line in run("document", "list").splitlines()[1:]] == [
        ["fees.txt", "Reception", "fees.txt", "27", "B", "pending", "0"],
        ["Fees", "Reception", "fees.txt", "27", "B", "pending", "0"],
    ]
    assert "note: its documents are deleted: fees.txt, Fees" in run("agent", "delete", "Reception", status=1)
    assert "is not deleted: there is no terminal" in run("document", "delete", "Fees", status=1)
    assert run("document", "delete", "Fees", "--yes") == "deleted Fees\n"


@pytest.mark.usefixtures("fees")
def test_errors_are_reported_in_a_line(run: Run, bay: Path) -> None:
    add = ("document", "add", "fees.txt", "--agent")
    run("agent", "create", "Night desk")
    assert "agentId: The agent has no knowledgeSearchInstructions" in run(*add, "Night desk", status=1)
    assert "Bay has no agent 'Receptoin': see `trunkline agent list`; did you mean Reception?" in run(
        *add, "Receptoin", status=1
    )
    assert "mimeType: Must be the type of a text" in run(*add, "Reception", "--type", "image/png", status=1)
    (bay / "notes").write_text("")
    assert "notes has no known suffix" in run("document", "add", "notes", "--agent", "Reception", status=1)
    assert "none.txt cannot be read: No such file" in run(
        "document", "add", "none.txt", "--agent", "Reception", status=1
    )
    with (bay / "large.txt").open("wb") as large:
        large.truncate(20 * 1024 * 1024 + 1)
    assert "large.txt is larger than 20 MiB" in run("document", "add", "large.txt", "--agent", "Reception", status=1)
    assert "Bay has no document 'Fees': see `trunkline document list`" in run("document", "show", "Fees", status=1)
    run("org", "set", "Bay", "--quota", "document_bytes=20")
    assert "Quota exceeded: document_bytes" in run(*add, "Reception", status=1)
    stored = [path for path in (bay / "data/knowledge").rglob("*") if path.is_file()]
    assert stored == [], "a rejected document leaves no file"
