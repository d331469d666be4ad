"""Knowledge: whose agent a document is for, what is too large, and what a search takes and finds."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from tests.contract.cases import samples
from tests.contract.kinds import NO_ID, Foreign, Own, Sample
from tests.contract.makers import ready_document
from tests.contract.server import Server
from tests.contract.table import Field
from tests.contract.tables.knowledge import DOCUMENTS, FOUND, SEARCH
from tests.contract.world import World

QUESTION = {"agentId": Own("agent"), "query": "What does a night cost?"}
TOO_LARGE = bytes(20 * 1024 * 1024 + 1)


@pytest.mark.parametrize("agent", [NO_ID, Foreign("agent")], ids=["unknown", "another organization's"])
@pytest.mark.parametrize(("path", "body"), [("/knowledge", DOCUMENTS.least()), ("/knowledge/search", QUESTION)])
def test_an_agent_that_is_not_the_organizations_own_is_404(
    world: World, path: str, body: dict[str, Any], agent: Any
) -> None:
    answer = world.client("POST", path, world.fill(body | {"agentId": agent}))
    assert (answer.status, answer.body) == (404, {"error": "Agent not found"})


@pytest.mark.parametrize("instructions", [None, ""])
def test_a_document_needs_an_agent_that_searches(world: World, instructions: str | None) -> None:
    agent = world.client("POST", "/agents", {"name": "Anna", "knowledgeSearchInstructions": instructions}).data
    answer = world.client("POST", "/knowledge", world.fill(DOCUMENTS.least()) | {"agentId": agent["id"]})
    assert answer.fields == {"agentId"}


def test_a_file_of_more_than_20_mib_is_named(world: World) -> None:
    file = {"fileBase64": b64encode(TOO_LARGE).decode(), "fileSize": len(TOO_LARGE)}
    answer = world.client("POST", "/knowledge", world.fill(DOCUMENTS.least() | file))
    assert answer.fields == {"fileBase64", "fileSize"}


def test_a_new_document_is_pending(world: World) -> None:
    made = world.make(DOCUMENTS)
    assert (made["status"], made["chunkCount"], made["error"]) == ("pending", 0, None)


def test_a_list_is_narrowed_to_an_agent(world: World) -> None:
    agent = world.client("POST", "/agents", {"name": "Anna", "knowledgeSearchInstructions": "Always"}).data["id"]
    made = world.make(DOCUMENTS, {"agentId": agent})
    for given in (agent, agent.upper()):
        answer = world.client("GET", f"/knowledge?agentId={given}")
        assert [each["id"] for each in answer.data] == [made["id"]]
        assert answer.body["pagination"]["total"] == 1


@pytest.mark.parametrize("agent", ["", "x", NO_ID[:-1], NO_ID.replace("-", "")])
def test_a_malformed_filter_is_named(world: World, agent: str) -> None:
    assert world.client("GET", f"/knowledge?agentId={agent}").fields == {"agentId"}


@pytest.mark.parametrize(("row", "sample"), samples(SEARCH, taken=True))
def test_a_search_takes(world: World, row: Field, sample: Sample) -> None:
    answer = world.client("POST", "/knowledge/search", world.fill(QUESTION | {row.name: sample.value}))
    assert (answer.status, set(answer.body)) == (200, {"results"})


@pytest.mark.parametrize(("row", "sample"), samples(SEARCH, taken=False))
def test_a_search_refuses(world: World, row: Field, sample: Sample) -> None:
    answer = world.client("POST", "/knowledge/search", world.fill(QUESTION | {row.name: sample.value}))
    assert answer.fields == {f"{row.name}{sample.below}"}


@pytest.mark.parametrize("name", ["agentId", "query"])
def test_a_search_needs(world: World, name: str) -> None:
    question = {key: value for key, value in QUESTION.items() if key != name}
    assert world.client("POST", "/knowledge/search", world.fill(question)).fields == {name}


@pytest.mark.parametrize(("most", "found"), [(None, 5), (1, 1), (10, 10)])
def test_a_search_finds_as_many_as_it_is_asked_for(server: Server, world: World, most: int | None, found: int) -> None:
    agent = world.client("POST", "/agents", {"name": "Anna", "knowledgeSearchInstructions": "Always"}).data["id"]
    rooms = {f"Room {number}": f"A night costs {number} francs." for number in range(12)}
    ready_document(server, world.client, agent, "Prices", rooms)
    body = {"agentId": agent, "query": "What does a night cost?"} | ({} if most is None else {"topK": most})
    results = world.client("POST", "/knowledge/search", body).body["results"]
    assert len(results) == found
    assert [FOUND.misfits(each) for each in results] == [[]] * found
    assert {each["document"] for each in results} == {"Prices"}
    scores = [each["score"] for each in results]
    assert scores == sorted(scores, reverse=True)
