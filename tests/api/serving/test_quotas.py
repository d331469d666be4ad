"""Quotas: counts get 403, bytes 413, with the quota's name and its usage."""

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
    """The organization's usage by quota; quotas without usage are left out."""
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
async def test_an_exceeded_count_gets_403_and_deletions_free_quota(
    start_api: StartApi, quota: str, path: str, body: dict[str, Any]
) -> None:
    api = await start_api({"quotas": {quota: 1}})
    created = await api.create(path, body)
    assert await used(api) == {quota: 1, "api_keys": 1}
    assert await api("POST", path, body | ({"number": "101"} if "number" in body else {"name": "another"})) == (
        403,
        refusal(quota, 1, 1),
    )
    other = await api.as_another_organization()
    assert (await other("POST", path, {**body, "number": "102"} if "number" in body else body))[0] == 201
    assert (await api("PATCH", f"{path}/{created['id']}", {"name": "b"}))[0] == 200, "what is there can be changed"
    assert (await api("DELETE", f"{path}/{created['id']}"))[0] == 200
    assert await used(api) == {"api_keys": 1}
    await api.create(path, body)


async def test_only_one_of_concurrent_requests_gets_the_last_of_a_quota(start_api: StartApi) -> None:
    api = await start_api({"quotas": {"agents": 3}})
    statuses = await asyncio.gather(*(api("POST", "/agents", {"name": str(each)}) for each in range(20)))
    assert sorted(status for status, _ in statuses) == [201] * 3 + [403] * 17
    assert (await used(api))["agents"] == 3


async def test_documents_and_their_bytes_count_against_quotas(start_api: StartApi) -> None:
    api = await start_api({"quotas": {"documents": 2, "document_bytes": 1000}})
    agent = await knowledge_client.new_agent(api)
    first = await api.create("/knowledge", knowledge_client.upload(agent, b"x" * 600))
    assert await api("POST", "/knowledge", knowledge_client.upload(agent, b"y" * 401)) == (
        413,
        refusal("document_bytes", 600, 1000),
    )
    assert len(knowledge_client.files(api)) == 1, "nothing of what is rejected stays"
    await api.create("/knowledge", knowledge_client.upload(agent, b"y" * 400))
    status, answer = await api("POST", "/knowledge", knowledge_client.upload(agent, b"z"))
    assert (status, answer) == (403, refusal("documents", 2, 2))
    assert (await api("DELETE", f"/knowledge/{first['id']}"))[0] == 200
    assert await used(api) == {"agents": 1, "api_keys": 1, "documents": 1, "document_bytes": 400}
    assert (await api("DELETE", f"/agents/{agent}"))[0] == 200
    assert await used(api) == {"api_keys": 1}, "they go with their agent"


async def test_sounds_count_with_their_stored_bytes(start_api: StartApi) -> None:
    short = sound_file(60, "FLAC")
    api = await start_api({"quotas": {"sound_bytes": 2_000_000}})
    await api.create("/background-sounds", sound(short))
    assert len(short) < 500_000 < (await used(api))["sound_bytes"] < 2_000_000
    before = (await used(api))["sound_bytes"]
    status, answer = await api("POST", "/background-sounds", sound(short))
    assert (status, answer) == (413, refusal("sound_bytes", before, 2_000_000))
    await api.create("/background-sounds", sound(WAV))


async def test_an_upload_over_a_used_up_quota_is_rejected_before_it_is_decoded(start_api: StartApi) -> None:
    api = await start_api({"quotas": {"sounds": 0, "documents": 0}})
    assert await api("POST", "/background-sounds", sound(b"no sound")) == (403, refusal("sounds", 0, 0))
    agent = await knowledge_client.new_agent(api)
    assert await api("POST", "/knowledge", knowledge_client.upload(agent)) == (403, refusal("documents", 0, 0))
    assert knowledge_client.files(api) == []


async def test_stored_responses_count_and_a_request_whose_response_cannot_be_stored_fails(start_api: StartApi) -> None:
    api = await start_api({"quotas": {"idempotent_answer_bytes": 2500}})
    keys = [{"Idempotency-Key": f"key-{each}"} for each in range(4)]
    first = await api.raw("POST", "/agents", {"name": "one"}, headers=keys[0])
    assert first.status == 201
    stored_bytes = (await used(api))["idempotent_answer_bytes"]
    assert 1250 < stored_bytes < 2500
    status, answer = await api("POST", "/agents", {"name": "two"}, headers=keys[1])
    assert (status, answer) == (413, refusal("idempotent_answer_bytes", stored_bytes, 2500))
    assert (await used(api))["agents"] == 1, "nothing was done"
    assert (await used(api))["idempotent_answer_bytes"] == stored_bytes
    again = await api.raw("POST", "/agents", {"name": "one"}, headers=keys[0])
    assert (await again.read(), again.headers["Idempotent-Replay"]) == (await first.read(), "true"), (
        "it is still stored"
    )
    assert (await api("POST", "/agents", {"name": "two"}))[0] == 201, "without a key nothing is stored"
    rejected = 0
    for each in range(20):  # rejections are stored, too
        status, _ = await api("POST", "/agents", {}, headers={"Idempotency-Key": f"refusal-{each}"})
        rejected += status == 413
    assert 0 < rejected < 20
    assert (await used(api))["idempotent_answer_bytes"] <= 2500


async def test_an_organization_may_have_quotas_of_its_own(api: Api) -> None:
    def set_one(conn: Any) -> None:
        stored = organizations.get(conn, api.organization_id)
        assert stored is not None
        organizations.change(conn, stored, {"quotas": {"agents": 1}})

    await api.create("/agents", {"name": "a"})
    await api.create("/agents", {"name": "b"})
    await api.services.database.write(set_one)
    assert await api("POST", "/agents", {"name": "c"}) == (403, refusal("agents", 2, 1))
    _, listed = await api("GET", "/agents")
    assert listed["pagination"]["total"] == 2, "what was there stays"


async def test_the_usage_of_all_organizations_is_returned(api: Api) -> None:
    await api.create("/agents", {"name": "a"})
    limits = api.services.settings.quotas.model_dump()
    found = await api.services.database.read(lambda conn: quotas.usage_of_all(conn, limits))
    assert found[api.organization_id] == {
        "agents": QuotaUsage("agents", 1, limits["agents"]),
        "api_keys": QuotaUsage("api_keys", 1, limits["api_keys"]),
    }
