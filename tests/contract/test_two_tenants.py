"""Two organizations that hate each other: an id of the other's is answered as one that does not exist, to the byte, by
every route that there is; and no limit, key, count or score of one moves with what the other does."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Generator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from api.app import create_app
from api.pages.dashboard import PATHS as DASHBOARD_PATHS
from api.routes import ROUTES
from config.clock import utc_now
from config.signed_links import signed_url
from storage.phone_numbers import trunk_grants
from tests.contract.client import Client
from tests.contract.enemies import LISTS, OF_AN_ID, Enemies, statements, told
from tests.contract.kinds import NO_ID
from tests.contract.makers import MAKERS, ended_call, live_call, ready_document
from tests.contract.operations import OPERATIONS, OPERATORS, Operation
from tests.contract.server import WAIT_S, Server, serve
from tests.contract.table import Table
from tests.contract.tables.agents import AGENTS
from tests.contract.tables.phone_numbers import PHONE_NUMBERS
from tests.contract.tables.tools import TOOLS
from tests.contract.test_isolation import KINDS, SHARED, places
from tests.contract.world import world_of

OF_NOBODY: Final = {
    "/healthz": "the process",
    "/readyz": "the server as a whole",
    "/metrics": "figures of the server as a whole",
    "/docs": "the description's page",
    "/docs/": "the same",
    "/docs/{file}": "its parts",
    "/assets/{file}": "the dashboard's parts",
    **dict.fromkeys(DASHBOARD_PATHS, "the dashboard's page, without data"),
    "/ca.crt": "the certificate authority of the machine",
    "/v1/openapi.json": "the description",
    "/v1/calls/{id}/listen": "a call of the key's organization: tests/trunkline/calls/test_listening.py",
    "/api/session": "the user who signs in, or has signed in",
    "/api/password": "the user whose one-time link the client has",
    "/v1/calls/{id}/socket": "the call whose ticket the client has",
}
"""Routes that need no key, and WebSockets; and what they tell of."""
IN_NO_TABLE: Final = {"Voice"}
"""Nouns of what is in memory, and the same for all organizations."""
WAYS: Final[dict[str, dict[str, Any]]] = {
    "as it should be": {},
    "with a body that is refused": {"body": {"unheardOf": 1}},
    "with a body that is no JSON": {"content": b"{"},
    "with a key for repetitions": {"headers": {"Idempotency-Key": "same-key"}},
    "with a range": {"headers": {"Range": "bytes=0-9"}},
    "with a condition": {"headers": {"If-None-Match": "*", "If-Range": '"x"'}},
    "with a page": {"query": "?limit=1&offset=1"},
    "with a wrong page": {"query": "?limit=0"},
    "with a false signature": {"query": "?expires=99999999999&signature=x"},
}
"""How a route can be asked."""


@pytest.fixture(scope="module")
def enemies(server: Server) -> Enemies:
    return Enemies(world_of(server))


def test_every_route_is_one_of_the_cases_below_or_tells_of_nobody(server: Server) -> None:
    async def served() -> set[tuple[str, str]]:
        routes = create_app(server.services).router.routes()
        return {(route.method, route.resource.canonical) for route in routes if route.resource is not None}

    cases = {(each.method, f"/v1{each.path}") for each in (*OPERATIONS, *OPERATORS)}
    cases |= {("HEAD", path) for method, path in cases if method == "GET"}
    cases |= {(each.method, each.page_path) for each in ROUTES if each.page_path is not None}  # the same operations
    others = {path for method, path in asyncio.run(served()) - cases}
    assert others <= OF_NOBODY.keys()


@pytest.mark.parametrize("operation", OF_AN_ID, ids=str)
def test_anothers_id_is_answered_as_one_that_does_not_exist(enemies: Enemies, operation: Operation) -> None:
    before = enemies.belongings()
    for way, asked in WAYS.items():
        request = dict(asked)
        if "content" not in request and operation.body is not None:
            request.setdefault("body", enemies.world.fill(operation.body))
        theirs, none = enemies.both(operation, **request)
        assert told(theirs, enemies.victims_id(operation)) == told(none), way
        assert theirs.status in (400, 404), way
        if operation.method == "GET":
            (theirs, item), (none, _) = _head(enemies, operation, request)
            assert told(theirs, item) == told(none), way
    assert enemies.belongings() == before


def _head(enemies: Enemies, operation: Operation, request: dict[str, Any]) -> Any:
    without_body = {name: value for name, value in request.items() if name not in ("body", "content")}
    theirs, none = enemies.both(operation, method="HEAD", **without_body)
    return (theirs, enemies.victims_id(operation)), (none, NO_ID)


@pytest.mark.parametrize("operation", OF_AN_ID, ids=str)
def test_anothers_id_costs_the_statements_of_one_that_does_not_exist(enemies: Enemies, operation: Operation) -> None:
    """So that the time of an answer tells nothing either."""
    body = enemies.world.fill(operation.body)
    executed = []
    for item in (enemies.victims_id(operation), NO_ID):
        with statements() as found:
            enemies.attacker(operation.method, operation.path.replace("{id}", item), body)
        executed.append([each for each in found if "api_keys" not in each or "SET revoked_at" in each])
        # without the time of a key's last use
    assert executed[0] == executed[1]
    assert executed[0] or operation.noun in IN_NO_TABLE


@pytest.mark.parametrize("part", ["body", "query"])
def test_another_organizations_id_in_a_body_or_query_is_answered_as_one_that_does_not_exist(
    enemies: Enemies, part: str
) -> None:
    world = enemies.world
    cases = [each.values for each in places(part)]
    assert cases
    for operation, name in cases:
        if name in SHARED:
            continue
        path = operation.path.replace("{id}", world.own.get(str(operation.noun).lower(), ""))
        answers = []
        for item in (world.foreign[KINDS[name]], NO_ID):
            given: Any = [item] if name.endswith("s") else item
            if part == "body":
                answer = enemies.attacker(operation.method, path, (world.fill(operation.body) or {}) | {name: given})
            else:
                answer = enemies.attacker(operation.method, f"{path}?{name}={given}")
            answers.append(told(answer, item))
        assert answers[0] == answers[1], (str(operation), name)


def test_no_list_count_page_or_search_of_one_moves_with_the_other(server: Server, enemies: Enemies) -> None:
    before = enemies.belongings()
    assert all(before.values()) and len(before) > 5
    for kind, make in MAKERS.items():
        make(server, enemies.world.organization_id, enemies.attacker, 900 + len(kind))
    own = [item for kind, item in enemies.world.own.items() if kind in MAKERS]
    for operation in LISTS:
        for item in own:
            assert item.encode() not in enemies.victim(operation.method, f"{operation.path}?limit=100").content
    assert enemies.belongings() == before


def test_a_search_finds_and_weighs_nothing_of_the_others_documents(server: Server) -> None:
    """The same words in a thousand places of another organization move no score: how rare a word is would tell."""

    def searcher() -> tuple[Client, str]:
        _, client = server.organization()
        return client, client("POST", "/agents", {"name": "Anna", "knowledgeSearchInstructions": "Always"}).data["id"]

    (one, agent), (other, others_agent) = searcher(), searcher()
    ready_document(server, one, agent, "Rooms", {"Prices": "A night costs 90 francs.", "Pets": "Dogs stay for free."})
    question = {"agentId": agent, "query": "What does a night cost?"}
    before = one("POST", "/knowledge/search", question).body
    assert before["results"]
    rooms = {f"Room {number}": f"A night costs {number} francs, a secret." for number in range(50)}
    ready_document(server, other, others_agent, "Rooms", rooms)
    assert one("POST", "/knowledge/search", question).body == before
    assert other("POST", "/knowledge/search", question).status == 404
    assert "secret" not in str(one("POST", "/knowledge/search", question | {"query": "secret"}).body)


@pytest.mark.parametrize("table", [AGENTS, TOOLS, PHONE_NUMBERS], ids=str)
def test_what_one_has_made_is_free_to_the_other(enemies: Enemies, table: Table) -> None:
    """No name and no number is taken because another organization has it."""
    body = {"number": "4711", "provider": "sip", "name": "The same"} if table is PHONE_NUMBERS else table.least()
    answers = [client("POST", table.path, enemies.world.fill(body)) for client in (enemies.victim, enemies.attacker)]
    assert [each.status for each in answers] == [201, 201]
    assert answers[0].data["id"] != answers[1].data["id"]


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if each.method == "POST"], ids=str)
def test_keys_for_repetitions_of_the_same_text_do_not_meet(enemies: Enemies, operation: Operation) -> None:
    """Not where both make one of their own, nor where one knows the path on which the other made it."""
    world, key = enemies.world, {"Idempotency-Key": f"mine-{operation.path}".replace("/", "-")}
    if operation.noun is None:
        both = (enemies.victim, enemies.attacker)
        answers = [client("POST", operation.path, {"unheardOf": 1}, headers=key) for client in both]
    else:
        used_up = operation.uses_up
        item = (
            MAKERS[used_up](world.server, world.other_id, enemies.victim, 77)
            if used_up
            else world.foreign[str(operation.noun).lower()]
        )
        path = operation.path.replace("{id}", item)
        first = enemies.victim("POST", path, operation.body, headers=key)
        assert first.status == operation.status
        answers = [first, enemies.attacker("POST", path, operation.body, headers=key)]
        assert answers[1].status == 404
    assert [each.headers["Idempotent-Replay"] for each in answers] == [None, None]


def test_the_rate_of_one_is_not_the_others(server: Server) -> None:
    (_, spent), (_, other) = (server.organization(requests_per_minute=3) for _ in range(2))
    limits = [spent("GET", "/voices").headers["X-RateLimit-Remaining"] for _ in range(3)]
    assert limits == ["2", "1", "0"]
    assert spent("GET", "/voices").status == 429
    assert other("GET", "/voices").headers["X-RateLimit-Remaining"] == "2"


def test_the_ceiling_and_the_balance_of_one_are_not_the_others(server: Server) -> None:
    def with_a_call(**plan: Any) -> tuple[Client, dict[str, Any]]:
        organization_id, client = server.organization(**plan)
        agent = MAKERS["agent"](server, organization_id, client, 0)
        trunk = MAKERS["trunk"](server, organization_id, client, 0)
        live_call(server, organization_id)
        return client, {"agentId": agent, "phoneNumberId": trunk, "to": "+41441234567"}

    full, place = with_a_call(max_calls=1)
    assert full("POST", "/calls", place).status == 429
    poor, place = with_a_call(plan="paid", balance=0.0)
    assert poor("POST", "/calls", place).status == 402
    free, place = with_a_call(max_calls=2)
    assert free("POST", "/calls", place).status == 201


@pytest.mark.parametrize(
    ("table", "quota"), [(AGENTS, "agents"), (TOOLS, "tools"), (PHONE_NUMBERS, "phone_numbers")], ids=str
)
def test_the_quota_of_one_is_not_the_others(table: Table, quota: str, tmp_path: Path) -> None:
    with serve(tmp_path, {"quotas": {quota: 1}}) as server:
        (_, full), (_, other) = server.organization(), server.organization()
        for client in (full, other):
            assert client("POST", table.path, table.least() | {"name": "The first"}).status == 201
            second = client("POST", table.path, table.least() | {"name": "The second"})
            assert (second.status, second.body["quota"]) == (403, {"name": quota, "used": 1, "allowed": 1})


@pytest.mark.parametrize("part", ["recording", "transcript"])
def test_a_signed_link_opens_what_it_was_made_for_and_nothing_else(server: Server, enemies: Enemies, part: str) -> None:
    nobody = server.client(None)
    theirs, own = enemies.world.foreign["call"], enemies.world.own["call"]
    link = urlsplit(signed_url(server.services.secrets, "http://x", f"/v1/calls/{theirs}/{part}", utc_now()))
    assert nobody("GET", f"/calls/{theirs}/{part}?{link.query}").status == 200, "it is good for whoever has it"
    other_part = {"recording": "transcript", "transcript": "recording"}[part]
    for path in (f"/calls/{own}/{part}", f"/calls/{NO_ID}/{part}", f"/calls/{theirs}/{other_part}"):
        assert nobody("GET", f"{path}?{link.query}").status == 401
    for path in ("", "/export", "/timeline", "/waveform", "/sip", "/webhook-deliveries"):
        assert nobody("GET", f"/calls/{theirs}{path}?{link.query}").status == 401
        assert enemies.attacker("GET", f"/calls/{theirs}{path}?{link.query}").status in (400, 404)
    altered = link.query[:-1] + ("0" if link.query[-1] != "0" else "1")
    for client, status in ((enemies.attacker, 404), (nobody, 401)):
        answers = [client("GET", f"/calls/{item}/{part}?{altered}") for item in (theirs, NO_ID)]
        assert told(answers[0], theirs) == told(answers[1])
        assert answers[0].status == status
    nobody.close()


def test_anothers_trunk_is_refused_like_one_that_nobody_has(tmp_path: Path) -> None:
    with serve(tmp_path, {"trunks": {"policy": "approved"}}) as server:
        (victim_id, victim), (_, attacker) = server.organization(), server.organization()
        server.write(lambda conn: trunk_grants.allow(conn, victim_id, "192.0.2.10", "*", actor="ann"))
        trunk = {"number": "+4930123", "provider": "sip", "sipMode": "ip_allowlist"}
        assert victim("POST", "/phone-numbers", trunk | {"sipIp": "192.0.2.10"}).status == 201
        answers = [attacker("POST", "/phone-numbers", trunk | {"sipIp": ip}) for ip in ("192.0.2.10", "192.0.2.99")]
        assert told(answers[0]) == told(answers[1])
        assert (answers[0].status, answers[0].body["details"][0]["field"]) == (403, "sipIp")


def test_an_export_holds_nothing_of_another_call(server: Server) -> None:
    (one_id, one), (other_id, _) = server.organization(), server.organization()
    calls = [ended_call(server, each, call_sid="same@pbx") for each in (one_id, other_id)]
    archive = zipfile.ZipFile(io.BytesIO(one("GET", f"/calls/{calls[0].id}/export").content))
    content = b"".join(archive.read(name) for name in archive.namelist())
    assert calls[0].id.encode() in content
    assert calls[1].id.encode() not in content and other_id.encode() not in content


def test_the_cases_are_all_that_there_are() -> None:
    """What is tried above comes from the published operations: a new one with an id is tried without being named. What
    operators alone may do is of no organization."""
    assert {(each.method, each.path) for each in OF_AN_ID} == {
        (route.method, route.path) for route in ROUTES if "{id}" in route.path and route.role != "operator"
    }
    assert {(each.method, each.path) for each in OPERATORS} == {
        (route.method, route.path) for route in ROUTES if route.role == "operator"
    }


def test_no_event_of_one_is_told_to_the_other(server: Server) -> None:
    """Whether it happens, is asked for again, or is about what has the same name."""

    def follow(client: Client, last_event_id: str = "") -> Generator[tuple[str, bytes], None, None]:
        """The id and the bytes of each block of a stream of events."""
        connection = HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
        headers = {"Authorization": f"Bearer {client.key}", "Last-Event-ID": last_event_id}
        connection.request("GET", "/v1/events", headers=headers)
        response = connection.getresponse()
        block, event_id = b"", ""
        try:
            while line := response.readline():
                block += line
                if line.startswith(b"id:"):
                    event_id = line[3:].strip().decode()
                if line == b"\n":
                    yield event_id, block
                    block = b""
        finally:
            connection.close()

    (_, one), (_, other) = (server.organization() for _ in range(2))
    ours, theirs = follow(one), follow(other)
    begins = [next(ours)[0], next(theirs)[0]]
    secret = one("POST", "/phone-numbers", {"number": "4711", "provider": "sip", "name": "A secret"}).data
    assert secret["id"].encode() in next(ours)[1]
    own = other("POST", "/phone-numbers", {"number": "4711", "provider": "sip"}).data
    first = next(theirs)[1]
    assert own["id"].encode() in first
    assert secret["id"].encode() not in first and b"secret" not in first
    resumed = follow(other, begins[0])
    assert b"event: resync" in next(resumed)[1]
    one("PATCH", f"/phone-numbers/{secret['id']}", {"name": "Still a secret"})
    other("DELETE", f"/phone-numbers/{own['id']}")
    for stream in (theirs, resumed):
        told = next(stream)[1]
        assert own["id"].encode() in told and b"secret" not in told
    for stream in (ours, theirs, resumed):
        stream.close()
