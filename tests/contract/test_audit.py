"""Every write over the API is in the audit log, once: which write, by whom, about what."""

from __future__ import annotations

from typing import Any, Final

import pytest

from api.routes import ROUTES
from api.routing.route import Route
from tests.contract.operations import OPERATIONS, Operation
from tests.contract.world import World

WRITES: Final[dict[tuple[str, str], Route]] = {
    (route.method, route.path): route for route in ROUTES if route.writes and route.role != "operator"
}
"""Of a key."""
TRIED: Final = [each for each in OPERATIONS if (each.method, each.path) in WRITES]


def _entries(world: World) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = world.client("GET", "/audit?limit=100").data
    return listed


def test_every_route_that_writes_is_tried() -> None:
    assert {(each.method, each.path) for each in TRIED} == set(WRITES)


@pytest.mark.parametrize("operation", TRIED, ids=str)
def test_a_write_makes_one_entry(world: World, operation: Operation) -> None:
    route = WRITES[operation.method, operation.path]
    kind = operation.uses_up or (operation.noun or "").lower()
    item = world.spare(kind) if kind else ""
    own_key = world.client("GET", "/api-keys").data[-1]
    before = {each["id"] for each in _entries(world)}
    path = operation.path.replace("{id}", item).replace("{n}", "1")
    answer = world.client(operation.method, path, world.fill(operation.body))
    assert answer.status == operation.status, answer.body
    (entry,) = (each for each in _entries(world) if each["id"] not in before)
    assert entry["action"] == route.audit_action
    assert entry["actor"] == {"type": "api_key", "id": own_key["id"], "name": own_key["prefix"]}
    assert (entry["organizationId"], entry["clientAddress"]) == (world.organization_id, "127.0.0.1")
    made = answer.data.get("call", answer.data)
    assert (entry["object"]["type"], entry["object"]["id"]) == (route.object_type, item or made["id"])
    assert entry["fields"] == (list(world.fill(operation.body)) if operation.method == "PATCH" else [])
