"""No organization sees, names or changes what is another's, through any route that there is. Ids in paths are tried in
`test_statuses`; here are ids in bodies, in queries and in responses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from pydantic import BaseModel

from api.routes import ROUTES
from tests.contract.enemies import unsigned
from tests.contract.kinds import NO_ID
from tests.contract.operations import OPERATIONS, Operation
from tests.contract.world import World

KINDS: Final = {
    "agentId": "agent",
    "backgroundSoundId": "background sound",
    "deliveryId": "call event",
    "objectId": "agent",
    "phoneNumberId": "trunk",
    "toolIds": "tool",
}
"""What the ids in bodies and queries name that organizations have of their own."""
SHARED: Final = {"slmModelId", "voiceId"}
"""What all organizations choose from."""
NO_IDS: Final = {"sipTransferCallerId"}
"""Properties that are named like ids and hold none."""
OPERATION: Final = {(each.method, each.path): each for each in OPERATIONS}
STATISTICS: Final = "/statistics"
"""Its answer depends on the time."""
EXPORT: Final = "/calls/export"
GETS: Final = [each for each in OPERATIONS if each.method == "GET" and not each.streams]


def _names(schema: Any) -> Iterator[str]:
    """Every property that holds ids, at any depth of a JSON schema."""
    match schema:
        case dict():
            names = set(schema.get("properties", {})) - NO_IDS
            yield from (name for name in names if name.endswith(("Id", "Ids")))
            for each in schema.values():
                yield from _names(each)
        case list():
            for each in schema:
                yield from _names(each)


def places(part: str) -> list[Any]:
    """Each operation with each id that its body or its query can have."""
    found = []
    for route in ROUTES:
        model: type[BaseModel] | None = getattr(route, part)
        for name in sorted(set(_names(model.model_json_schema())) if model is not None else ()):
            operation = OPERATION[route.method, route.path]
            found.append(pytest.param(operation, name, id=f"{operation} {name}"))
    return found


def _foreign(world: World, name: str) -> Any:
    """What names another organization's thing, or nothing where all choose from the same."""
    item = NO_ID if name in SHARED else world.foreign[KINDS[name]]
    return [item] if name.endswith("s") else item


@pytest.mark.parametrize(("operation", "name"), places("body"))
def test_a_body_cannot_name_what_is_another_organizations(world: World, operation: Operation, name: str) -> None:
    path = operation.path.replace("{id}", world.own.get(str(operation.noun).lower(), ""))
    before = _lists(world)
    answer = world.client(operation.method, path, (world.fill(operation.body) or {}) | {name: _foreign(world, name)})
    assert answer.status in (400, 404), answer.body
    if answer.status == 404:
        assert answer.body["error"].endswith("not found")
    else:
        assert {field.partition(".")[0] for field in answer.fields} == {name}
    assert _lists(world) == before


@pytest.mark.parametrize(("operation", "name"), places("query"))
def test_a_query_finds_nothing_by_what_is_another_organizations(world: World, operation: Operation, name: str) -> None:
    assert world.other("GET", f"{operation.path}?{name}={_foreign(world, name)}").status == 200
    foreign, unknown = (
        world.client("GET", f"{operation.path}?{name}={each}") for each in (_foreign(world, name), NO_ID)
    )
    assert (foreign.status, foreign.content) == (unknown.status, unknown.content)
    if operation.path == STATISTICS:
        assert foreign.data["totals"]["calls"] == 0
    elif operation.path == EXPORT:
        assert foreign.content.count(b"\n") == 1, "the header alone"
    else:
        assert not foreign.body.get("data")


@pytest.mark.parametrize("operation", GETS, ids=str)
def test_no_response_holds_anything_of_another_organization(world: World, operation: Operation) -> None:
    path = operation.path.replace("{id}", world.own.get(str(operation.noun).lower(), ""))
    answer = world.client("GET", path)
    assert answer.status == 200
    for item in (*world.foreign.values(), world.other_id):
        assert item.encode() not in answer.content


def _lists(world: World) -> Any:
    """All that the organization has."""
    return unsigned(
        [world.client("GET", each.path).body for each in GETS if each.noun is None and each.path != STATISTICS]
    )
