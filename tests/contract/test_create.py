"""What a POST takes and refuses, field by field, and what it answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.cases import bodies, refused, unknown
from tests.contract.kinds import Sample, short
from tests.contract.table import Field, Table
from tests.contract.tables.all import CREATED
from tests.contract.world import World


@pytest.mark.parametrize("table", CREATED, ids=str)
def test_the_least_body_gets_every_default(world: World, table: Table) -> None:
    body = world.fill(table.least())
    made = world.make(table, body)
    assert made == {**made, **world.fill(table.after_create(body))}
    assert table.response.misfits(made) == []
    assert made["id"][14] == "4"
    assert world.get(table, made["id"]) == made


@pytest.mark.parametrize(("table", "given"), bodies(CREATED))
def test_create_takes(world: World, table: Table, given: dict[str, Any]) -> None:
    body = table.least() | given
    made = world.make(table, body)
    assert made == {**made, **world.fill(table.after_create(body))}, short(made)
    assert table.response.misfits(made) == []
    assert world.get(table, made["id"]) == made
    if table.deletable:
        world.delete(table, made["id"])


@pytest.mark.parametrize(("table", "row", "sample"), refused(CREATED))
def test_create_refuses(world: World, table: Table, row: Field, sample: Sample) -> None:
    _refused(world, table, table.least() | {row.name: sample.value}, f"{row.name}{sample.below}")


@pytest.mark.parametrize(("table", "name"), unknown(CREATED))
def test_create_refuses_unknown_field(world: World, table: Table, name: str) -> None:
    _refused(world, table, table.least() | {name: "x"}, name)


@pytest.mark.parametrize(
    ("table", "name"),
    [
        pytest.param(table, row.name, id=f"{table}-{row.name}")
        for table in CREATED
        for row in table.fields
        if row.required
    ],
)
def test_create_needs(world: World, table: Table, name: str) -> None:
    _refused(world, table, {key: value for key, value in table.least().items() if key != name}, name)


def _refused(world: World, table: Table, body: dict[str, Any], field: str) -> None:
    """Told by its path, and nothing is stored."""
    before = world.known_total(table)
    answer = world.client("POST", table.path, world.fill(body))
    assert answer.fields == {field}
    assert world.total(table) == before
