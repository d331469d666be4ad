"""Quotas on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trunkline import cli


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRUNKLINE_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr("config.logging.configure", lambda *_: None)  # the log of the tests stays theirs


@pytest.mark.usefixtures("here")
def test_quotas_are_set_shown_and_kept_to(capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str, status: int = 0) -> str:
        assert cli.main(arguments) == status
        told = capsys.readouterr()
        return told.out if status == 0 else told.err

    def quota(name: str) -> tuple[int, int]:
        found = {each["quota"]: each for each in map(json.loads, run("org", "quota", "Bay", "--json").splitlines())}
        return found[name]["used"], found[name]["allowed"]

    run("org", "create", "Bay")
    run("org", "set", "Bay", "--quota", "api_keys=1", "--quota", "document_bytes=2GiB")
    assert quota("document_bytes") == (0, 2 << 30)
    run("key", "create", "--org", "Bay")
    assert quota("api_keys") == (1, 1)
    assert "Quota exceeded: api_keys, 1 of 1 used" in run("key", "create", "--org", "Bay", status=1)
    prefix = run("key", "list").split()[0]
    run("key", "revoke", prefix)
    assert quota("api_keys") == (0, 1)
    run("org", "set", "Bay", "--quota", "api_keys=default")
    assert quota("api_keys") == (0, 1000)
    assert quota("document_bytes") == (0, 2 << 30)
    assert "document_bytes" in run("org", "quota", "Bay")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("wrong", ["agents", "agents=x", "agents=-1", "boats=5", "agents=1.5", "sound_bytes=5GB"])
def test_what_is_no_quota_is_told(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["org", "set", "Bay", "--quota", wrong])
    assert "takes " in capsys.readouterr().err
