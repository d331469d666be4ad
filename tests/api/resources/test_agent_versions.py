"""Versions of agents: what makes one, what they show, and restoring them."""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

import pytest
import sqlalchemy as sa

from storage import tables
from storage.agents import agents, versions
from storage.tables.agent_fields import AgentFields
from tests.api.conftest import Api

CONFIG = {"url": "https://example.com/", "method": "GET"}


async def _versions(api: Api, agent_id: str, query: str = "") -> list[dict[str, Any]]:
    status, answer = await api("GET", f"/agents/{agent_id}/versions{query}")
    assert status == 200
    listed: list[dict[str, Any]] = answer["data"]
    return listed


async def _changed(api: Api, agent_id: str, fields: dict[str, Any]) -> dict[str, Any]:
    status, answer = await api("PATCH", f"/agents/{agent_id}", fields)
    assert status == 200, answer
    agent: dict[str, Any] = answer["data"]
    return agent


async def test_a_change_is_a_version_with_its_author_and_fields(api: Api) -> None:
    agent = await api.create("/agents", {"name": "Anna"})
    assert agent["version"] == 1
    assert (await _changed(api, agent["id"], {"name": "Bea", "voiceSpeed": 1.2, "isActive": True}))["version"] == 2
    second, first = await _versions(api, agent["id"])
    assert (first["version"], first["changes"]) == (1, [])
    assert (second["version"], sorted(second["changes"])) == (2, ["name", "voiceSpeed"])
    assert first["author"] == second["author"] != ""
    assert await _versions(api, agent["id"], "?limit=1&offset=1") == [first]
    _, answer = await api("GET", f"/agents/{agent['id']}/versions/1")
    assert {**answer["data"], "agent": None} == {**first, "agent": None}
    named_otherwise = ("id", "createdAt", "updatedAt", "version", "warnings")
    assert answer["data"]["agent"] == {name: each for name, each in agent.items() if name not in named_otherwise}


async def test_a_save_that_changes_nothing_is_no_version(api: Api) -> None:
    fields = {"name": "Anna", "postCallWebhookSecret": "hush", "voiceSpeed": 1.2}
    agent = await api.create("/agents", fields)
    for body in (fields, {}, {"voiceSpeed": 1.2, "toolIds": None}):
        assert (await _changed(api, agent["id"], body))["version"] == 1
    assert (await _changed(api, agent["id"], {"postCallWebhookSecret": "other"}))["version"] == 2
    assert [each["changes"] for each in await _versions(api, agent["id"])] == [["postCallWebhookSecret"], []]


async def test_changes_at_the_same_time_are_a_version_each(api: Api) -> None:
    agent = await api.create("/agents", {"name": "Anna"})
    await asyncio.gather(*(_changed(api, agent["id"], {"voiceSpeed": 0.7 + number / 10}) for number in range(5)))
    assert [each["version"] for each in await _versions(api, agent["id"])] == [6, 5, 4, 3, 2, 1]


async def test_no_version_shows_a_secret_and_none_restores_one(api: Api) -> None:
    agent = await api.create("/agents", {"name": "Anna", "postCallWebhookSecret": "first hush"})
    await _changed(api, agent["id"], {"postCallWebhookSecret": "second hush"})
    shown = [await _versions(api, agent["id"]), await api("GET", f"/agents/{agent['id']}/versions/1")]
    rows = await api.services.database.read(
        lambda conn: conn.execute(sa.select(tables.agent_versions.c.fields)).scalars().all()
    )
    fields = [json.loads(zlib.decompress(row)) for row in rows]
    tokens = [each["post_call_webhook_secret_encrypted"] for each in fields]
    assert "hush" not in json.dumps([shown, fields])
    assert not any(token in json.dumps(shown) for token in tokens)
    assert sorted(map(api.services.secrets.decrypt, tokens)) == ["first hush", "second hush"]
    await api("POST", f"/agents/{agent['id']}/versions/1/restore")
    stored = await api.services.database.read(lambda conn: agents.get(conn, api.organization_id, agent["id"]))
    assert stored is not None and stored.post_call_webhook_secret_encrypted is not None
    assert api.services.secrets.decrypt(stored.post_call_webhook_secret_encrypted) == "second hush"


async def test_a_restored_version_has_all_its_fields_again(api: Api) -> None:
    target = {"name": "Sales", "description": "", "number": "200", "mode": "cold", "phoneNumberId": None}
    extraction = {"name": "ok", "description": "Was it fine?", "type": "boolean"}
    tool = await api.create("/tools", {"name": "Look up", "type": "http", "config": CONFIG})
    before = await api.create(
        "/agents",
        {
            "name": "Anna",
            "toolIds": [tool["id"]],
            "transferTargets": [target],
            "postCallExtractionSchema": [extraction],
            "turnEndpointDelay": None,
        },
    )
    changes: dict[str, Any] = {"name": "Bea", "systemPrompt": "Be brief.", "toolIds": None, "transferTargets": []}
    await _changed(api, before["id"], {**changes, "postCallExtractionSchema": [], "turnEndpointDelay": 200})
    status, answer = await api("POST", f"/agents/{before['id']}/versions/1/restore")
    assert status == 200, answer
    restored = {**answer["data"], "updatedAt": before["updatedAt"]}
    assert restored == {**before, "version": 3}
    assert (await api("GET", f"/agents/{before['id']}"))[1] == answer
    newest = (await _versions(api, before["id"]))[0]
    assert sorted(newest["changes"]) == sorted([*changes, "postCallExtractionSchema", "turnEndpointDelay"])
    _, answer = await api("POST", f"/agents/{before['id']}/versions/3/restore")
    assert answer["data"]["version"] == 3


async def test_what_does_not_exist_any_more_is_named_and_nothing_is_restored(api: Api) -> None:
    tool = await api.create("/tools", {"name": "Look up", "type": "http", "config": CONFIG})
    agent = await api.create("/agents", {"name": "Anna", "toolIds": [tool["id"]]})
    await _changed(api, agent["id"], {"name": "Bea"})
    assert (await api("DELETE", f"/tools/{tool['id']}"))[0] == 200
    listed = await _versions(api, agent["id"])
    assert (listed[0]["version"], listed[0]["changes"]) == (3, ["toolIds"])
    _, before = await api("GET", f"/agents/{agent['id']}")
    status, answer = await api("POST", f"/agents/{agent['id']}/versions/1/restore")
    assert (status, [each["field"] for each in answer["details"]]) == (400, ["toolIds.0"])
    assert (await api("GET", f"/agents/{agent['id']}"))[1] == before
    assert await _versions(api, agent["id"]) == listed


@pytest.mark.parametrize("number", ["0", "3", "01", "-1", "x", "1.0", "9" * 30])
async def test_an_unknown_version_is_not_found(api: Api, number: str) -> None:
    agent = await api.create("/agents", {"name": "Anna"})
    for method, path in (("GET", ""), ("POST", "/restore")):
        status, answer = await api(method, f"/agents/{agent['id']}/versions/{number}{path}")
        assert (status, answer["error"]) == (404, "Agent version not found")


async def test_the_newest_versions_are_kept_and_all_go_with_the_agent(api: Api) -> None:
    many = versions.MAX_VERSIONS + 3

    def save(conn: sa.Connection) -> str:
        agent = agents.create(conn, api.organization_id, AgentFields(name="0"))
        for number in range(1, many):
            agents.update(conn, api.organization_id, agent.id, {"name": str(number)})
        return agent.id

    agent_id = await api.services.database.write(save)
    _, answer = await api("GET", f"/agents/{agent_id}/versions?limit=1")
    assert (answer["data"][0]["version"], answer["pagination"]["total"]) == (many, versions.MAX_VERSIONS)
    assert (await api("GET", f"/agents/{agent_id}/versions/{many - versions.MAX_VERSIONS}"))[0] == 404
    assert (await api("GET", f"/agents/{agent_id}/versions/{many - versions.MAX_VERSIONS + 1}"))[0] == 200
    await api("DELETE", f"/agents/{agent_id}")
    left = await api.services.database.read(
        lambda conn: conn.execute(sa.select(sa.func.count()).select_from(tables.agent_versions)).scalar_one()
    )
    assert left == 0
