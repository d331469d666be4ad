"""What a PATCH takes and refuses, field by field; what it does not name stays."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.cases import refused, taken, unknown
from tests.contract.kinds import Sample
from tests.contract.table import Field, Rows, Table
from tests.contract.tables.all import UPDATED
from tests.contract.world import World

Subjects = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def subjects(world: World) -> Subjects:
    """One of each resource, as it was last seen: all tests change it in turn."""
    return {table.path: world.make(table) for table in UPDATED}


@pytest.mark.parametrize(("table", "row", "sample"), taken(UPDATED))
def test_update_takes(world: World, subjects: Subjects, table: Table, row: Field, sample: Sample) -> None:
    before = subjects[table.path]
    item = before["id"]
    body = row.beside.get(str(sample.value), {}) | {row.name: sample.value}
    answer = world.client("PATCH", f"{table.path}/{item}", world.fill(body))
    assert answer.status == 200, answer.body
    after = answer.data
    assert set(after) == set(before)
    for name in set(before) - table.moving - set(body):
        assert after[name] == before[name], name
    assert after["updatedAt"] >= before["updatedAt"]
    for each in table.update_fields:
        if each.name in body and not each.secret:
            assert after[each.name] == world.fill(_expected(each, before[each.name], body[each.name])), each.name
    subjects[table.path] = world.get(table, item)
    assert subjects[table.path] == after


def _expected(row: Field, before: Any, given: Any) -> Any:
    if given is None:
        return None
    shown = row.kind.shown(given)
    return {**before, **shown} if isinstance(row.kind, Rows) else shown


@pytest.mark.parametrize(("table", "row", "sample"), refused(UPDATED, update=True))
def test_update_refuses(world: World, subjects: Subjects, table: Table, row: Field, sample: Sample) -> None:
    _refused(world, table, subjects[table.path], {row.name: sample.value}, f"{row.name}{sample.below}")


@pytest.mark.parametrize(("table", "name"), unknown(UPDATED, update=True))
def test_update_refuses_unknown_field(world: World, subjects: Subjects, table: Table, name: str) -> None:
    _refused(world, table, subjects[table.path], {name: "x"}, name)


@pytest.mark.parametrize("table", UPDATED, ids=str)
def test_an_update_of_nothing_changes_nothing(world: World, table: Table) -> None:
    made = world.make(table)
    answer = world.client("PATCH", f"{table.path}/{made['id']}", {})
    assert answer.status == 200
    assert answer.data == {**made, "updatedAt": answer.data["updatedAt"]}


@pytest.mark.parametrize("table", UPDATED, ids=str)
def test_one_bad_field_keeps_the_good_ones_from_being_stored(world: World, table: Table) -> None:
    made = world.make(table)
    good = "name" if any(each.name == "name" for each in table.fields) else "description"
    _refused(world, table, made, {good: "Changed", table.fields[1].name: []}, table.fields[1].name)


def _refused(world: World, table: Table, before: dict[str, Any], body: dict[str, Any], field: str) -> None:
    """Told by its path, and nothing is stored."""
    answer = world.client("PATCH", f"{table.path}/{before['id']}", world.fill(body))
    assert answer.fields == {field}
    assert world.get(table, before["id"]) == before
