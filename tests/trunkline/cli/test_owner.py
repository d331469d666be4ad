"""The organization that a command works for without `--org`."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from storage import tables
from storage.phone_numbers.trunk_grants import DEMO_ORGANIZATION
from tests.trunkline.cli.conftest import Run


@pytest.fixture(autouse=True)
def blocking_the_loop_fails() -> None:
    """Commands may block the event loop."""


def test_the_demos_organization_counts_only_where_there_is_no_other(engine: sa.Engine, run: Run) -> None:
    """After `trunkline demo` a new user's own organization is the only one."""
    run("agent", "create", "Reception")
    with engine.begin() as conn:
        bay_id = conn.execute(sa.select(tables.organizations.c.id)).scalar_one()
        conn.execute(sa.insert(tables.facts).values(name=DEMO_ORGANIZATION, value=bay_id))
    assert "Reception" in run("agent", "list"), "there is no other"
    run("org", "create", "Cove")
    run("agent", "create", "Harbour")
    names = run("agent", "list")
    assert "Harbour" in names and "Reception" not in names
    assert "Reception" in run("agent", "list", "--org", "Bay")
    run("org", "create", "Dock")
    assert "name the organization with --org: there are Cove, Dock" in run("agent", "list", status=1)
