"""Every list: its page, its order, its bounds, its filters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.client import Client
from tests.contract.makers import MAKERS
from tests.contract.operations import OPERATIONS, Operation
from tests.contract.server import Server
from tests.contract.world import World


def _kind(operation: Operation) -> str:
    return str(operation.lists).lower()


def _place(world: World, operation: Operation) -> str:
    """The list's path; of what belongs to something, that of the organization's own."""
    return operation.path.replace("{id}", world.own.get(str(operation.noun).lower(), ""))


PAGED = [each for each in OPERATIONS if each.lists]
LONG = [each for each in PAGED if each.noun is None]
MADE = [each for each in LONG if _kind(each) in MAKERS]
TOO_MANY_FOR_A_PAGE = 53
BAD_PAGING = [
    *(("limit", text) for text in ("0", "101", "-1", "", "x", "1.0", "1e1", "1_0", "%2B1", "%201", "%D9%A3", "9" * 30)),
    *(("offset", text) for text in ("-1", "", "x", "0.5", "null", "9" * 30)),
]


@pytest.fixture(scope="module")
def full(server: Server) -> dict[str, Client]:
    """For each list, a client of an organization with more items than a page has."""
    clients = {}
    for operation in MADE:
        organization_id, client = server.organization()
        for number in range(TOO_MANY_FOR_A_PAGE):
            MAKERS[_kind(operation)](server, organization_id, client, number)
        clients[operation.path] = client
    return clients


def _listed(client: Client, path: str, query: str = "") -> tuple[list[dict[str, Any]], dict[str, int]]:
    answer = client("GET", f"{path}?{query}")
    assert (answer.status, set(answer.body)) == (200, {"data", "pagination"})
    return answer.data, answer.body["pagination"]


@pytest.mark.parametrize("operation", LONG, ids=str)
def test_a_page_has_50_items_from_the_first_on(world: World, full: dict[str, Client], operation: Operation) -> None:
    client = full.get(operation.path, world.client)
    items, pagination = _listed(client, operation.path)
    assert len(items) == 50
    assert pagination == {"total": pagination["total"], "limit": 50, "offset": 0}
    assert pagination["total"] >= TOO_MANY_FOR_A_PAGE


@pytest.mark.parametrize("operation", LONG, ids=str)
def test_pages_join_to_the_whole_list(world: World, full: dict[str, Client], operation: Operation) -> None:
    client = full.get(operation.path, world.client)
    whole, pagination = _listed(client, operation.path, "limit=100")
    assert len(whole) == pagination["total"]
    joined: list[dict[str, Any]] = []
    for offset in range(0, len(whole) + 20, 20):
        items, told = _listed(client, operation.path, f"limit=20&offset={offset}")
        assert told == {"total": len(whole), "limit": 20, "offset": offset}
        joined += items
    assert joined == whole
    assert len({each["id"] for each in whole}) == len(whole)


@pytest.mark.parametrize("operation", MADE, ids=str)
def test_the_newest_is_first(full: dict[str, Client], operation: Operation) -> None:
    items, _ = _listed(full[operation.path], operation.path, "limit=100")
    order = [(each["createdAt"], each["id"]) for each in items]
    by_id = sorted(order, key=lambda each: each[1])
    assert order == sorted(by_id, key=lambda each: each[0], reverse=True)


@pytest.mark.parametrize(("limit", "offset"), [(1, 0), (100, 0), (2, 1), (50, 2**63 - 1)])
@pytest.mark.parametrize("operation", PAGED, ids=str)
def test_paging_within_its_bounds(world: World, operation: Operation, limit: int, offset: int) -> None:
    items, pagination = _listed(world.client, _place(world, operation), f"limit={limit}&offset={offset}")
    assert pagination == {"total": pagination["total"], "limit": limit, "offset": offset}
    assert len(items) == max(0, min(limit, pagination["total"] - offset))


@pytest.mark.parametrize(("name", "text"), BAD_PAGING)
@pytest.mark.parametrize("operation", PAGED, ids=str)
def test_paging_beyond_its_bounds_is_named(world: World, operation: Operation, name: str, text: str) -> None:
    assert world.client("GET", f"{_place(world, operation)}?{name}={text}").fields == {name}


@pytest.mark.parametrize("name", ["limit", "offset"])
@pytest.mark.parametrize("operation", PAGED, ids=str)
def test_paging_that_is_given_twice_is_named(world: World, operation: Operation, name: str) -> None:
    assert world.client("GET", f"{_place(world, operation)}?{name}=1&{name}=1").fields == {name}


@pytest.mark.parametrize("operation", PAGED, ids=str)
def test_every_bad_parameter_is_named(world: World, operation: Operation) -> None:
    assert world.client("GET", f"{_place(world, operation)}?limit=0&offset=-1").fields == {"limit", "offset"}


@pytest.mark.parametrize("operation", MADE, ids=str)
def test_a_list_holds_only_the_organizations_own(server: Server, world: World, operation: Operation) -> None:
    _, stranger = server.organization()
    items, pagination = _listed(stranger, operation.path)
    assert (items, pagination) == ([], {"total": 0, "limit": 50, "offset": 0})
    ids = {each["id"] for each in _listed(world.client, operation.path, "limit=100")[0]}
    assert world.own[_kind(operation)] in ids
    assert world.foreign[_kind(operation)] not in ids
