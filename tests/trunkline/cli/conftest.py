"""Commands that run in the test's process, on a data directory without a server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import database_template
from trunkline.cli import main

Run = Callable[..., str]


@pytest.fixture
def bay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The current folder, whose data directory has one organization, Bay."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs
    (tmp_path / "data").mkdir()
    (tmp_path / "data/trunkline.db").write_bytes(database_template.image())
    assert main.main(["org", "create", "Bay", "--plan", "paid"]) == 0
    assert main.main(["tool", "list"]) == 0  # creates the secret key, which is logged
    capsys.readouterr()
    return tmp_path


@pytest.fixture
def run(bay: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command, and asserts its exit status; returns its output, or what it wrote on stderr if it failed."""

    def run(*arguments: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main.main(list(arguments)) == status, capsys.readouterr()
        out, err = capsys.readouterr()
        return out if status == 0 else err

    return run
