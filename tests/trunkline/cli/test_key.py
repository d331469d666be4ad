"""`trunkline key rename` and `delete`, and `trunkline org rename`, without a server."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from trunkline.cli import main


@pytest.fixture
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """The prefix of a key of the organization Bay, in the current folder's data directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs
    assert main.main(["org", "create", "Bay"]) == 0
    capsys.readouterr()
    assert main.main(["key", "create", "--org", "Bay", "--name", "till"]) == 0
    return capsys.readouterr().out[:11]


def keys(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    capsys.readouterr()
    assert main.main(["key", "list", "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_key_and_an_organization_are_renamed(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["key", "rename", key, "web shop"]) == 0
    assert capsys.readouterr().out == f"renamed {key} to web shop\n"
    assert main.main(["org", "create", "Cove"]) == 0
    assert main.main(["org", "rename", "Bay", "Harbour"]) == 0
    assert [(each["name"], each["organization"]) for each in keys(capsys)] == [("web shop", "Harbour")]
    for arguments, complaint in [
        (["org", "rename", "Harbour", "Cove"], "Organization 'Cove' already exists"),
        (
            ["org", "rename", "Harbor", "x"],
            "there is no organization 'Harbor': see `trunkline org list`; did",
        ),
        (["key", "rename", "tk_none", "x"], "there is no key 'tk_none': see `trunkline key list`"),
        (
            ["key", "delete", f"{key}0", "--yes"],
            f"there is no key '{key}0': see `trunkline key list`; did",
        ),
    ]:
        assert main.main(arguments) == 1
        assert capsys.readouterr().err.startswith(f"trunkline: {complaint}")
    assert main.main(["org", "rename", "Harbour", "Harbour"]) == 0


def test_a_key_is_deleted_after_consent_only(
    key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["key", "delete", key]) == 1
    note, error = capsys.readouterr().err.splitlines()
    assert note.startswith("note: it is in use: requests with it are rejected at once")
    assert error == f"trunkline: the key {key} of Bay is not deleted: there is no terminal to ask on; --yes deletes it"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert main.main(["key", "delete", key]) == 1
    assert capsys.readouterr().err.endswith(f"trunkline: the key {key} of Bay is not deleted\n")
    assert len(keys(capsys)) == 1
    assert main.main(["key", "revoke", key]) == 0
    assert main.main(["key", "delete", key, "--yes"]) == 0
    out, err = capsys.readouterr()
    assert out.endswith(f"deleted {key}\n") and "it was revoked already" in err
    assert keys(capsys) == []
