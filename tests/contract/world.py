"""Two organizations with one resource of each kind, and what a table's placeholders stand for in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

from tests.contract.client import Client
from tests.contract.kinds import ID_FORMS, NO_ID, Foreign, NewName, Own
from tests.contract.makers import MAKERS, furnished
from tests.contract.server import Server, fake_catalogue
from tests.contract.table import Table


@dataclass
class World:
    """The organization under test, and another one with its client. Ids are by kind of resource."""

    server: Server
    organization_id: str
    client: Client
    other_id: str
    other: Client
    own: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)
    _spares: Iterator[int] = field(default_factory=lambda: count(500))
    _totals: dict[str, int] = field(default_factory=dict)

    def fill(self, value: Any) -> Any:
        """A table's value with ids in place of `Own` and `Foreign`, and names of `NewName`."""
        match value:
            case Own(kind, form):
                return self.own[kind] if form is None else ID_FORMS[form](self.own[kind])
            case Foreign(kind):
                return self.foreign[kind]
            case NewName():
                return f"user-{uuid4()}"
            case dict():
                return {name: self.fill(each) for name, each in value.items()}
            case list() | tuple():
                return [self.fill(each) for each in value]
            case _:
                return value

    def make(self, table: Table, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Create one that must succeed."""
        answer = self.client("POST", table.path, self.fill(table.least() | (body or {})))
        assert answer.status == 201, answer.body
        self._totals.pop(table.path, None)
        made: dict[str, Any] = answer.data
        return made

    def get(self, table: Table, item: str) -> dict[str, Any]:
        """One as it is told alone, or in the list where it is told nowhere else."""
        if not table.readable:
            (found,) = (each for each in self.client("GET", table.path).data if each["id"] == item)
        else:
            answer = self.client("GET", f"{table.path}/{item}")
            assert answer.status == 200, answer.body
            found = answer.data
        told: dict[str, Any] = found
        return told

    def delete(self, table: Table, item: str) -> None:
        answer = self.client("DELETE", f"{table.path}/{item}")
        assert (answer.status, answer.body) == (200, {"data": {"id": item, "deleted": True}})
        self._totals.pop(table.path, None)

    def spare(self, kind: str) -> str:
        """The id of one more, to be deleted."""
        return MAKERS[kind](self.server, self.organization_id, self.client, next(self._spares))

    def known_total(self, table: Table) -> int:
        """How many there were when they were last counted; counted now if some were made or deleted since."""
        return self._totals[table.path] if table.path in self._totals else self.total(table)

    def total(self, table: Table) -> int:
        """How many there are now."""
        answer = self.client("GET", f"{table.path}?limit=1" if table.paged else table.path).body
        total: int = answer["pagination"]["total"] if table.paged else len(answer["data"])
        self._totals[table.path] = total
        return total


def world_of(server: Server) -> World:
    """Both organizations, furnished."""
    catalogue = fake_catalogue()
    listed = {"voice": str(catalogue.voices()[1].id), "language model": str(catalogue.language_models()[1].id)}
    organization_id, client = server.organization()
    other_id, other = server.organization()
    world = World(server, organization_id, client, other_id, other)
    world.own = listed | furnished(server, organization_id, client)
    world.foreign = {"voice": NO_ID} | furnished(server, other_id, other)  # all organizations have the same voices
    return world
