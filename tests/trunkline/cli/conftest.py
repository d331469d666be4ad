"""Commands that run in the test's process, on a data directory without a server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests import database_template
from trunkline.cli import main

Run = Callable[..., str]


@pytest.fixture
def bay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """The current folder, whose data directory has one organization, Bay."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs
    (tmp_path / "data").mkdir()
    if (url := database_template.url_of_copy(tmp_path / "data")) is not None:
        monkeypatch.setenv("TRUNKLINE_DATABASE__URL", url)
    assert main.main(["org", "create", "Bay", "--plan", "paid"]) == 0
    assert main.main(["tool", "list"]) == 0  # creates the secret key, which is logged
    capsys.readouterr()
    return tmp_path


@pytest.fixture
def engine(bay: Path) -> Iterator[sa.Engine]:
    """The database of the commands, for the test itself."""
    made = sa.create_engine(os.environ.get("TRUNKLINE_DATABASE__URL", f"sqlite:///{bay / 'data/trunkline.db'}"))
    yield made
    made.dispose()


@pytest.fixture
def run(bay: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command, and asserts its exit status; returns its output, or what it wrote on stderr if it failed."""

    def run(*arguments: str, status: int = 0) -> str:
        capsys.readouterr()
        assert main.main(list(arguments)) == status, capsys.readouterr()
        out, err = capsys.readouterr()
        return out if status == 0 else err

    return run
