"""pytest parameters out of the tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.contract.kinds import Foreign, Own, Sample
from tests.contract.table import Field, Table


def case(table: Table, row: Field, sample: Sample) -> Any:
    """One value of one row, named `agent-voiceSpeed-a step above`."""
    return pytest.param(table, row, sample, id=f"{table}-{row.name}-{sample.label}")


def taken(tables: Iterable[Table], *, update: bool = False) -> list[Any]:
    """Every value that every row takes."""
    return [
        case(table, row, each)
        for table in tables
        for row in rows(table, update)
        for each in row.taken()
        if _can_be_made(each.value)
    ]


def refused(tables: Iterable[Table], *, update: bool = False) -> list[Any]:
    """Every value that every row refuses."""
    return [
        case(table, row, each)
        for table in tables
        for row in rows(table, update)
        for each in row.refused()
        if _can_be_made(each.value)
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


def _can_be_made(value: Any) -> bool:
    """There are no background sounds yet that an agent could name."""
    match value:
        case Own(kind) | Foreign(kind):
            return kind != "background sound"
        case list():
            return all(map(_can_be_made, value))
        case _:
            return True
