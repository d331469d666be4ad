"""What an organization may store: counts get 403, bytes 413, with the quota's name and what is used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from storage.accounts import organizations, quotas
from storage.accounts.quotas import QuotaUsage
from tests.api import knowledge_client
from tests.api.conftest import Api, StartApi
from tests.api.resources.test_background_sounds import WAV, sound_file
from tests.api.resources.test_background_sounds import upload as sound

TOOL = {
    "name": "berths",
    "type": "http",
    "config": {"url": "https://harbour.example/berths", "method": "GET", "headers": [], "body": []},
}


async def used(api: Api) -> dict[str, int]:
    """What the organization uses, by quota; without what nothing is used of."""
    limits = api.services.settings.quotas.model_dump()
    found = await api.services.database.read(lambda conn: quotas.usage(conn, api.organization_id, limits))
    return {name: each.used for name, each in found.items() if each.used}


def refusal(quota: str, used: int, allowed: int) -> dict[str, Any]:
    return {
        "error": f"Quota exceeded: {quota}, {used} of {allowed} used",
        "quota": {"name": quota, "used": used, "allowed": allowed},
    }


@pytest.mark.parametrize(
    ("quota", "path", "body"),
    [
        ("agents", "/agents", {"name": "a"}),
        ("tools", "/tools", TOOL),
        ("phone_numbers", "/phone-numbers", {"number": "100", "provider": "sip"}),
    ],
)
async def test_beyond_a_count_it_is_403_and_what_is_deleted_makes_room(
    start_api: StartApi, quota: str, path: str, body: dict[str, Any]
) -> None:
    api = await start_api({"quotas": {quota: 1}})
    made = await api.made(path, body)
    assert await used(api) == {quota: 1, "api_keys": 1}
    assert await api("POST", path, {**body, "number": "101"} if "number" in body else body) == (
        403,
        refusal(quota, 1, 1),
    )
    other = await api.of_another_organization()
    assert (await other("POST", path, {**body, "number": "102"} if "number" in body else body))[0] == 201
    assert (await api("PATCH", f"{path}/{made['id']}", {"name": "b"}))[0] == 200, "what is there can be changed"
    assert (await api("DELETE", f"{path}/{made['id']}"))[0] == 200
    assert await used(api) == {"api_keys": 1}
    await api.made(path, body)


async def test_of_those_who_want_the_last_place_at_once_one_gets_it(start_api: StartApi) -> None:
    api = await start_api({"quotas": {"agents": 3}})
    statuses = await asyncio.gather(*(api("POST", "/agents", {"name": str(each)}) for each in range(20)))
    assert sorted(status for status, _ in statuses) == [201] * 3 + [403] * 17
    assert (await used(api))["agents"] == 3


async def test_documents_count_and_so_do_their_bytes(start_api: StartApi) -> None:
    api = await start_api({"quotas": {"documents": 2, "document_bytes": 1000}})
    agent = await knowledge_client.new_agent(api)
    first = await api.made("/knowledge", knowledge_client.upload(agent, b"x" * 600))
    assert await api("POST", "/knowledge", knowledge_client.upload(agent, b"y" * 401)) == (
        413,
        refusal("document_bytes", 600, 1000),
    )
    assert len(knowledge_client.files(api)) == 1, "nothing of what is refused stays"
    await api.made("/knowledge", knowledge_client.upload(agent, b"y" * 400))
    status, answer = await api("POST", "/knowledge", knowledge_client.upload(agent, b"z"))
    assert (status, answer) == (403, refusal("documents", 2, 2))
    assert (await api("DELETE", f"/knowledge/{first['id']}"))[0] == 200
    assert await used(api) == {"agents": 1, "api_keys": 1, "documents": 1, "document_bytes": 400}
    assert (await api("DELETE", f"/agents/{agent}"))[0] == 200
    assert await used(api) == {"api_keys": 1}, "they go with their agent"


async def test_sounds_count_as_they_are_stored(start_api: StartApi) -> None:
    short = sound_file(60, "FLAC")
    api = await start_api({"quotas": {"sound_bytes": 2_000_000}})
    await api.made("/background-sounds", sound(short))
    assert len(short) < 500_000 < (await used(api))["sound_bytes"] < 2_000_000
    before = (await used(api))["sound_bytes"]
    status, answer = await api("POST", "/background-sounds", sound(short))
    assert (status, answer) == (413, refusal("sound_bytes", before, 2_000_000))
    await api.made("/background-sounds", sound(WAV))


async def test_an_upload_that_a_quota_has_no_room_for_is_not_even_looked_at(start_api: StartApi) -> None:
    api = await start_api({"quotas": {"sounds": 0, "documents": 0}})
    assert await api("POST", "/background-sounds", sound(b"no sound")) == (403, refusal("sounds", 0, 0))
    agent = await knowledge_client.new_agent(api)
    assert await api("POST", "/knowledge", knowledge_client.upload(agent)) == (403, refusal("documents", 0, 0))
    assert knowledge_client.files(api) == []


async def test_answers_that_are_kept_count_and_one_that_cannot_be_kept_is_not_given(start_api: StartApi) -> None:
    api = await start_api({"quotas": {"idempotent_answer_bytes": 2500}})
    keys = [{"Idempotency-Key": f"key-{each}"} for each in range(4)]
    first = await api.raw("POST", "/agents", {"name": "one"}, headers=keys[0])
    assert first.status == 201
    kept = (await used(api))["idempotent_answer_bytes"]
    assert 1250 < kept < 2500
    status, answer = await api("POST", "/agents", {"name": "two"}, headers=keys[1])
    assert (status, answer) == (413, refusal("idempotent_answer_bytes", kept, 2500))
    assert (await used(api))["agents"] == 1, "nothing was done"
    assert (await used(api))["idempotent_answer_bytes"] == kept
    again = await api.raw("POST", "/agents", {"name": "one"}, headers=keys[0])
    assert (await again.read(), again.headers["Idempotent-Replay"]) == (await first.read(), "true"), "it is kept on"
    assert (await api("POST", "/agents", {"name": "two"}))[0] == 201, "without a key nothing is kept"
    refused = 0
    for each in range(20):  # refusals are kept too
        status, _ = await api("POST", "/agents", {}, headers={"Idempotency-Key": f"refusal-{each}"})
        refused += status == 413
    assert 0 < refused < 20
    assert (await used(api))["idempotent_answer_bytes"] <= 2500


async def test_an_organization_may_have_quotas_of_its_own(api: Api) -> None:
    def set_one(conn: Any) -> None:
        stored = organizations.get(conn, api.organization_id)
        assert stored is not None
        organizations.change(conn, stored, {"quotas": {"agents": 1}})

    await api.made("/agents", {"name": "a"})
    await api.made("/agents", {"name": "b"})
    await api.services.database.write(set_one)
    assert await api("POST", "/agents", {"name": "c"}) == (403, refusal("agents", 2, 1))
    _, listed = await api("GET", "/agents")
    assert listed["pagination"]["total"] == 2, "what was there stays"


async def test_the_usage_of_all_is_told_by_organization(api: Api) -> None:
    await api.made("/agents", {"name": "a"})
    limits = api.services.settings.quotas.model_dump()
    found = await api.services.database.read(lambda conn: quotas.usage_of_all(conn, limits))
    assert found[api.organization_id] == {
        "agents": QuotaUsage("agents", 1, limits["agents"]),
        "api_keys": QuotaUsage("api_keys", 1, limits["api_keys"]),
    }
