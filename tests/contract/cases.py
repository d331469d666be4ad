"""pytest parameters out of the tables."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

import pytest

from tests.contract.kinds import Sample
from tests.contract.table import Field, Table


def case(table: Table, row: Field, sample: Sample) -> Any:
    """One value of one row, named `agent-voiceSpeed-a step above`."""
    return pytest.param(table, row, sample, id=f"{table}-{row.name}-{sample.label}")


def bodies(tables: Iterable[Table]) -> list[Any]:
    """Bodies of creates that bring every row to every value that it takes."""
    return [each for table in tables for each in (_together(table) if table.dear else _one_by_one(table))]


def _one_by_one(table: Table) -> list[Any]:
    return [
        pytest.param(table, _with(row, sample), id=f"{table}-{row.name}-{sample.label}")
        for row in table.fields
        for sample in row.taken()
    ]


def _together(table: Table) -> list[Any]:
    columns = [[_with(row, sample) for sample in row.taken()] for row in table.fields]
    lines = (
        {name: value for given in line for name, value in given.items()} for line in zip_longest(*columns, fillvalue={})
    )
    return [pytest.param(table, line, id=f"{table}-values {number}") for number, line in enumerate(lines)]


def _with(row: Field, sample: Sample) -> dict[str, Any]:
    return row.beside.get(str(sample.value), {}) | {row.name: sample.value}


def taken(tables: Iterable[Table]) -> list[Any]:
    """Every value that every row of an update takes."""
    return [case(table, row, each) for table in tables for row in table.update_fields for each in row.taken()]


def refused(tables: Iterable[Table], *, update: bool = False) -> list[Any]:
    """Every value that every row refuses."""
    return [case(table, row, each) for table in tables for row in rows(table, update) for each in row.refused()]


def samples(rows: Iterable[Field], *, taken: bool) -> list[Any]:
    """Every value that rows outside of a table take, or refuse."""
    return [
        pytest.param(row, each, id=f"{row.name}-{each.label}")
        for row in rows
        for each in (row.taken() if taken else row.refused())
    ]


def rows(table: Table, update: bool) -> tuple[Field, ...]:
    """The rows of a create or of an update."""
    return table.update_fields if update else table.fields


def unknown(tables: Iterable[Table], *, update: bool = False) -> list[Any]:
    """Names that no body may have: the rows of responses alone, and misspelt rows."""
    found = []
    for table in tables:
        own = {each.name for each in rows(table, update)}
        last = table.fields[-1].name
        told = [each.name for each in table.told]
        near = [table.fields[0].name.upper(), f"{last}s", "".join(f"_{c.lower()}" if c.isupper() else c for c in last)]
        for name in dict.fromkeys([*told, *near, "organizationId", "unheardOf"]):
            if name not in own:
                found.append(pytest.param(table, name, id=f"{table}-{name}"))
    return found
