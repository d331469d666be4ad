"""Errors of commands without a server: one line each."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.trunkline.server_process import command, environment

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_errors_of_commands_are_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cases: list[tuple[str, list[str], int, str]] = [
        ("file", ["org", "list"], 1, "trunkline: data_dir file cannot be used: File exists"),
        ("new", ["key", "list", "--org", "Nobody"], 1, "trunkline: there is no organization 'Nobody': see `trunkline"),
        ("other", ["org", "create", " "], 2, "trunkline org create: error: argument name: takes a name"),
        ("other", ["org", "create", "a\U000e0041"], 2, "trunkline org create: error: argument name: must have no line"),
        ("other", ["org", "create", "x", "--balance", "nan"], 2, "trunkline org create: error: argument --balance"),
        ("other", ["org", "create", "x", "--max-calls", "0"], 2, "trunkline org create: error: argument --max-calls"),
        ("other", ["org", "set", "x", "--prefixes", "+49,abc"], 2, "trunkline org set: error: argument --prefixes"),
        ("other", ["org", "set", "x", "--no-cap", "--calls-per-minute", "9"], 2, "trunkline org set: error: argument"),
        ("other", ["audit", "--since", "yesterday"], 2, "trunkline audit: error: argument --since: takes an ISO 8601"),
        ("new", ["audit", "--org", "Nobody"], 1, "trunkline: there is no organization 'Nobody': see `trunkline"),
    ]  # fmt: skip
    results = await asyncio.gather(
        *(
            command(*arguments, folder=tmp_path, environment=environment(Path(data_dir), {}))
            for data_dir, arguments, _, _ in cases
        )
    )
    for (_, _, status, complaint), (code, out, err) in zip(cases, results, strict=True):
        assert (code, out) == (status, ""), err
        assert err.splitlines()[-1].startswith(complaint), err
        assert status == 2 or err.count("\n") == 1, err
    assert not (tmp_path / "other").exists()
