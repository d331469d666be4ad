"""`trunkline user`, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trunkline.cli import main


@pytest.fixture(autouse=True)
def organization(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The organization Bay, in the current folder's data directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs
    assert main.main(["org", "create", "Bay"]) == 0
    capsys.readouterr()


def users(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str, str, str | None]]:
    capsys.readouterr()
    assert main.main(["user", "list", "--json"]) == 0
    found = map(json.loads, capsys.readouterr().out.splitlines())
    return [(each["name"], each["role"], each["state"], each["organization"]) for each in found]


def test_users_are_created_reset_disabled_and_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["user", "create", "Anna", "--org", "Bay", "--role", "editor"]) == 0
    first = capsys.readouterr().out
    assert first.startswith("http://localhost:8080/welcome?token=")
    assert main.main(["user", "create", "admin", "--operator"]) == 0
    assert users(capsys) == [("admin", "operator", "invited", None), ("anna", "editor", "invited", "Bay")]
    assert main.main(["user", "disable", "anna"]) == 0
    assert users(capsys)[1][2] == "disabled"
    assert main.main(["user", "reset", "anna"]) == 0
    assert capsys.readouterr().out not in ("", first)
    assert users(capsys)[1][2] == "invited"
    assert main.main(["user", "delete", "anna"]) == 1
    assert main.main(["user", "delete", "anna", "--yes"]) == 0
    assert users(capsys) == [("admin", "operator", "invited", None)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["anna", "--org", "Bay"],
        ["anna", "--role", "owner"],
        ["anna"],
        ["anna", "--operator", "--org", "Bay"],
        ["anna", "--operator", "--role", "owner"],
    ],
)
def test_a_user_is_an_operator_or_has_an_organization_and_a_role(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(["user", "create", *arguments])


def test_a_user_without_a_good_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["user", "create", "anna", "--operator"]) == 0
    assert main.main(["user", "create", "ANNA", "--operator"]) == 1
    assert main.main(["user", "create", "a b", "--operator"]) == 1
    assert main.main(["user", "reset", "ana"]) == 1
    assert "there is no user 'ana': see `trunkline user list`" in capsys.readouterr().err
