"""`trunkline database copy`: its lines, its exit status, and passwords that it does not show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from storage.row_copy import row_copy
from tests.peers import postgresql
from tests.trunkline.cli.conftest import Run
from trunkline.cli import main
from trunkline.wiring import command_services  # noqa: F401 - the fixture's commands import it on the event loop


def _with_password(url: str) -> str:
    return url.replace("trunkline@", "trunkline:se-cret@")


def test_a_copy_prints_the_rows_and_the_hash_of_each_table_and_no_password(
    bay: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = _with_password(postgresql.server().empty_database())
    assert main.main(["database", "copy", "--to", url]) == 0
    out, err = capsys.readouterr()
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert lines["organizations"][::2] == ["1", "equal"]
    assert len(lines["organizations"][1]) == 64
    assert "copied 3 rows and compared all" in err
    monkeypatch.setenv("TRUNKLINE_DATABASE__URL", url)
    assert main.main(["database", "copy", "--to", f"sqlite+aiosqlite:///{bay}/back.db", "--json"]) == 0
    back, more = capsys.readouterr()
    rows = {row["table"]: row for row in map(json.loads, back.splitlines())}
    assert rows["organizations"] == {
        "table": "organizations", "rows": 1, "sha256": lines["organizations"][1], "state": "equal",
    }  # fmt: skip
    assert "se-cret" not in out + err + back + more


def test_a_difference_is_exit_status_1(run: Run, bay: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complete = row_copy.compare

    def change_first(*arguments: object) -> object:
        engine = sa.create_engine(f"sqlite:///{bay}/copy.db", poolclass=sa.NullPool)
        with engine.begin() as conn:
            conn.exec_driver_sql("UPDATE organizations SET name = 'Other'")
        return complete(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(row_copy, "compare", change_first)
    err = run("database", "copy", "--to", f"sqlite+aiosqlite:///{bay}/copy.db", status=1)
    assert "trunkline: " in err
    assert "copy.db differs in organizations, and stays unusable" in err


@pytest.mark.parametrize("target", ["mysql://user:se-cret@host/x", "postgresql+psycopg://user:se-cret@127.0.0.1:1/x"])
def test_a_target_that_cannot_be_used_is_one_line_without_the_password(run: Run, target: str) -> None:
    err = run("database", "copy", "--to", target, status=1)
    assert err.startswith("trunkline: ")
    assert len(err.splitlines()) == 1
    assert "se-cret" not in err
