"""`trunkline org delete`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from config.clock import utc_now
from storage import tables
from storage.calls import calls
from tests.trunkline.cli.conftest import Run
from trunkline.cli import main

OWNED = [table for table in tables.metadata.tables.values() if "organization_id" in table.c]


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Commands may block the event loop."""


def rows_of(engine: sa.Engine, organization_id: str) -> dict[str, int]:
    """The number of an organization's rows, of each table that has some."""
    with engine.connect() as conn:
        counts = {
            table.name: conn.execute(
                sa.select(sa.func.count()).select_from(table).where(table.c.organization_id == organization_id)
            ).scalar_one()
            for table in OWNED
        }
    return {name: count for name, count in counts.items() if count}


def store_call(engine: sa.Engine, organization_id: str) -> str:
    """Store a queued call; returns its id."""
    with engine.begin() as conn:
        return calls.create_outbound(
            conn, organization_id=organization_id, agent_id="agent", phone_number_id="number", provider="sip",
            customer_number="100", context_variables={}, metadata={},
        ).id  # fmt: skip


def end_call(engine: sa.Engine, call_id: str) -> None:
    """Store the end of a recorded call."""
    ended = {"status": "completed", "recorded": True, "ended_at": utc_now()}
    with engine.begin() as conn:
        conn.execute(sa.update(tables.calls).where(tables.calls.c.id == call_id).values(**ended))


def test_an_organization_is_deleted_with_everything_that_it_owns(
    run: Run, bay: Path, engine: sa.Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    run("org", "create", "Cove", "--plan", "paid", "--balance", "5")
    ids = {each["name"]: each["id"] for each in map(json.loads, run("org", "list", "--json").splitlines())}
    run("trunk", "allow", "Cove", "192.0.2.10")
    for name in ids:
        run("key", "create", "--org", name)
        run("agent", "create", "Reception", "--knowledge", "Fees", "--org", name)
    run("number", "create", "700", "--ip", "192.0.2.10", "--agent", "Reception", "--org", "Cove")
    (bay / "fees.txt").write_text("A berth costs twenty euros.")
    run("document", "add", "fees.txt", "--agent", "Reception", "--org", "Cove")
    ended = store_call(engine, ids["Cove"])
    end_call(engine, ended)
    kept, live = rows_of(engine, ids["Bay"]), store_call(engine, ids["Cove"])
    assert "Cove has a call that has not ended" in run("org", "delete", "Cove", "--yes", status=1)
    assert rows_of(engine, ids["Cove"])["calls"] == 2
    end_call(engine, live)
    refused = run("org", "delete", "Cove", status=1)
    assert "with it go 1 agents, 1 documents, 1 phone numbers, 1 api keys, 2 calls, its audit log" in refused
    assert "the organization Cove is not deleted: there is no terminal to ask on" in refused
    assert run("org", "delete", "Cove", "--yes") == "deleted Cove\n"
    assert (rows_of(engine, ids["Cove"]), rows_of(engine, ids["Bay"])) == ({}, kept)
    with engine.connect() as conn:
        recordings = set(conn.execute(sa.text("SELECT call_id FROM recording_removals")).scalars())
        files = conn.execute(sa.text("SELECT count(*) FROM knowledge_removals")).scalar_one()
    assert (recordings, files) == ({ended, live}, 1)
    assert main.main(["org", "delete", "Cov", "--yes"]) == 1
    assert "there is no organization 'Cov'" in capsys.readouterr().err
